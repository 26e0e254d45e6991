//! Processes that die with their parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use crate::ClusterError;

/// Replaces this process with `program`, which the kernel kills when the process with the id
/// `parent` ends for any reason. Returns only on failure.
///
/// The parent starts its own program as a child, and the child calls this function: the kill signal
/// survives the change of program. The kernel sends it when the parent's thread that started the
/// child ends, so this thread must live as long as the parent.
#[must_use = "it returns only on failure"]
pub fn execute_tied(parent: &str, program: &str, arguments: &[String]) -> ClusterError {
    let failed = ClusterError::io(format!("execute {program}"));
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return failed(error.into());
    }
    // If the parent ended before the line above, the kernel sends no signal.
    let current = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if current.as_deref() != Some(parent) {
        return failed(io::Error::other("the parent process is gone"));
    }
    failed(Command::new(program).args(arguments).exec())
}
