//! On what was measured.

use std::fs;
use std::process::{Command, Stdio};

use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
}

/// The commit that was measured.
#[derive(Serialize)]
pub(crate) struct Commit {
    pub(crate) id: String,
    pub(crate) date: String,
    /// Whether files differ from it.
    pub(crate) changed: bool,
}

pub(crate) fn machine() -> Machine {
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

/// `None` where there is no repository.
pub(crate) fn commit() -> Option<Commit> {
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
