//! Derives a node's state from its log: whether it has started, and which other nodes it sees.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The part of a log that an error message quotes.
const TAIL_LINES: usize = 25;
const TAIL_BYTES: u64 = 16 * 1024;

/// Follows the log of one node since its last start.
#[derive(Debug)]
pub(crate) struct NodeLog {
    path: PathBuf,
    offset: u64,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    state: LoggedState,
}

/// A node's state according to the lines of its log.
#[derive(Debug, Default)]
struct LoggedState {
    started: bool,
    up: BTreeSet<Ipv4Addr>,
}

impl NodeLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, partial: Vec::new(), state: LoggedState::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Resets the state. Call this before the node is started, because it appends to its log.
    pub(crate) fn restart(&mut self) {
        self.offset = self.path.metadata().map_or(0, |metadata| metadata.len());
        self.partial.clear();
        self.state = LoggedState::default();
    }

    /// Reads the lines added since the last call. Ignores read errors: a request that waits for new
    /// lines times out.
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
            self.state.apply(line);
        }
    }

    /// Whether the node has logged that its start is complete.
    pub(crate) fn started(&self) -> bool {
        self.state.started
    }

    /// The other nodes that this node considers alive.
    pub(crate) fn up(&self) -> &BTreeSet<Ipv4Addr> {
        &self.state.up
    }

    /// Forgets a peer that is about to be restarted, so that only lines about its next run count.
    pub(crate) fn forget_peer(&mut self, peer: Ipv4Addr) {
        self.read();
        self.state.up.remove(&peer);
    }
}

impl LoggedState {
    fn apply(&mut self, line: &str) {
        if line.ends_with("Startup complete") {
            self.started = true;
        } else if let Some(peer) = peer_in(line, " is now UP") {
            self.up.insert(peer);
        } else if let Some(peer) = peer_in(line, " is now DOWN") {
            self.up.remove(&peer);
        }
    }
}

/// The 127.0.0.2 in `... InetAddress /127.0.0.2:7000 is now UP`.
fn peer_in(line: &str, event: &str) -> Option<Ipv4Addr> {
    let (before, _) = line.split_once(event)?;
    let (_, address) = before.rsplit_once('/')?;
    address.split(':').next()?.parse().ok()
}

/// Quotes the last lines of a file, for error messages.
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
    fn lines_update_state() {
        let mut state = LoggedState::default();
        let two = Ipv4Addr::new(127, 0, 0, 2);
        let three = Ipv4Addr::new(127, 0, 0, 3);
        state.apply(&format!("{LINE}InetAddress /127.0.0.2:7000 is now UP"));
        state.apply(&format!("{LINE}InetAddress /127.0.0.3:7000 is now UP"));
        assert_eq!(state.up, BTreeSet::from([two, three]));
        state.apply(&format!("{LINE}InetAddress /127.0.0.2:7000 is now DOWN"));
        state.apply(&format!("{LINE}Node /127.0.0.2:7000 has restarted, now UP"));
        assert_eq!(state.up, BTreeSet::from([three]));
        assert!(!state.started);
        state.apply(&format!("{LINE}Startup complete"));
        assert!(state.started);
    }

    #[test]
    fn log_is_read_in_whole_lines_since_last_start() {
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
