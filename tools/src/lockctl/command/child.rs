//! The command, behind its guardian.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{self, Command};

use super::channel::send_with_stdin;
use super::guardian::{MARGIN, encoded};
use crate::lockctl::process::{boot_time, this_program};

/// The command and its guardian, in a process group of their own.
pub(super) struct Child {
    guardian: process::Child,
    group: Option<Pid>,
    /// The channel to the guardian; `None` once the lock is lost.
    deadlines: Option<UnixStream>,
    /// The newest deadline that it was told, by the boot time.
    told: Duration,
}

impl Child {
    /// Starts a command that has to end before `held_for` is over, unless told otherwise.
    pub(super) fn spawn(
        command: &[OsString],
        environment: &[(&str, String)],
        held_for: Duration,
        kill_after: Duration,
        lenient: bool,
    ) -> io::Result<Self> {
        let (theirs, deadlines) = UnixStream::pair()?;
        let told = boot_time() + held_for;
        send_with_stdin(&deadlines, encoded(told))?;
        deadlines.set_nonblocking(true)?;
        let mut guardian = Command::new(this_program()?);
        guardian.arg0("lockctl").arg("guardian").stdin(OwnedFd::from(theirs));
        guardian.arg("--kill-after").arg(format!("{}ms", kill_after.as_millis()));
        if lenient {
            guardian.arg("--lenient");
        }
        guardian.arg("--").args(command).envs(environment.iter().cloned()).process_group(0);
        let guardian = guardian.spawn()?;
        let group = guardian.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(Child { guardian, group, deadlines: Some(deadlines), told })
    }

    /// Says that the lock is held for so long from now on.
    pub(super) fn tell(&mut self, held_for: Duration) {
        let until = boot_time() + held_for;
        let Some(deadlines) = &mut self.deadlines else { return };
        // A guardian that is stopped may leave the channel full; one that has ended is waited for.
        if deadlines.write_all(&encoded(until)).is_ok() {
            self.told = until;
        }
    }

    /// Whether the guardian ended the command because the lock was not renewed in time.
    pub(super) fn ran_out_of_time(&self, kill_after: Duration) -> bool {
        boot_time() + kill_after + MARGIN >= self.told
    }

    /// Has the command ended, because the lock is lost.
    pub(super) fn abandon(&mut self) {
        self.deadlines = None;
    }

    /// Sends a signal to the command and all processes of its group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // If it has ended meanwhile, nothing is left to tell.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for the end of the command.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.guardian.wait().await
    }
}
