//! The command, behind its guardian.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};
use std::time::Duration;

use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use super::channel::{self, Channel, Order, Report};
use super::descendants::{adopt, descendants, kill, reap};
use crate::lockctl::process::{boot_time, pid_of, this_program};
use crate::output::{self, visible};
use crate::signals::Received;

/// How a command is treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How long the lock is held, as last known.
    pub(super) held_for: Duration,
    /// The time from TERM to KILL.
    pub(super) kill_after: Duration,
    /// Whether it continues without the lock.
    pub(super) lenient: bool,
    /// Whether processes that it leaves are left.
    pub(super) detach: bool,
}

/// The command and its guardian.
pub(super) struct Child {
    /// What is started, as it is shown.
    program: String,
    guardian: process::Child,
    channel: Channel<Order, Report>,
    /// Whether the guardian may still say something.
    is_open: bool,
    /// A child has ended.
    ended: unix::Signal,
    /// How the guardian ended.
    status: Option<ExitStatus>,
    /// Children that this process had before: those of a shell that it took the place of.
    others: Vec<Pid>,
    is_out_of_time: bool,
}

impl Child {
    /// Starts a command.
    pub(super) fn spawn(
        command: &[OsString],
        environment: &[(&str, String)],
        terms: Terms,
    ) -> io::Result<Self> {
        let Terms { held_for, kill_after, lenient, detach } = terms;
        // If the guardian is killed, its descendants are ended here.
        adopt()?;
        let ended = unix::signal(SignalKind::child())?;
        let others = descendants(&[]);
        let (channel, theirs) = channel::pair(boot_time() + held_for)?;
        let mut guardian = Command::new(this_program()?);
        guardian.arg0("lockctl").arg("guardian").stdin(theirs).process_group(0);
        guardian.arg("--kill-after").arg(format!("{}ms", kill_after.as_millis()));
        guardian.args(lenient.then_some("--lenient")).args(detach.then_some("--detach"));
        guardian.arg(format!("--group={}", group_of_this_process()?));
        guardian.arg("--").args(command).envs(environment.iter().cloned());
        let program = visible(&command[0].to_string_lossy());
        let guardian = guardian.spawn()?;
        Ok(Child {
            program,
            guardian,
            channel,
            is_open: true,
            ended,
            status: None,
            others,
            is_out_of_time: false,
        })
    }

    /// Says that the lock is held for so long from now on.
    pub(super) fn tell(&mut self, held_for: Duration) {
        self.channel.send(Order::HeldUntil(boot_time() + held_for));
    }

    /// Whether the guardian ended the command because the lock was not renewed in time.
    pub(super) fn ran_out_of_time(&self) -> bool {
        self.is_out_of_time
    }

    /// Has the command ended, because the lock is lost or revoked.
    pub(super) fn end(&mut self) {
        self.send_at_once(Order::End);
    }

    /// Passes a signal on to all processes of the command.
    pub(super) fn pass_on(&mut self, received: Received) {
        self.send_at_once(Order::PassOn(received));
    }

    /// Sends an order that does not wait until a guardian that somebody stopped is continued.
    fn send_at_once(&mut self, order: Order) {
        self.channel.send(order);
        if let Some(guardian) = pid_of(&self.guardian) {
            // If it has ended meanwhile, nothing is left to say.
            let _ = kill_process(guardian, Signal::CONT);
        }
    }

    /// Waits until the command has ended, and all processes that its guardian waits for. Takes
    /// note of what the guardian reports meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: how the guardian ended and what it said is kept.
    pub(super) async fn wait(&mut self) -> ExitStatus {
        loop {
            self.reap();
            tokio::select! {
                report = self.channel.next(), if self.is_open => match report {
                    Some(report) => self.note(report),
                    None => self.is_open = false,
                },
                _ = self.ended.recv(), if self.status.is_none() => {}
                else => break,
            }
        }
        self.status.expect("the guardian has ended")
    }

    /// Removes children that have ended.
    fn reap(&mut self) {
        let guardian = pid_of(&self.guardian);
        reap(|pid, status| {
            if Some(pid) == guardian {
                self.status = Some(status);
            }
        });
    }

    /// Kills all processes of a command whose guardian was killed: they have become descendants of
    /// this process.
    pub(super) async fn kill(&mut self) {
        const INTERVAL: Duration = Duration::from_millis(10);
        while !descendants(&self.others).is_empty() {
            kill(&self.others);
            self.reap();
            sleep(INTERVAL).await;
        }
    }

    fn note(&mut self, report: Report) {
        let program = &self.program;
        match report {
            Report::NotStarted(errno) => output::report(program, &io::Error::from(errno)),
            Report::Leaves(count) => {
                let them = match count {
                    1 => "one process that it started is still running".to_owned(),
                    _ => format!("{count} processes that it started are still running"),
                };
                output::note(&format!(
                    "lockctl: {program} has ended; {them}, and the lock is held until all end (see \
                     --detach)"
                ));
            }
            Report::OutOfTime => self.is_out_of_time = true,
            Report::NotPermitted(pid) => {
                output::warn(&format!(
                    "process {pid} of the command can't be ended: it belongs to \
                                       another user"
                ));
            }
        }
    }
}

/// The process group of this process; 0 if it is one of another PID namespace.
fn group_of_this_process() -> io::Result<i32> {
    let stat = Process::myself().and_then(|process| process.stat());
    stat.map(|stat| stat.pgrp).map_err(io::Error::other)
}
