//! A command that runs while a lock is held: what `run` and `elect` share.

mod channel;
mod child;
mod guardian;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bakery_lock::{ExpiringReason, GuardState, LockClient, LockHandle, LostReason};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use scylla::client::session::Session;
use tokio::time::sleep;

use self::child::Child;
use self::guardian::code_of;
pub(super) use self::guardian::{GuardianOptions, guard};
use super::host::{HostOptions, not_built};
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::options::duration;
use crate::output::{self, visible};
use crate::signals::PassedOn;

/// The exit code when the lock was lost while the command ran.
pub(super) const LOST: u8 = 76;

/// The TTL unless option or environment say otherwise.
const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How often the child's guardian is told until when the lock is held, as a share of the TTL.
const TOLD_PER_TTL: u32 = 20;

/// What fails where the end of a command can't be known.
const UNKNOWN_END: &str = "the command can't be waited for";

/// How a command's lock is held.
#[derive(Clone, Debug, Args)]
pub(super) struct HolderOptions {
    /// How long the lock's rows live without renewal: whole seconds, 5 at least. A machine that
    /// crashes blocks the lock for that long [env: `BAKERY_LOCK_TTL`] [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,

    /// What happens to the command when the lock is lost or revoked
    #[arg(long, value_name = "ACTION", value_enum, default_value = "kill")]
    on_lost: OnLost,

    /// The time from TERM to KILL when the lock is lost or revoked
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    kill_after: Duration,

    #[command(flatten)]
    host: HostOptions,

    /// What others see of this holder besides host and process [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLost {
    /// It is ended.
    Kill,
    /// It goes on, and a warning is printed.
    Warn,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this exit code, while the lock was held.
    Held(u8),
    /// The lock was lost or revoked while it ran. The signal is the last one that it was asked to
    /// end by.
    Lost { asked: Option<Signal> },
}

impl HolderOptions {
    /// A client that takes locks for a command.
    pub(super) async fn client(
        &self,
        session: &Arc<Session>,
        connection: &ConnectOptions,
    ) -> Result<LockClient, Failure> {
        let builder = self.host.builder(session, connection, self.ttl);
        builder.build().await.map_err(not_built)
    }

    /// What others see of the holder.
    pub(super) fn label(&self, command: &[OsString]) -> String {
        self.label.clone().unwrap_or_else(|| command[0].to_string_lossy().into_owned())
    }

    /// Runs a command until it ends; if the lock is lost or revoked before, it is ended in time. A
    /// revoked lock is still held then.
    ///
    /// Whether it has a token is up to `with_token`: holders beside each other have none.
    pub(super) async fn run(
        &self,
        connection: &ConnectOptions,
        lock: &LockHandle,
        with_token: bool,
        command: &[OsString],
        signals: &mut PassedOn,
    ) -> Result<Ended, Failure> {
        let environment = environment(lock, with_token).await?;
        let ttl = self.ttl.or(connection.settings.ttl).unwrap_or(TTL_DEFAULT);
        let (lenient, kill_after) = (self.on_lost == OnLost::Warn, self.kill_after(ttl));
        let held_for = lock.remaining();
        let mut child = Child::spawn(command, &environment, held_for, kill_after, lenient)
            .map_err(Failure::system("the command's guardian can't be started"))?;
        let (mut expiring, mut lost) = (pin!(lock.expiring()), pin!(lock.lost()));
        let (mut is_watched, mut is_revoked) = (true, false);
        let (mut loss, mut asked) = (None, None);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(Failure::system(UNKNOWN_END))?,
                signal = signals.next() => {
                    if ![Signal::USR1, Signal::USR2].contains(&signal) {
                        asked = Some(signal);
                    }
                    child.signal(signal);
                }
                reason = &mut expiring, if is_watched => {
                    is_watched = false;
                    if let Some(reason) = reason {
                        warn_of_end(lock, &reason);
                        // After a hold limit it has its grace.
                        is_revoked = !lenient && reason != ExpiringReason::HoldLimit;
                        if is_revoked {
                            child.abandon();
                        }
                    }
                }
                reason = &mut lost, if loss.is_none() => {
                    loss = reason;
                    if !lenient {
                        child.abandon();
                    }
                    warn_of_loss(lock, loss.as_ref());
                }
                () = sleep(ttl / TOLD_PER_TTL), if loss.is_none() => {
                    child.tell(lock.remaining());
                }
            }
        };
        // If the guardian was killed, the command may be left.
        if status.signal().is_some() {
            child.signal(Signal::KILL);
        }
        let is_held = lock.state().is_held();
        if is_held && is_revoked {
            return Ok(Ended::Lost { asked });
        }
        if is_held && !child.ran_out_of_time(kill_after) {
            return Ok(Ended::Held(code_of(status)));
        }
        // The guardian may end the command a moment before the loss is known here, or without one.
        if loss.is_none() {
            let reason = match lock.state() {
                state if state.is_held() => foreseen(&state),
                _ => lost.await,
            };
            warn_of_loss(lock, reason.as_ref());
        }
        Ok(Ended::Lost { asked })
    }

    /// The time from TERM to KILL. A renewal is due at a third of the TTL, and has as long; a
    /// command must not be asked to end before that.
    fn kill_after(&self, ttl: Duration) -> Duration {
        self.kill_after.min(ttl.saturating_sub(Duration::from_secs(2)) / 4)
    }
}

/// Why a lock that is still held would soon have been lost; `None` if its renewal was late.
fn foreseen(state: &GuardState) -> Option<LostReason> {
    let by_limit = matches!(state, GuardState::Expiring { reason: ExpiringReason::HoldLimit, .. });
    by_limit.then_some(LostReason::HoldLimit)
}

/// Says why the lock has to be released soon.
fn warn_of_end(lock: &LockHandle, reason: &ExpiringReason) {
    let name = visible(lock.name());
    output::warn(&format!("{name} must be released while the command runs: {reason}"));
}

/// Says why the command ends, or goes on without the lock.
fn warn_of_loss(lock: &LockHandle, reason: Option<&LostReason>) {
    let name = visible(lock.name());
    output::warn(&match reason {
        Some(reason) => format!("{name} is lost while the command runs: {reason}"),
        None => {
            format!("{name} was not renewed in time, so the command was ended before its lease")
        }
    });
}

/// What the command finds in its environment.
async fn environment(
    lock: &LockHandle,
    with_token: bool,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut environment = vec![("LOCK_NAME", lock.name().to_owned())];
    if with_token {
        let token = lock.fencing_token().await.map_err(|error| Failure::No(Box::new(error)))?;
        environment.push(("LOCK_TOKEN", token.value().to_string()));
    }
    let deadline = SystemTime::now() + lock.remaining();
    let deadline = deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
    environment.push(("LOCK_DEADLINE", deadline.as_millis().to_string()));
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_limit_is_the_reason_for_an_expiring_lock() {
        let remaining = Duration::from_secs(4);
        let expiring =
            foreseen(&GuardState::Expiring { reason: ExpiringReason::HoldLimit, remaining });
        assert_eq!(expiring, Some(LostReason::HoldLimit));
        for state in [GuardState::Held { remaining }, GuardState::AtRisk { remaining }] {
            assert_eq!(foreseen(&state), None, "its renewal was late");
        }
    }
}
