//! `run`.

mod child;
mod guardian;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bakery_lock::{LockClient, LockError, LockGuard};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use scylla::client::session::Session;
use tokio::time::{Instant, sleep};

use self::child::Child;
use self::guardian::code_of;
pub(super) use self::guardian::{GuardianOptions, guard};
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::options::{duration, lock_name, timeout};
use crate::outage::explained;
use crate::output::{self, visible};
use crate::signals::PassedOn;

/// How often the child's guardian is told until when the lock is held, as a share of the TTL.
const TOLD_PER_TTL: u32 = 20;

/// Longer than any lock is waited for.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command, and releases the lock when the command ends. The lock is
/// renewed meanwhile. If it is lost, the command and all processes of its group are ended before
/// another client may hold the lock: by TERM, and by KILL after --kill-after. That is also true if
/// lockctl itself is killed or stopped. A process that leaves the group, as a daemon does, is not
/// ended.
///
/// The command finds `LOCK_NAME`, `LOCK_TOKEN` (the fencing token; none with --max-holders) and
/// `LOCK_DEADLINE` (until when the lock is held if it is not renewed, in milliseconds since 1970)
/// in its environment. Signals INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to its group.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct RunOptions {
    /// What is locked
    #[arg(value_parser = lock_name)]
    name: String,

    /// The command and its arguments; use `sh -c` for a shell's syntax
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,

    /// Don't wait if another client holds the lock
    #[arg(short = 'n', long, conflicts_with = "wait")]
    nonblock: bool,

    /// How long to wait for the lock [default: as long as it takes]
    #[arg(short = 'w', long, value_name = "TIME", value_parser = timeout)]
    wait: Option<Duration>,

    /// Share the lock with others that share it
    #[arg(short = 's', long, conflicts_with = "max_holders")]
    shared: bool,

    /// Hold the lock together with others, with at most so many holders
    #[arg(long, value_name = "N")]
    max_holders: Option<u32>,

    /// How long the lock's rows live without renewal: whole seconds, 5 at least. A machine that
    /// crashes blocks the lock for so long
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    ttl: Duration,

    /// How long the command may hold the lock; after that and the same time again, 60s at least,
    /// the lock is lost
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_hold: Option<Duration>,

    /// How long the lock stays taken at least, also if the command ends before: for jobs that
    /// several machines start by their own clocks
    #[arg(long, value_name = "TIME", value_parser = duration)]
    min_hold: Option<Duration>,

    /// What happens to the command when the lock is lost
    #[arg(long, value_name = "ACTION", value_enum, default_value = "kill")]
    on_lost: OnLost,

    /// The time from TERM to KILL when the lock is lost
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    kill_after: Duration,

    /// Exit with this code if the lock was not obtained
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = CONFLICT)]
    conflict_exit_code: u8,

    /// The name under which this host is registered [default: this machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Register the host if it is missing
    #[arg(long)]
    register_host: bool,

    /// What others see of this holder besides host and process [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Tell how long the lock was waited for
    #[arg(short = 'v', long)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLost {
    /// It is ended.
    Kill,
    /// It goes on, and a warning is printed.
    Warn,
}

const CONFLICT: u8 = 75;
const LOST: u8 = 76;

const RUN_HELP: &str = "\
Examples:
  lockctl run backup -- tar czf /backup/home.tgz /home
  lockctl run -n hourly -- ./job.sh || echo 'another machine does it'
  lockctl run -w 30s --max-hold 10m reports -- sh -c 'make > report.log'
  lockctl run --max-holders 3 transcode -- ./transcode.sh

Exit codes:
  that of the command, or 128 and the number of the signal that ended it
  75   the lock was not obtained: it is held, or waiting took too long (see -E)
  76   the lock was lost while the command ran
  69   the database can't be reached, refuses the login, or did not answer in time
  125  something else failed before the command ran
  126  the command can't be run
  127  the command was not found";

/// Runs a command under a lock, and returns the exit code.
pub(super) async fn run(connection: &ConnectOptions, options: &RunOptions) -> Result<u8, Failure> {
    // Before anything is waited for: a signal while the lock is waited for withdraws the request.
    let mut signals = PassedOn::new()?;
    let (client, guard) = match options.obtain(connection, &mut signals).await {
        Ok(Some(obtained)) => obtained,
        Ok(None) => return Ok(options.conflict_exit_code),
        Err(failure) => return Err(failure.before_a_command()),
    };
    let code = options.hold(guard, &mut signals).await;
    shut_down(&client).await;
    code.map_err(Failure::before_a_command)
}

impl RunOptions {
    /// The lock, and the client that keeps it; `None` if others have it.
    async fn obtain(
        &self,
        connection: &ConnectOptions,
        signals: &mut PassedOn,
    ) -> Result<Option<(LockClient, LockGuard)>, Failure> {
        let session = Arc::new(signals.or(connection.connect()).await?);
        let build = Box::pin(self.client(&session, connection));
        let client = signals.or(explained(&session, connection, build)).await?;
        let began = Instant::now();
        let acquired = signals.or(self.acquire(&client)).await;
        let waited = began.elapsed();
        let name = visible(&self.name);
        match acquired {
            Ok(Some(guard)) => {
                if self.verbose {
                    output::note(&format!("lockctl: obtained {name} after {waited:.3?}"));
                }
                Ok(Some((client, guard)))
            }
            Ok(None) => {
                shut_down(&client).await;
                Ok(None)
            }
            Err(failure) => {
                shut_down(&client).await;
                Err(failure)
            }
        }
    }

    async fn client(
        &self,
        session: &Arc<Session>,
        connection: &ConnectOptions,
    ) -> Result<LockClient, Failure> {
        let ConnectOptions { keyspace, lock_table, consistency, .. } = connection;
        let builder = LockClient::builder(Arc::clone(session), keyspace)
            .consistency(consistency.clone())
            .lock_table(lock_table)
            .register_host(self.register_host)
            .ttl(self.ttl);
        let builder = match &self.host {
            Some(host) => builder.host(host),
            None => builder,
        };
        Ok(builder.build().await?)
    }

    /// The lock; `None` if others have it, after a note that says who.
    async fn acquire(&self, client: &LockClient) -> Result<Option<LockGuard>, Failure> {
        let program = self.command[0].to_string_lossy();
        let label = self.label.clone().unwrap_or_else(|| program.into_owned());
        let mut request = client.request(&self.name).label(label);
        request = request.timeout(self.wait.unwrap_or(FOR_EVER));
        if self.shared {
            request = request.shared();
        }
        if let Some(holders) = self.max_holders {
            request = request.max_holders(holders);
        }
        if let Some(max_hold) = self.max_hold {
            request = request.max_hold(max_hold);
        }
        if let Some(min_hold) = self.min_hold {
            request = request.min_hold(min_hold);
        }
        let acquired = if self.nonblock {
            request.try_acquire().await
        } else {
            request.acquire().await.map(Some)
        };
        match acquired {
            Ok(None) => {
                output::note(&format!("lockctl: {} is held", visible(&self.name)));
                Ok(None)
            }
            Err(error @ LockError::TimedOut { cause: None, .. }) => {
                output::report("lockctl", &error);
                Ok(None)
            }
            acquired => Ok(acquired?),
        }
    }

    /// Runs the command while the lock is held.
    async fn hold(&self, guard: LockGuard, signals: &mut PassedOn) -> Result<u8, Failure> {
        let environment = self.environment(&guard).await?;
        let lenient = self.on_lost == OnLost::Warn;
        let held_for = guard.remaining();
        let spawned =
            Child::spawn(&self.command, &environment, held_for, self.kill_after(), lenient);
        let mut child = spawned?;
        let mut lost = pin!(guard.lost());
        let mut loss = None;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                signal = signals.next() => child.signal(signal),
                reason = &mut lost, if loss.is_none() => {
                    loss = reason;
                    if !lenient {
                        child.abandon();
                    }
                    if let Some(reason) = &loss {
                        let name = visible(&self.name);
                        output::warn(&format!("{name} is lost while the command runs: {reason}"));
                    }
                }
                () = sleep(self.ttl / TOLD_PER_TTL), if loss.is_none() => {
                    child.tell(guard.remaining());
                }
            }
        };
        self.conclude(guard, &child, status).await
    }

    /// Releases the lock of a command that has ended, and returns the exit code.
    async fn conclude(
        &self,
        guard: LockGuard,
        child: &Child,
        status: ExitStatus,
    ) -> Result<u8, Failure> {
        // If the guardian was killed, the command may be left.
        if status.signal().is_some() {
            child.signal(Signal::KILL);
        }
        if !guard.state().is_held() || child.ran_out_of_time(self.kill_after()) {
            return Ok(LOST);
        }
        if let Err(error) = guard.unlock().await {
            // It expires by itself.
            output::report("lockctl: the command has ended", &error);
        }
        Ok(code_of(status))
    }

    /// What the command finds in its environment.
    async fn environment(&self, guard: &LockGuard) -> Result<Vec<(&'static str, String)>, Failure> {
        let mut environment = vec![("LOCK_NAME", self.name.clone())];
        if self.max_holders.is_none() {
            let token =
                guard.fencing_token().await.map_err(|error| Failure::No(Box::new(error)))?;
            environment.push(("LOCK_TOKEN", token.value().to_string()));
        }
        let deadline = SystemTime::now() + guard.remaining();
        let deadline = deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
        environment.push(("LOCK_DEADLINE", deadline.as_millis().to_string()));
        Ok(environment)
    }

    /// The time from TERM to KILL. A renewal is due at a third of the TTL, and has as long; a
    /// command must not be asked to end before that.
    fn kill_after(&self) -> Duration {
        self.kill_after.min(self.ttl.saturating_sub(Duration::from_secs(2)) / 4)
    }
}

/// Ends the client; what is not released by then expires.
async fn shut_down(client: &LockClient) {
    if let Err(error) = client.shutdown().await {
        output::warn(&error.to_string());
    }
}
