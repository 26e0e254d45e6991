//! The process between `lockctl` and a command, which ends the command in time.
//!
//! It learns from a channel until when the lock is held. If that time comes near, or the channel
//! ends, it ends all processes of the command: by TERM, and then by KILL. None of them is left
//! before another client may hold the lock, also if `lockctl` was stopped or killed and can't renew
//! it. Without that it ends when the last of them has.
//!
//! The command is in `lockctl`'s process group, like that of `flock`: it may use the terminal, and
//! has the terminal's signals. The guardian has a group of its own, so nothing that stops or ends
//! the command's job stops or ends the guardian.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use super::channel::{self, Channel, Order, Report};
use super::descendants::{adopt, descendants, kill, reap, signal};
use super::watch::{Due, Watch};
use crate::failure::Failure;
use crate::lockctl::process::{boot_time, pid_of};
use crate::options::duration;
use crate::signals::Signals;

/// The timer stands still in a suspend, unlike the clock of deadlines.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// How often KILL is sent, until none is left: processes may have started others meanwhile.
const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// How long processes that a command leaves may continue before that is reported.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Watch over a command (`lockctl run` starts it)
#[derive(Clone, Debug, Args)]
pub(in crate::lockctl) struct GuardianOptions {
    /// The time from TERM to KILL
    #[arg(long, value_parser = duration)]
    kill_after: Duration,

    /// Whether the command continues without the lock
    #[arg(long)]
    lenient: bool,

    /// Whether processes that the command leaves are left
    #[arg(long)]
    detach: bool,

    /// The process group of the command; 0 for one of its own
    #[arg(long)]
    group: i32,

    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the command, and returns its exit code.
pub(in crate::lockctl) async fn guard(options: &GuardianOptions) -> Result<u8, Failure> {
    // It outlives what is sent to all, to end those that are left.
    let _signals = Signals::passed_on()?;
    let ended = unix::signal(SignalKind::child());
    let ended = ended.map_err(Failure::system("the end of a process can't be noticed"))?;
    adopt().map_err(Failure::system("processes can't be waited for"))?;
    let (mut lockctl, order, stdin) =
        channel::receive().map_err(Failure::system("the lock's deadline can't be read"))?;
    let command = match options.start(stdin) {
        Ok(command) => command,
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
            lockctl.send(Report::NotStarted(errno));
            return Ok(code_of_start(errno));
        }
    };
    let watch = Watch::new(Duration::ZERO, options.kill_after);
    let mut guardian = Guardian {
        options,
        lockctl,
        command,
        watch,
        ended,
        end: None,
        is_told: false,
        is_abandoned: false,
    };
    guardian.obey(Some(order));
    Ok(guardian.run().await)
}

impl GuardianOptions {
    fn start(&self, stdin: OwnedFd) -> io::Result<Child> {
        let (program, arguments) = self.command.split_first().expect("a command has a program");
        Command::new(program).args(arguments).stdin(stdin).process_group(self.group).spawn()
    }
}

struct Guardian<'a> {
    options: &'a GuardianOptions,
    lockctl: Channel<Report, Order>,
    /// The process that was started.
    command: Child,
    watch: Watch,
    /// A child has ended.
    ended: unix::Signal,
    /// When the command ended by the boot time, and its exit code.
    end: Option<(Duration, u8)>,
    /// Whether `lockctl` knows that the command leaves processes.
    is_told: bool,
    /// Whether the lock is lost or revoked, or `lockctl` has ended.
    is_abandoned: bool,
}

impl Guardian<'_> {
    /// Returns the command's exit code when all have ended.
    async fn run(&mut self) -> u8 {
        let mut is_open = true;
        loop {
            let is_any_left = self.reap();
            let is_ended = self.watch.has_begun() && !self.options.lenient;
            let may_leave = self.options.detach && !is_ended;
            match self.end {
                Some((_, code)) if may_leave || !is_any_left => return code,
                _ => {}
            }
            let pause = self.act(boot_time());
            tokio::select! {
                order = self.lockctl.next(), if is_open => {
                    is_open = order.is_some();
                    self.obey(order);
                }
                _ = self.ended.recv() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Removes processes that have ended. Returns whether some are left.
    fn reap(&mut self) -> bool {
        let command = pid_of(&self.command);
        let mut code = None;
        let is_any_left = reap(|pid, status| {
            if Some(pid) == command {
                code = Some(code_of(status));
            }
        });
        self.end = self.end.or(code.map(|code| (boot_time(), code)));
        is_any_left
    }

    /// Does what is due, and returns for how long there is nothing more to do.
    fn act(&mut self, now: Duration) -> Duration {
        let mut pause = SLEEP_MAX;
        if let Some((since, _)) = self.end
            && !self.is_told
        {
            let told_at = since + TOLD_AFTER;
            if now >= told_at {
                self.is_told = true;
                let count = descendants(&[]).len();
                self.lockctl.send(Report::Leaves(u32::try_from(count).unwrap_or(u32::MAX)));
            } else {
                pause = pause.min(told_at - now);
            }
        }
        let due = self.watch.due(now);
        if self.options.lenient {
            return pause;
        }
        match due {
            Due::In(time) => pause.min(time),
            Due::Term => {
                if !self.is_abandoned {
                    self.lockctl.send(Report::OutOfTime);
                }
                for pid in signal(Signal::TERM) {
                    let pid = pid.as_raw_nonzero().get().unsigned_abs();
                    self.lockctl.send(Report::NotPermitted(pid));
                }
                KILL_INTERVAL
            }
            Due::Kill => {
                kill(&[]);
                KILL_INTERVAL
            }
        }
    }

    fn obey(&mut self, order: Option<Order>) {
        match order {
            Some(Order::HeldUntil(deadline)) => self.watch.deadline = deadline,
            // The command has what a terminal sent. What it left may have left its group.
            Some(Order::PassOn(received)) if received.by_terminal && self.end.is_none() => {}
            Some(Order::PassOn(received)) => drop(signal(received.signal)),
            Some(Order::End) | None => {
                self.is_abandoned = true;
                self.watch.abandon(boot_time());
            }
        }
    }
}

/// The exit code for a command that was not started, as of `env`: 127 if it was not found, 125 if
/// no process could be made for it, and else 126.
fn code_of_start(errno: Errno) -> u8 {
    match errno {
        Errno::NOENT => 127,
        Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM => Failure::BEFORE_COMMAND,
        _ => 126,
    }
}

/// The exit code that a shell has for a status.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or(signal.map(|signal| 128 + signal)).unwrap_or(125)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(code_of_start(errno), code, "{errno}");
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
