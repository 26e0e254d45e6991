//! `selftest`.

mod acquisition;
mod check;
mod report;
mod run;
mod worker;
mod workers;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use bakery_lock::{LockClient, TableError};
use clap::Args;

use self::report::{Report, RowLeft};
use self::run::Run;
use self::worker::LoadOptions;
pub(super) use self::worker::{WorkerOptions, work};
use crate::connect::{ConnectOptions, Database};
use crate::failure::Failure;
use crate::host::{HostOptions, not_built, shut_down};
use crate::options::timeout;
use crate::outage::explained;
use crate::output;
use crate::signals::Signals;

/// The names that `selftest` locks begin with this.
const PREFIX: &str = "lockctl-selftest::";

/// Check on this cluster that the lock keeps its promises
///
/// Starts several processes that take locks of their own names for some minutes, and checks what
/// they saw: no two hold a lock at one time; fencing tokens grow from holder to holder; callers of
/// one process are granted in the order in which they asked, and a process that waits with a ticket
/// goes before those that come later; every try to get a lock ends; no row is left.
///
/// Run it on a new cluster before services rely on it, or while nodes are restarted or fail: tries
/// that time out or fail meanwhile are counted, and are no violation. Run it on several machines at
/// once for more load; each run checks its own names.
///
/// The names begin with `lockctl-selftest::` and a random part, so no other lock is touched. Each
/// name leaves one cell in the table, its last token, which expires after 30 days. The history of
/// the run is kept in memory: some hundred bytes for each grant.
#[derive(Clone, Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub(super) struct SelftestOptions {
    /// How many processes take locks
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    processes: u16,

    /// For how long, at most 1h (60m)
    #[arg(long = "for", value_name = "TIME", value_parser = length, default_value = "2m")]
    length: Duration,

    #[command(flatten)]
    load: LoadOptions,

    /// Take names and times by chance from this number; the same number makes the same choices
    /// [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    host: HostOptions,

    /// Print JSON: an object with `run`, `names`, `seed`, `seconds`, `processes`, `callers`,
    /// `tries` (by how they ended), `waits_ms` (`median`, `p99`, `max`), `compared`, `violations`,
    /// `failures`, `errors`, and `interrupted`
    #[arg(long)]
    json: bool,
}

const VERIFY_HELP: &str = "\
Examples:
  lockctl selftest
  lockctl selftest --for 10m --processes 8 --names 16
  lockctl selftest --peers --names 1 --for 30s
  lockctl selftest --json | jq '.violations | length'

Exit codes:
  0    no violation
  1    a process died, no lock was granted, or something else kept it from checking
  2    invalid arguments; nothing was sent
  3    the database can't be reached, refuses the login, or did not answer in time
  4    the lock broke a promise: a violation was found
  130  it was ended by Ctrl-C (INT), 143 by TERM; the report is of what was done until then";

/// The exit code of a run with a violation.
const VIOLATION: u8 = 4;

/// Parses the time for which locks are taken.
fn length(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(60 * 60);
    match timeout(text)? {
        length if length > MAX => Err("use 60m or less: its history is kept in memory".to_owned()),
        length => Ok(length),
    }
}

/// A name of a run.
fn name(run: &str, number: u16) -> String {
    format!("{PREFIX}{run}::{number}")
}

/// Lets processes take locks, and checks what they saw.
pub(super) async fn selftest(
    connection: &ConnectOptions,
    options: &SelftestOptions,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::that_end()?;
    let database = signals.or(connection.connect()).await?;
    // What keeps this client from being built would keep all processes from it.
    let build = Box::pin(options.client(&database, connection));
    let client = signals.or(explained(&database, connection, build)).await?;
    let verified = options.run(connection, &client, &mut signals).await;
    shut_down(&client).await;
    let report = verified?;
    if options.json {
        output::print_json(&report.json())?;
    } else {
        output::print(&report.text())?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

impl SelftestOptions {
    async fn client(
        &self,
        database: &Database,
        connection: &ConnectOptions,
    ) -> Result<LockClient, Failure> {
        let builder = self.host.builder(database, connection, self.load.ttl);
        builder.build().await.map_err(not_built)
    }

    async fn run(
        &self,
        connection: &ConnectOptions,
        client: &LockClient,
        signals: &mut Signals,
    ) -> Result<Report, Failure> {
        let mut run = Run::start(connection, self)?;
        let ended = signals.or(run.take_locks(self.length)).await;
        let interrupted = match ended {
            Ok(()) => None,
            Err(Failure::Interrupted { signal }) => Some(signal),
            Err(failure) => return Err(failure),
        };
        run.end(self.load.hold + 3 * connection.timeout, signals).await;
        let rows_left = rows_left(client, &run).await;
        Ok(Report { options: self.clone(), run, rows_left, interrupted })
    }
}

/// The rows that processes left which ended in good order: those of others expire.
async fn rows_left(client: &LockClient, run: &Run) -> Result<Vec<RowLeft>, TableError> {
    let dead: BTreeSet<u32> = run.dead.iter().map(|process| run.pid(*process)).collect();
    let mut left = Vec::new();
    for number in 1..=run.names {
        for contender in client.contenders(&name(&run.id, number)).await? {
            let owner = &contender.owner;
            if owner.pid().is_none_or(|pid| !dead.contains(&pid)) {
                left.push(RowLeft { name: number, owner: owner.as_str().to_owned() });
            }
        }
    }
    Ok(left)
}
