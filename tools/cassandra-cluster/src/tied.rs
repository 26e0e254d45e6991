//! Processes that end with the one that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use crate::ClusterError;

/// Replaces this process with `program`, which is killed when the process with the id `parent` ends
/// for any reason. Returns only on failure.
///
/// A process starts itself once more to call this: the setting survives the change of program. The
/// kernel ties it to the thread that started the process, which therefore must live as long as the
/// parent.
#[must_use = "it returns only on failure"]
pub fn execute_tied(parent: &str, program: &str, arguments: &[String]) -> ClusterError {
    let failed = ClusterError::io(format!("execute {program}"));
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return failed(error.into());
    }
    // If the parent ended before the line above, no signal would come.
    let current = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if current.as_deref() != Some(parent) {
        return failed(io::Error::other("the process that started this one is gone"));
    }
    failed(Command::new(program).args(arguments).exec())
}
