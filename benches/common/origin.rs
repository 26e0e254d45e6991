//! Where figures come from.

use std::fmt;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// When, of what and on what a run measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Origin {
    pub finished_unix_seconds: u64,
    /// `None` where there is no repository.
    pub commit: Option<Commit>,
    pub machine: Machine,
}

impl Origin {
    /// Of a run that ends now.
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Origin {
            finished_unix_seconds: now.map_or(0, |now| now.as_secs()),
            commit: commit(),
            machine: machine(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, processors, memory_mib, kernel } = &self.machine;
        write!(f, "{processors} x {processor}, {memory_mib} MiB of memory, Linux {kernel}")?;
        if let Some(Commit { id, date, changed }) = &self.commit {
            let changed = if *changed { ", changed since" } else { "" };
            write!(f, "\nCommit {id} of {date}{changed}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_mib: u64,
    pub kernel: String,
}

/// The commit that was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Commit {
    pub id: String,
    pub date: String,
    /// Whether files differ from it.
    pub changed: bool,
}

fn machine() -> Machine {
    let memory =
        value("/proc/meminfo", "MemTotal").and_then(|it| it.split(' ').next()?.parse().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        processor: value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        memory_mib: memory.unwrap_or(0_u64) / 1024,
        kernel: kernel.trim().to_owned(),
    }
}

fn commit() -> Option<Commit> {
    let said = git(&["log", "-1", "--format=%h %cI"])?;
    let (id, date) = said.trim().split_once(' ')?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.trim().is_empty();
    Some(Commit { id: id.to_owned(), date: date.to_owned(), changed })
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The first value of a key in a file of lines `key: value`.
fn value(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches([':', ' ', '\t']).trim().to_owned())
}
