//! A command that runs while a lock is held: what `run` and `elect` share.

mod channel;
mod child;
mod descendants;
mod guardian;
mod watch;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bakery_lock::{ExpiringReason, FencingToken, GuardState, LockClient, LockHandle, LostReason};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use sd_notify::NotifyState;
use tokio::time::sleep;

use self::child::{Child, Terms};
use self::guardian::code_of;
pub(super) use self::guardian::{GuardianOptions, guard};
use crate::connect::{ConnectOptions, Database};
use crate::failure::Failure;
use crate::host::{HostOptions, not_built};
use crate::options::duration;
use crate::output::{self, visible};
use crate::signals::Signals;

/// The exit code when the lock was lost while the command ran.
pub(super) const LOST: u8 = 76;

/// The TTL unless option or environment say otherwise.
const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How often the child's guardian learns until when the lock is held, as a share of the TTL.
const TOLD_PER_TTL: u32 = 20;

/// Why a command is ended whose lock is held still.
const NOT_RENEWED: &str = "was not renewed in time, so the command was ended before its lease";

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

    /// Release the lock when the command itself ends, even if processes that it started are still
    /// running
    #[arg(long)]
    detach: bool,

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
    /// It continues, and a warning is printed.
    Warn,
}

/// A run of a command that has ended.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) ended: Ended,
    /// The fencing token of its lock; holders that share or limit a lock have none.
    pub(super) token: Option<FencingToken>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this exit code, while the lock was held.
    Held(u8),
    /// The lock was lost or revoked while it ran.
    Lost {
        /// The last signal that it was asked to end by.
        asked: Option<Signal>,
        why: String,
    },
}

impl HolderOptions {
    /// A client that takes locks for a command.
    pub(super) async fn client(
        &self,
        database: &Database,
        connection: &ConnectOptions,
    ) -> Result<LockClient, Failure> {
        let builder = self.host.builder(database, connection, self.ttl);
        builder.build().await.map_err(not_built)
    }

    /// What others see of the holder.
    pub(super) fn label(&self, command: &[OsString]) -> String {
        self.label.clone().unwrap_or_else(|| end_of(&command[0].to_string_lossy()))
    }

    /// Runs a command until it ends; if the lock is lost or revoked before, it is ended in time. A
    /// revoked lock is still held then.
    ///
    /// Whether it has a token is up to `with_token`: holders that share or limit a lock have none.
    pub(super) async fn run(
        &self,
        connection: &ConnectOptions,
        lock: &LockHandle,
        with_token: bool,
        command: &[OsString],
        signals: &mut Signals,
    ) -> Result<Run, Failure> {
        let token = token(lock, with_token).await?;
        let environment = environment(lock, token);
        let ttl = self.ttl.or(connection.settings.ttl).unwrap_or(TTL_DEFAULT);
        let lenient = self.on_lost == OnLost::Warn;
        let terms = Terms {
            held_for: lock.remaining(),
            kill_after: self.kill_after(ttl),
            lenient,
            detach: self.detach,
        };
        let mut child = Child::spawn(command, &environment, terms)
            .map_err(Failure::system("the command's guardian can't be started"))?;
        let (mut expiring, mut lost) = (pin!(lock.expiring()), pin!(lock.lost()));
        let mut is_watched = true;
        let (mut revoked, mut loss, mut asked) = (None, None, None);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                received = signals.next() => {
                    if ![Signal::USR1, Signal::USR2].contains(&received.signal) {
                        asked = Some(received.signal);
                    }
                    child.pass_on(received);
                }
                reason = &mut expiring, if is_watched => {
                    is_watched = false;
                    if let Some(reason) = reason {
                        warn_of_end(lock, &reason);
                        // After a hold limit it has its grace.
                        if !lenient && reason != ExpiringReason::HoldLimit {
                            child.end();
                            revoked = Some(reason);
                        }
                    }
                }
                reason = &mut lost, if loss.is_none() => {
                    loss = reason;
                    if !lenient {
                        child.end();
                    }
                    warn_of_loss(lock, loss.as_ref());
                }
                () = sleep(ttl / TOLD_PER_TTL), if loss.is_none() => {
                    child.tell(lock.remaining());
                }
            }
        };
        if status.signal().is_some() {
            output::warn("the command's guardian was killed, so the command is ended");
            child.kill().await;
        }
        let is_held = lock.state().is_held();
        if is_held && revoked.is_none() && !child.ran_out_of_time() {
            return Ok(Run { ended: Ended::Held(code_of(status)), token });
        }
        let why = match (revoked, loss) {
            (Some(reason), _) if is_held => reason.to_string(),
            (_, Some(reason)) => reason.to_string(),
            // The guardian may end the command a moment before the loss is known here, or without
            // one.
            _ => {
                let reason = match lock.state() {
                    state if state.is_held() => foreseen(&state),
                    _ => lost.await,
                };
                warn_of_loss(lock, reason.as_ref());
                reason.map_or_else(|| NOT_RENEWED.to_owned(), |reason| reason.to_string())
            }
        };
        Ok(Run { ended: Ended::Lost { asked, why }, token })
    }

    /// The time from TERM to KILL. A renewal is due at a third of the TTL, and has as long; a
    /// command must not be asked to end before that.
    fn kill_after(&self, ttl: Duration) -> Duration {
        self.kill_after.min(ttl.saturating_sub(Duration::from_secs(2)) / 4)
    }
}

/// Notifies the service manager that the lock is held, with a status: systemd, for a unit of the
/// type `notify`. Without one nothing is sent.
pub(super) fn tell_service_manager(status: &str) {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]) {
        output::warn(&format!(
            "the service manager could not be notified that the lock is held: {error}"
        ));
    }
}

/// Why a lock that is still held would soon have been lost; `None` if its renewal was late.
fn foreseen(state: &GuardState) -> Option<LostReason> {
    let by_limit = matches!(state, GuardState::Expiring { reason: ExpiringReason::HoldLimit, .. });
    by_limit.then_some(LostReason::HoldLimit)
}

/// Says why the lock must be released soon.
fn warn_of_end(lock: &LockHandle, reason: &ExpiringReason) {
    let name = visible(lock.name());
    output::warn(&format!("{name} must be released while the command runs: {reason}"));
}

/// Says why the command ends, or continues without the lock.
fn warn_of_loss(lock: &LockHandle, reason: Option<&LostReason>) {
    let name = visible(lock.name());
    output::warn(&match reason {
        Some(reason) => format!("{name} is lost while the command runs: {reason}"),
        None => format!("{name} {NOT_RENEWED}"),
    });
}

/// The end of a command's path, short enough for a label.
fn end_of(path: &str) -> String {
    const CHARS_MAX: usize = 128;
    path.chars().skip(path.chars().count().saturating_sub(CHARS_MAX)).collect()
}

/// The token of a lock that has one.
async fn token(lock: &LockHandle, has_one: bool) -> Result<Option<FencingToken>, Failure> {
    if !has_one {
        return Ok(None);
    }
    lock.fencing_token().await.map(Some).map_err(|error| Failure::No(Box::new(error)))
}

/// What the command finds in its environment.
fn environment(lock: &LockHandle, token: Option<FencingToken>) -> Vec<(&'static str, String)> {
    let deadline = SystemTime::now() + lock.remaining();
    let deadline = deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
    let token = token.map(|token| ("LOCK_TOKEN", token.value().to_string()));
    let others = [
        ("LOCK_NAME", lock.name().to_owned()),
        ("LOCK_DEADLINE", deadline.as_millis().to_string()),
    ];
    others.into_iter().chain(token).collect()
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

    #[test]
    fn long_path_of_a_command_is_cut_to_a_label() {
        assert_eq!(end_of("/usr/bin/backup"), "/usr/bin/backup");
        let long = format!("{}/backup", "/\u{e4}".repeat(2_000));
        assert_eq!(end_of(&long), format!("{}/backup", "\u{e4}/".repeat(60) + "\u{e4}"));
    }
}
