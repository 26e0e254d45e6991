//! The process between `lockctl` and a command, which ends the command in time.
//!
//! It leads the command's process group, and learns from a channel until when the lock is held. If
//! that time comes near, or the channel ends, it ends the group: by TERM, and then by KILL. The
//! command therefore ends before another client may hold the lock, also if `lockctl` was stopped or
//! killed and can't renew it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{Signal, getpgrp, kill_process_group};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::sleep;

use super::UNKNOWN_END;
use super::channel::receive;
use crate::failure::Failure;
use crate::lockctl::process::boot_time;
use crate::options::duration;
use crate::output::{self, visible};
use crate::signals::PassedOn;

/// How long before the deadline the group is gone at the latest: as long as a busy machine takes to
/// end it.
pub(super) const MARGIN: Duration = Duration::from_millis(250);

/// The timer stands still in a suspend, unlike the clock of deadlines.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Watch over a command (`lockctl run` starts it)
#[derive(Clone, Debug, Args)]
pub(in crate::lockctl) struct GuardianOptions {
    /// The time from TERM to KILL
    #[arg(long, value_parser = duration)]
    kill_after: Duration,

    /// Whether the command is left alone
    #[arg(long)]
    lenient: bool,

    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the command, and returns its exit code.
pub(in crate::lockctl) async fn guard(options: &GuardianOptions) -> Result<u8, Failure> {
    // It outlives what is sent to the group, to end the rest of it.
    let _signals = PassedOn::new()?;
    let (mut deadlines, deadline, stdin) =
        Deadlines::open().map_err(Failure::system("the lock's deadline can't be read"))?;
    let mut watch = Watch { deadline, kill_after: options.kill_after, ends_from: None };
    let (program, arguments) = options.command.split_first().expect("a command has a program");
    let mut child = match Command::new(program).args(arguments).stdin(stdin).spawn() {
        Ok(child) => child,
        Err(error) => {
            output::report(&visible(&program.to_string_lossy()), &error);
            return Ok(code_of_start(&error));
        }
    };
    let mut is_told = true;
    loop {
        let due = watch.due(boot_time());
        if !options.lenient {
            match due {
                Due::In(_) => {}
                Due::Term => end_group(Signal::TERM),
                Due::Kill => end_group(Signal::KILL),
            }
        }
        let pause = if let Due::In(pause) = due { pause.min(SLEEP_MAX) } else { SLEEP_MAX / 50 };
        tokio::select! {
            status = child.wait() => {
                if watch.ends_from.is_some() && !options.lenient {
                    // The rest of the group, and this process with it.
                    end_group(Signal::KILL);
                }
                return status.map(code_of).map_err(Failure::system(UNKNOWN_END));
            }
            told = deadlines.next(), if is_told => match told {
                Some(deadline) => watch.deadline = deadline,
                None => {
                    is_told = false;
                    watch.abandon(boot_time());
                }
            },
            () = sleep(pause) => {}
        }
    }
}

/// Sends a signal to the group. It is there as long as this process is.
fn end_group(signal: Signal) {
    let _ = kill_process_group(getpgrp(), signal);
}

/// The exit code for a command that was not started, as of `env`: 127 if it was not found, 125 if
/// no process could be made for it, and else 126.
fn code_of_start(error: &io::Error) -> u8 {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => 127,
        Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM) => Failure::BEFORE_COMMAND,
        _ => 126,
    }
}

/// The exit code that a shell has for a status.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or(signal.map(|signal| 128 + signal)).unwrap_or(125)
}

/// The deadlines that are told, in nanoseconds of the boot time.
struct Deadlines {
    channel: UnixStream,
    /// The beginning of one that is not complete.
    rest: Vec<u8>,
}

/// How many bytes a deadline has in the channel.
pub(super) const DEADLINE_BYTES: usize = 8;

/// The bytes of a deadline in the channel.
pub(super) fn encoded(deadline: Duration) -> [u8; DEADLINE_BYTES] {
    u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

fn decoded(deadline: [u8; DEADLINE_BYTES]) -> Duration {
    Duration::from_nanos(u64::from_le_bytes(deadline))
}

impl Deadlines {
    /// The deadlines, the first of them, and the standard input for the command.
    fn open() -> io::Result<(Self, Duration, OwnedFd)> {
        let (channel, deadline, stdin) = receive()?;
        channel.set_nonblocking(true)?;
        let channel = UnixStream::from_std(channel)?;
        Ok((Deadlines { channel, rest: Vec::new() }, decoded(deadline), stdin))
    }

    /// The newest deadline, once there is one; `None` when the other end is closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: what was read is kept.
    async fn next(&mut self) -> Option<Duration> {
        loop {
            let mut read = [0; 4096];
            match self.channel.try_read(&mut read) {
                Ok(0) => return None,
                Ok(bytes) => self.rest.extend_from_slice(&read[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.channel.readable().await.ok()?;
                    continue;
                }
                Err(_) => return None,
            }
            let whole = self.rest.len() / DEADLINE_BYTES * DEADLINE_BYTES;
            let newest = self.rest[..whole].last_chunk().copied();
            self.rest.drain(..whole);
            if let Some(newest) = newest {
                return Some(decoded(newest));
            }
        }
    }
}

/// When the group has to end.
#[derive(Debug)]
struct Watch {
    /// Until when the lock is held.
    deadline: Duration,
    kill_after: Duration,
    /// Since when the group is asked to end.
    ends_from: Option<Duration>,
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Nothing, for so long.
    In(Duration),
    Term,
    Kill,
}

impl Watch {
    /// What is due now. Once TERM was due, the group has to end, whatever the deadline is later.
    fn due(&mut self, now: Duration) -> Due {
        let last = self.deadline.saturating_sub(MARGIN);
        match self.ends_from {
            None if now + self.kill_after < last => Due::In(last - self.kill_after - now),
            None => {
                self.ends_from = Some(now);
                Due::Term
            }
            Some(since) => {
                let kill_at = last.min(since + self.kill_after);
                if now < kill_at { Due::In(kill_at - now) } else { Due::Kill }
            }
        }
    }

    /// The lock is lost: there is no more to wait for.
    fn abandon(&mut self, now: Duration) {
        if self.ends_from.is_none() {
            self.deadline = self.deadline.min(now + self.kill_after + MARGIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn watch() -> Watch {
        Watch { deadline: ms(60_000), kill_after: ms(5_000), ends_from: None }
    }

    #[test]
    fn a_group_ends_before_the_deadline() {
        let mut watch = watch();
        assert_eq!(watch.due(ms(0)), Due::In(ms(54_750)));
        watch.deadline = ms(80_000);
        assert_eq!(watch.due(ms(54_750)), Due::In(ms(20_000)));
        assert_eq!(watch.due(ms(74_750)), Due::Term);
        assert_eq!(watch.due(ms(74_760)), Due::In(ms(4_990)));
        assert_eq!(watch.due(ms(79_750)), Due::Kill);
        watch.deadline = ms(200_000);
        assert_eq!(watch.due(ms(79_800)), Due::Kill, "it was asked to end");
    }

    #[test]
    fn a_late_watch_kills_at_once() {
        let mut watch = watch();
        assert_eq!(watch.due(ms(59_900)), Due::Term);
        assert_eq!(watch.due(ms(59_900)), Due::Kill);
    }

    #[test]
    fn without_lockctl_the_group_has_as_long_as_after_a_loss() {
        let mut watch = watch();
        assert_eq!(watch.due(ms(0)), Due::In(ms(54_750)));
        watch.abandon(ms(10_000));
        assert_eq!(watch.due(ms(10_000)), Due::Term);
        assert_eq!(watch.due(ms(10_001)), Due::In(ms(4_999)));
        assert_eq!(watch.due(ms(15_000)), Due::Kill);
    }

    #[test]
    fn command_that_was_not_started_has_the_code_of_env() {
        for (errno, code) in [
            (Errno::NOENT, 127),
            (Errno::ACCESS, 126),
            (Errno::NOEXEC, 126),
            (Errno::NOTDIR, 126),
            (Errno::MFILE, 125),
            (Errno::AGAIN, 125),
        ] {
            assert_eq!(code_of_start(&errno.into()), code, "{errno}");
        }
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!([0, 1, 255].map(|code| code_of(exited(code))), [0, 1, 255]);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
        assert_eq!(code_of(ExitStatus::from_raw(15)), 143);
    }
}
