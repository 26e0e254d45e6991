//! `run`.

use std::ffi::OsString;
use std::time::Duration;

use bakery_lock::{FencingToken, LockClient, LockError, LockGuard};
use clap::Args;
use serde_json::json;
use tokio::time::Instant;

use super::NAME;
use super::command::{Ended, HolderOptions, LOST, tell_service_manager};
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::host::shut_down;
use crate::options::{duration, lock_name, timeout};
use crate::outage::explained;
use crate::output::{self, visible};
use crate::signals::Signals;

/// Longer than any lock is waited for.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command, and releases the lock when the command and all processes
/// that it started have ended, also those in the background. The lock is renewed meanwhile. If it
/// is lost or revoked, all of them are ended before another client may hold the lock: by TERM, and
/// by KILL after --kill-after. That is also true if lockctl itself is killed or stopped.
///
/// The command finds `LOCK_NAME`, `LOCK_TOKEN` (the fencing token; none with --max-holders) and
/// `LOCK_DEADLINE` (until when the lock is held if it is not renewed, in milliseconds since 1970)
/// in its environment. Signals INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to all of its
/// processes, but for those that lockctl was started to ignore. At a terminal the command is in
/// the foreground if lockctl is; while a key has stopped both, the lock is not renewed.
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

    /// How long to wait for the lock [env: `BAKERY_LOCK_ACQUIRE_TIMEOUT`]
    /// [default: as long as it takes]
    #[arg(short = 'w', long, value_name = "TIME", value_parser = timeout)]
    wait: Option<Duration>,

    /// Share the lock with others that share it
    #[arg(short = 's', long, conflicts_with = "max_holders")]
    shared: bool,

    /// Hold the lock together with others, with at most this many holders
    #[arg(long, value_name = "N")]
    max_holders: Option<u32>,

    /// How long the command may hold the lock; after that and the same time again, 60s at least,
    /// the lock is lost
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_hold: Option<Duration>,

    /// How long the lock stays taken at least, also if the command ends before: for jobs that
    /// several machines start by their own clocks
    #[arg(long, value_name = "TIME", value_parser = duration)]
    min_hold: Option<Duration>,

    /// Exit with this code if the lock was not obtained
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = CONFLICT)]
    conflict_exit_code: u8,

    /// Exit with 0 if the lock was not obtained: for jobs that one of several machines must do
    #[arg(long, conflicts_with = "conflict_exit_code")]
    skip_ok: bool,

    /// Print a JSON object in a line to standard error at the end, with `name`, `outcome` (done,
    /// skipped, lost or failed), `reason`, `waited_seconds`, `held_seconds`, `token` and
    /// `exit_code`
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    holder: HolderOptions,

    /// Print what is connected to, and how long the lock was waited for
    #[arg(short = 'v', long)]
    verbose: bool,
}

const CONFLICT: u8 = 75;

const RUN_HELP: &str = "\
Examples:
  lockctl run backup -- tar czf /backup/home.tgz /home
  lockctl run -n --skip-ok --min-hold 30s hourly -- ./job.sh
  lockctl run -w 30s --max-hold 10m reports -- sh -c 'make > report.log'
  lockctl run --max-holders 3 transcode -- ./transcode.sh

Exit codes:
  that of the command, or 128 and the number of the signal that ended it
  75   the lock was not obtained: it is held, or waiting took too long (see -E)
  76   the lock was lost or revoked while the command ran
  69   the database can't be reached, refuses the login, or did not answer in time
  125  lockctl itself failed: invalid arguments, or anything else
  126  the command can't be run
  127  the command was not found";

/// Runs a command under a lock, and returns the exit code.
pub(super) async fn run(connection: &ConnectOptions, options: &RunOptions) -> Result<u8, Failure> {
    let mut report = Report { name: options.name.clone(), ..Report::default() };
    let code = options.run(connection, &mut report).await;
    if !options.json {
        return code;
    }
    report.code = code.unwrap_or_else(|failure| {
        let failure = failure.before_a_command();
        output::report(NAME, &failure);
        (report.outcome, report.reason) = ("failed", Some(output::chain(&failure)));
        failure.code()
    });
    output::note(&report.line());
    Ok(report.code)
}

/// What `--json` prints. Lock and command may not have come to it.
#[derive(Debug, Default)]
struct Report {
    name: String,
    outcome: &'static str,
    reason: Option<String>,
    waited: Option<Duration>,
    held: Option<Duration>,
    token: Option<FencingToken>,
    code: u8,
}

impl Report {
    fn line(&self) -> String {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        json!({
            "name": self.name,
            "outcome": self.outcome,
            "reason": self.reason,
            "waited_seconds": seconds(self.waited),
            "held_seconds": seconds(self.held),
            "token": self.token.map(FencingToken::value),
            "exit_code": self.code,
        })
        .to_string()
    }
}

impl RunOptions {
    async fn run(&self, connection: &ConnectOptions, report: &mut Report) -> Result<u8, Failure> {
        // Before anything is waited for: a signal while the lock is waited for withdraws the
        // request.
        let mut signals = Signals::passed_on()?;
        let database = signals.or(connection.connect_with_note(self.verbose)).await?;
        let build = Box::pin(self.holder.client(&database, connection));
        let client = signals.or(explained(&database, connection, build)).await?;
        let code = self.run_with(connection, &client, &mut signals, report).await;
        shut_down(&client).await;
        code
    }

    /// Waits for the lock, runs the command, and releases the lock.
    async fn run_with(
        &self,
        connection: &ConnectOptions,
        client: &LockClient,
        signals: &mut Signals,
        report: &mut Report,
    ) -> Result<u8, Failure> {
        let began = Instant::now();
        let acquired = signals.or(self.acquire(connection, client)).await;
        let waited = began.elapsed();
        report.waited = Some(waited);
        let Some(guard) = acquired? else {
            report.outcome = "skipped";
            report.reason = Some("it is held".to_owned());
            return Ok(if self.skip_ok { 0 } else { self.conflict_exit_code });
        };
        let name = visible(&self.name);
        if self.verbose {
            output::note(&format!("lockctl: obtained {name} after {waited:.3?}"));
        }
        tell_service_manager(&format!("holds {name}"));
        self.hold(connection, guard, signals, report).await
    }

    /// The lock; `None` if others have it, after a note that says who.
    async fn acquire(
        &self,
        connection: &ConnectOptions,
        client: &LockClient,
    ) -> Result<Option<LockGuard>, Failure> {
        let mut request = client.request(&self.name).label(self.holder.label(&self.command));
        let wait = self.wait.or(connection.settings.acquire_timeout);
        request = request.timeout(wait.unwrap_or(FOR_EVER));
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

    /// Runs the command while the lock is held, releases the lock, and returns the exit code.
    async fn hold(
        &self,
        connection: &ConnectOptions,
        guard: LockGuard,
        signals: &mut Signals,
        report: &mut Report,
    ) -> Result<u8, Failure> {
        let with_token = self.max_holders.is_none();
        let began = Instant::now();
        let run = self.holder.run(connection, &guard, with_token, &self.command, signals).await?;
        report.token = run.token;
        report.held = Some(began.elapsed());
        let code = match run.ended {
            Ended::Held(code) => code,
            Ended::Lost { why, .. } => {
                (report.outcome, report.reason) = ("lost", Some(why));
                return Ok(LOST);
            }
        };
        report.outcome = "done";
        if let Err(error) = guard.unlock().await {
            // It expires by itself.
            output::report("lockctl: the command has ended", &error);
        }
        Ok(code)
    }
}
