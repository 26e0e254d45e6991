//! The state of a node from its log: whether it has started, and which other nodes it sees.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// How much of a log an error message quotes.
const TAIL_LINES: usize = 25;
const TAIL_BYTES: u64 = 16 * 1024;

/// Follows the log of one node since its last start.
#[derive(Debug)]
pub(crate) struct NodeLog {
    path: PathBuf,
    offset: u64,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    view: View,
}

/// The state that follows from all lines of a log.
#[derive(Debug, Default)]
struct View {
    started: bool,
    up: BTreeSet<Ipv4Addr>,
}

impl NodeLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, partial: Vec::new(), view: View::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Forgets everything: the node is about to be started and will append to its log.
    pub(crate) fn restart(&mut self) {
        self.offset = self.path.metadata().map_or(0, |metadata| metadata.len());
        self.partial.clear();
        self.view = View::default();
    }

    /// Reads the new lines since the last call. A log that can't be read has no new lines; a
    /// request that waits for them times out.
    pub(crate) fn read(&mut self) {
        let Ok(new) = read_from(&self.path, self.offset) else {
            return;
        };
        self.offset += u64::try_from(new.len()).expect("a length fits 64 bits");
        self.partial.extend_from_slice(&new);
        let Some(end) = self.partial.iter().rposition(|&byte| byte == b'\n') else {
            return;
        };
        let rest = self.partial.split_off(end + 1);
        let lines = std::mem::replace(&mut self.partial, rest);
        for line in String::from_utf8_lossy(&lines).lines() {
            self.view.learn(line);
        }
    }

    /// Whether the node has logged that its start is complete.
    pub(crate) fn started(&self) -> bool {
        self.view.started
    }

    /// The other nodes that this one considers alive.
    pub(crate) fn up(&self) -> &BTreeSet<Ipv4Addr> {
        &self.view.up
    }

    /// Forgets the state of a node that is about to start again: only lines about its next run
    /// count.
    pub(crate) fn forget(&mut self, peer: Ipv4Addr) {
        self.read();
        self.view.up.remove(&peer);
    }
}

impl View {
    fn learn(&mut self, line: &str) {
        if line.ends_with("Startup complete") {
            self.started = true;
        } else if let Some(peer) = subject(line, " is now UP") {
            self.up.insert(peer);
        } else if let Some(peer) = subject(line, " is now DOWN") {
            self.up.remove(&peer);
        }
    }
}

/// The 127.0.0.2 in `... InetAddress /127.0.0.2:7000 is now UP`.
fn subject(line: &str, verb: &str) -> Option<Ipv4Addr> {
    let (before, _) = line.split_once(verb)?;
    let (_, address) = before.rsplit_once('/')?;
    address.split(':').next()?.parse().ok()
}

/// The last lines of a file, for an error message that must explain a failure.
pub(crate) fn tail(path: &Path) -> String {
    let length = path.metadata().map_or(0, |metadata| metadata.len());
    let bytes = read_from(path, length.saturating_sub(TAIL_BYTES)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("the end of {}:\n{}", path.display(), last.join("\n"))
}

fn read_from(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "INFO  [GossipStage:1] 2026-01-01 00:00:00,000 Gossiper.java:1450 - ";

    #[test]
    fn lines_change_the_view() {
        let mut view = View::default();
        let two = Ipv4Addr::new(127, 0, 0, 2);
        let three = Ipv4Addr::new(127, 0, 0, 3);
        view.learn(&format!("{LINE}InetAddress /127.0.0.2:7000 is now UP"));
        view.learn(&format!("{LINE}InetAddress /127.0.0.3:7000 is now UP"));
        assert_eq!(view.up, BTreeSet::from([two, three]));
        view.learn(&format!("{LINE}InetAddress /127.0.0.2:7000 is now DOWN"));
        view.learn(&format!("{LINE}Node /127.0.0.2:7000 has restarted, now UP"));
        assert_eq!(view.up, BTreeSet::from([three]));
        assert!(!view.started);
        view.learn(&format!("{LINE}Startup complete"));
        assert!(view.started);
    }

    #[test]
    fn a_log_is_read_in_whole_lines_and_from_its_last_start() {
        let path = std::env::temp_dir().join(format!("node-log-{}", std::process::id()));
        let mut log = NodeLog::new(path.clone());
        std::fs::write(&path, format!("{LINE}Startup complete\n")).unwrap();
        log.restart();
        log.read();
        assert!(!log.started());

        let append = |text: &str| {
            use std::io::Write;
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append(&format!("{LINE}Startup com"));
        log.read();
        assert!(!log.started());
        append("plete\n");
        log.read();
        assert!(log.started());
        assert!(tail(&path).ends_with("Startup complete"));
        std::fs::remove_file(&path).unwrap();
    }
}
