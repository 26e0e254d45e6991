//! `bakery-lockd`: locks for programs in any language, over the protocol of Redis.
//!
//! One process per host with one client of the library. `listen` accepts connections, `connection`
//! reads commands from them, `session` finds the one of the `commands` that carries a command out,
//! and `daemon` has what all share: the `locks` that are held, the `hub` for messages, and the
//! `scripts` of clients that send Lua. What clients were promised for a time stands in a `journal`,
//! from which the next daemon learns it after a crash: `adopt`. `monitor` answers what monitoring
//! asks, with the metrics of the `exporter`.

mod adopt;
mod boot;
mod commands;
mod connection;
mod daemon;
mod exporter;
mod hub;
mod journal;
mod latches;
mod limits;
mod listen;
mod locked;
mod locks;
mod monitor;
mod options;
mod order;
mod pace;
mod peer;
mod refusal;
mod resp;
mod run;
mod scripts;
mod session;
mod tally;
mod unix_stream;
mod users;
mod words;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::options::ServeOptions;
use crate::completions::{CompletionsOptions, print_completions};
use crate::connect::ConnectArguments;
use crate::failure::Failure;
use crate::man::{ManOptions, write_pages};
use crate::output;

/// The name of the tool.
pub const NAME: &str = "bakery-lockd";

/// Serves locks to programs in any language, over the protocol of Redis
///
/// One runs on each host, which must be registered (`lock-hosts add`). Programs connect to its
/// socket with any client of Redis, and use its own commands (LOCK, UNLOCK, RENEW, ..) or a lock
/// library for Redis as it is: redis-py, redlock, redsync, Redisson and others. What they get is a
/// lock of the cluster: kept by a quorum, first come, first served, with fencing tokens.
#[derive(Clone, Debug, Parser)]
#[command(name = NAME, version, after_long_help = EXAMPLES, subcommand_negates_reqs = true)]
pub struct Lockd {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: ServeOptions,

    #[command(flatten)]
    connection: ConnectArguments,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Script(ScriptOptions),
    Completions(CompletionsOptions),
    #[command(hide = true)]
    Man(ManOptions),
}

/// Say what the daemon does for a Lua script
///
/// Prints the SHA1 of the script and the behaviour, or `unknown`. Needs no database.
#[derive(Clone, Debug, Args)]
struct ScriptOptions {
    /// A file with the script, as clients send it
    file: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  Serve programs of this host:
    bakery-lockd --nodes db1,db2,db3 --socket /run/bakery-lock/lockd.sock
  Serve programs that can't use a socket of the file system:
    bakery-lockd --nodes db1,db2,db3 --listen 127.0.0.1:6380
  A lock from a shell, until the connection ends:
    (echo LOCK backup; cat) | nc -U /run/bakery-lock/lockd.sock

Exit codes:
  0  ended by TERM or INT
  1  the answer is no: the host is not registered, or an address can't be used
  2  invalid arguments; nothing was sent
  3  the database can't be reached, or refuses the login";

/// Serves until a signal ends it, and returns the exit code.
///
/// # Errors
///
/// [`Failure`] states what went wrong.
///
/// # Cancel safety
///
/// Dropping the future ends the daemon as a crash does: its locks stay taken for their TTLs.
pub async fn run(arguments: Lockd) -> Result<ExitCode, Failure> {
    let Lockd { command, serve, connection } = arguments;
    match command {
        Some(Command::Completions(options)) => print_completions::<Lockd>(NAME, &options)?,
        Some(Command::Man(options)) => write_pages::<Lockd>(&options)?,
        Some(Command::Script(ScriptOptions { file })) => {
            let text = fs::read(file).map_err(Failure::system("the script can't be read"))?;
            output::print(&format!("{}\n", scripts::description(&text)))?;
        }
        None => run::serve(&connection.options()?, serve).await?,
    }
    Ok(ExitCode::SUCCESS)
}
