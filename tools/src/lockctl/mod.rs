//! The commands of `lockctl`.

mod bench;
mod command;
mod contender;
mod elect;
mod list;
mod process;
mod progress;
mod repair;
mod revoke;
mod run;
mod selftest;
mod show;
mod spread;
mod status;
mod watch;

use std::process::ExitCode;

use bakery_lock::{LockClient, PeerOptions};
use clap::{Parser, Subcommand};

use crate::completions::{CompletionsOptions, print_completions};
use crate::connect::{ConnectArguments, ConnectOptions, Database};
use crate::failure::Failure;
use crate::host::shut_down;
use crate::man::{ManOptions, write_pages};
use crate::outage::explained;
use crate::signals::Signals;

/// Shows locks, takes them from their holders, and runs commands under them
///
/// Only `run`, `elect`, `selftest` and `bench` take locks, and need a registered host. Showing
/// needs the right to read the keyspace, revoking and repairing also that to change the lock table.
#[derive(Clone, Debug, Parser)]
#[command(name = NAME, version, after_long_help = EXAMPLES)]
pub struct Lockctl {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    connection: ConnectArguments,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    OnCluster(OnCluster),
    Completions(CompletionsOptions),
    #[command(hide = true)]
    Man(ManOptions),
    #[command(hide = true)]
    Guardian(command::GuardianOptions),
}

#[derive(Clone, Debug, Subcommand)]
enum OnCluster {
    Show(show::ShowOptions),
    Watch(watch::WatchOptions),
    List(list::ListOptions),
    Revoke(revoke::RevokeOptions),
    Repair(repair::RepairOptions),
    Status(status::StatusOptions),
    Run(run::RunOptions),
    Elect(elect::ElectOptions),
    Selftest(selftest::SelftestOptions),
    Bench(bench::BenchOptions),
    #[command(hide = true)]
    SelftestWorker(selftest::WorkerOptions),
}

/// The name of the tool.
pub const NAME: &str = "lockctl";

/// The subcommands that run a command and exit with its code.
pub const RUNNERS: &[&str] = &["run", "elect", "guardian"];

const EXAMPLES: &str = "\
Examples:
  See who holds a lock and who waits for it:
    lockctl --nodes db1,db2 show users::snap
  See it again and again, until q is pressed:
    lockctl --nodes db1,db2 watch users::snap
  See all locks in use, or those whose holder seems to be dead:
    lockctl --nodes db1,db2 list
    lockctl --nodes db1,db2 list --overdue
  Ask the holder of a lock to give it up:
    lockctl --nodes db1,db2 revoke users::snap --why 'the import hangs'
  See whether this host gets locks now, as a readiness probe does:
    lockctl --nodes db1,db2 status
  Run a command while holding a lock:
    lockctl --nodes db1,db2 run backup -- tar czf /backup/home.tgz /home
  Run a command on one machine of several, the leader:
    lockctl --nodes db1,db2 elect scheduler -- ./scheduler
  Check on this cluster that the lock keeps its promises:
    lockctl --nodes db1,db2 selftest --for 10m
  Measure what a lock costs on this cluster:
    lockctl --nodes db1,db2 bench
  With a login and TLS:
    BAKERY_LOCK_PASSWORD=... lockctl --nodes db1 --user ops --tls-ca ca.pem list

Exit codes:
  0  done
  1  the answer is no: there is no such holder, or the database refused; NOLOCK
  2  invalid arguments; nothing was sent
  3  the database can't be reached, refuses the login, or did not answer in time
  `lockctl run`, `elect`, `status`, `selftest` and `bench` have others, which their help lists";

/// Runs a command, and returns its exit code.
///
/// INT and TERM end it; `run` and `elect` pass them on, and `selftest` and `bench` print what they
/// have.
///
/// # Errors
///
/// [`Failure`] states what went wrong. `revoke`, `repair` and `run` change rows:
/// [`LockClient::revoke`], [`LockClient::revoke_by_force`], [`LockClient::repair_mark`] and
/// [`LockClient::lock`] document what is left behind.
///
/// # Cancel safety
///
/// As for those functions: repeating the command is safe.
pub async fn run(arguments: Lockctl) -> Result<ExitCode, Failure> {
    let Lockctl { command, connection } = arguments;
    match command {
        Command::Completions(options) => {
            print_completions::<Lockctl>(NAME, &options).map(|()| ExitCode::SUCCESS)
        }
        Command::Man(options) => write_pages::<Lockctl>(&options).map(|()| ExitCode::SUCCESS),
        Command::Guardian(options) => {
            command::guard(&options).await.map(ExitCode::from).map_err(Failure::before_a_command)
        }
        Command::OnCluster(command) => {
            let runs_a_command = command.runs_a_command();
            let done = command.done(connection).await;
            if runs_a_command { done.map_err(Failure::before_a_command) } else { done }
        }
    }
}

impl OnCluster {
    fn runs_a_command(&self) -> bool {
        matches!(self, OnCluster::Run(_))
            || matches!(self, OnCluster::Elect(options) if !options.observes())
    }

    /// Carries it out, and returns its exit code.
    async fn done(self, connection: ConnectArguments) -> Result<ExitCode, Failure> {
        let connection = connection.options()?;
        match self {
            OnCluster::Run(options) => run::run(&connection, &options).await.map(ExitCode::from),
            OnCluster::Elect(options) if options.observes() => {
                observe(&connection, async |client| elect::observe(client, &options).await).await
            }
            OnCluster::Elect(options) => {
                elect::elect(&connection, &options).await.map(ExitCode::from)
            }
            OnCluster::Selftest(options) => selftest::selftest(&connection, &options).await,
            OnCluster::Bench(options) => bench::bench(&connection, &options).await,
            OnCluster::SelftestWorker(options) => selftest::work(&connection, &options).await,
            OnCluster::Status(options) => status::status(&connection, &options).await,
            OnCluster::Show(options) => {
                observe(&connection, async |client| show::show(client, &options).await).await
            }
            OnCluster::Watch(options) => {
                observe(&connection, async |client| watch::watch(client, &options).await).await
            }
            OnCluster::List(options) => {
                observe(&connection, async |client| list::list(client, &options).await).await
            }
            OnCluster::Revoke(options) => {
                observe(&connection, async |client| revoke::revoke(client, &options).await).await
            }
            OnCluster::Repair(options) => {
                observe(&connection, async |client| repair::repair(client, &options).await).await
            }
        }
    }
}

/// Works with a client that takes no locks, until a signal ends that.
async fn observe(
    connection: &ConnectOptions,
    work: impl AsyncFnOnce(&LockClient) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::that_end()?;
    let database = signals.or(connection.connect()).await?;
    let work = Box::pin(async {
        let client = read_only_client(&database, connection).await?;
        let done = work(&client).await;
        // To keepers it was a guest, with a row in the table of peers.
        shut_down(&client).await;
        done
    });
    signals.or(explained(&database, connection, work)).await.map(|()| ExitCode::SUCCESS)
}

/// A client that takes no locks, and asks those that hold one who uses it now.
async fn read_only_client(
    database: &Database,
    connection: &ConnectOptions,
) -> Result<LockClient, Failure> {
    let builder = database
        .builder(connection, &connection.settings)
        .read_only(true)
        .acquire_timeout(connection.timeout)
        .peers(PeerOptions::new(([127, 0, 0, 1], 0).into()).serve_guests(false));
    Ok(builder.build().await?)
}
