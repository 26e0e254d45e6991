//! The commands of `lock-hosts`.

mod doctor;
mod hosts;
mod inactive;
mod init;
mod init_masters;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::completions::{CompletionsOptions, print_completions};
use crate::connect::{ConnectArguments, ConnectOptions};
use crate::failure::Failure;
use crate::man::{ManOptions, write_pages};
use crate::signals::Signals;

/// Registers the hosts that may take locks, and prepares the tables for them
///
/// Locks live in three tables of one keyspace: the lock table itself; the registry of hosts, which
/// gives each host a number; and the table of peers, in which clients that let others take turns
/// publish where they listen. `init` creates them, `add` registers a host, and `doctor` shows
/// whether this host can take locks.
#[derive(Clone, Debug, Parser)]
#[command(name = NAME, version, after_long_help = EXAMPLES)]
pub struct LockHosts {
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
}

#[derive(Clone, Debug, Subcommand)]
enum OnCluster {
    Init(init::InitOptions),
    Add(hosts::AddOptions),
    Remove(hosts::RemoveOptions),
    List(hosts::ListOptions),
    Doctor(doctor::DoctorOptions),
}

/// The name of the tool.
pub const NAME: &str = "lock-hosts";

const EXAMPLES: &str = "\
Examples:
  Prepare a cluster of two data centres, three replicas in each:
    lock-hosts --nodes db1,db2 init --replication dc1=3,dc2=3
  Register this machine, and two others:
    lock-hosts --nodes db1,db2 add
    lock-hosts --nodes db1,db2 add web1 web2
  See which hosts are registered, and whether this machine can take locks:
    lock-hosts --nodes db1,db2 list
    lock-hosts --nodes db1,db2 doctor
  Remove the hosts that no program used for a month, after a look at them:
    lock-hosts --nodes db1,db2 remove --inactive-for 30d --dry-run
    lock-hosts --nodes db1,db2 remove --inactive-for 30d --yes
  With a login and TLS:
    BAKERY_LOCK_PASSWORD=... lock-hosts --nodes db1 --user admin --tls-ca ca.pem list

Exit codes:
  0  done
  1  the answer is no: a check failed, a host is unknown, the database refused
  2  invalid arguments; nothing was sent
  3  the database can't be reached, refuses the login, or did not answer in time";

/// Runs a command, and returns its exit code.
///
/// INT and TERM end it, after the registry's lock is released.
///
/// # Errors
///
/// [`Failure`] states what went wrong. The library's functions that the commands call document what
/// is left behind: [`bakery_lock::schema`], [`bakery_lock::hosts`].
///
/// # Cancel safety
///
/// As for those functions: repeating the command is safe.
pub async fn run(arguments: LockHosts) -> Result<ExitCode, Failure> {
    let LockHosts { command, connection } = arguments;
    let done = match command {
        Command::OnCluster(command) => command.done(&connection.options()?).await,
        Command::Completions(options) => print_completions::<LockHosts>(NAME, &options),
        Command::Man(options) => write_pages::<LockHosts>(&options),
    };
    done.map(|()| ExitCode::SUCCESS)
}

impl OnCluster {
    /// Carries it out.
    async fn done(self, connection: &ConnectOptions) -> Result<(), Failure> {
        let mut signals = Signals::that_end()?;
        match self {
            OnCluster::Init(options) => signals.or(init::init(connection, &options)).await,
            OnCluster::Add(options) => hosts::add(connection, &options, &mut signals).await,
            OnCluster::Remove(options) => hosts::remove(connection, &options, &mut signals).await,
            OnCluster::List(options) => hosts::list(connection, &options, &mut signals).await,
            OnCluster::Doctor(options) => signals.or(doctor::doctor(connection, &options)).await,
        }
    }
}
