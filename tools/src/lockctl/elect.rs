//! `elect`.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use bakery_lock::{ContenderInfo, Election, LockClient};
use clap::Args;
use serde_json::json;

use super::command::{Ended, HolderOptions, LOST, tell_service_manager};
use super::contender;
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::host::shut_down;
use crate::options::{lock_name, timeout};
use crate::outage::explained;
use crate::output::{self, time, visible};
use crate::signals::Signals;

/// Run a command on the leader of several machines
///
/// Start it on each machine that could lead. One of them is elected and runs the command; the
/// others watch until the seat is free. The best priority wins among those that are healthy, and a
/// leader is never displaced. If the command ends, the leader resigns, and lockctl exits with the
/// command's code.
///
/// If the leadership is lost or revoked, the command and all processes that it started are ended
/// before another machine may lead, as by `lockctl run`. A leader that is killed is replaced within
/// its TTL, the clock skew, and a watch interval for each step of priority. Candidates wait as long
/// as it takes, also while the database does not answer.
///
/// The command finds `LOCK_NAME`, `LOCK_TOKEN` (the fencing token; none with several seats) and
/// `LOCK_DEADLINE` in its environment. Signals INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to
/// all of its processes; while lockctl waits for a seat they end it.
#[derive(Clone, Debug, Args)]
#[command(after_help = ELECT_HELP)]
pub(super) struct ElectOptions {
    /// What is led; the leader holds the lock of this name
    #[arg(value_parser = lock_name)]
    name: String,

    /// The command and its arguments; use `sh -c` for a shell's syntax
    #[arg(
        required_unless_present = "observe",
        conflicts_with = "observe",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,

    /// Print who leads, one line for each change, and run no command
    #[arg(long)]
    observe: bool,

    /// With --observe: print each change as a JSON object in a line, with `time`, `name` and
    /// `leaders` as `show --json` has its contenders
    #[arg(long, requires = "observe")]
    json: bool,

    /// How many lead at the same time; the same for all candidates
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    seats: u32,

    /// How good this candidate is: from 1, the best, to 14
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=14)
    )]
    priority: u8,

    /// How often to look for a free seat, or for other leaders; the same for all candidates
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "400ms")]
    watch_interval: Duration,

    /// Stand for election again after a leadership that was lost or revoked, instead of exiting
    /// with 76
    #[arg(long, conflicts_with = "observe")]
    restart: bool,

    #[command(flatten)]
    holder: HolderOptions,

    /// Print what is connected to, when this candidate stands for election, and when it leads
    #[arg(short = 'v', long)]
    verbose: bool,
}

const ELECT_HELP: &str = "\
Examples:
  lockctl elect scheduler -- ./scheduler --config prod.toml
  lockctl elect --priority 1 --ttl 10s --restart scheduler -- ./scheduler
  lockctl elect --seats 3 importer -- ./importer
  lockctl elect --observe scheduler

Exit codes:
  that of the command, or 128 and the number of the signal that ended it
  76   the leadership was lost or revoked while the command ran (see --restart)
  69   the database can't be reached, refuses the login, or did not answer in time
  125  lockctl itself failed: invalid arguments, or anything else
  126  the command can't be run
  127  the command was not found
  --observe has those of `lockctl show`, and 125 for invalid arguments";

impl ElectOptions {
    /// Whether it only watches who leads.
    pub(super) fn observes(&self) -> bool {
        self.observe
    }

    fn election(&self, client: &LockClient) -> Election {
        client.election(&self.name).watch(self.watch_interval)
    }
}

/// Runs a command while leading, and returns the exit code.
pub(super) async fn elect(
    connection: &ConnectOptions,
    options: &ElectOptions,
) -> Result<u8, Failure> {
    // Before anything is waited for: a signal while a seat is waited for ends the candidacy.
    let mut signals = Signals::passed_on()?;
    let built = async {
        let database = signals.or(connection.connect_with_note(options.verbose)).await?;
        let build = Box::pin(options.holder.client(&database, connection));
        signals.or(explained(&database, connection, build)).await
    };
    let client = built.await?;
    let code = stand(connection, &client, options, &mut signals).await;
    shut_down(&client).await;
    code
}

/// Waits until this candidate leads, and runs the command then; again and again if asked to.
async fn stand(
    connection: &ConnectOptions,
    client: &LockClient,
    options: &ElectOptions,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let ElectOptions { seats, priority, command, holder, .. } = options;
    let election = options.election(client).seats(*seats).priority(*priority);
    let election = election.label(holder.label(command));
    let name = visible(&options.name);
    loop {
        if options.verbose {
            output::note(&format!("lockctl: this process stands for {name}"));
        }
        let leadership = signals.or(async { Ok(election.campaign().await?) }).await?;
        if options.verbose {
            output::note(&format!("lockctl: this process leads {name}"));
        }
        tell_service_manager(&format!("leads {name}"));
        let run = holder.run(connection, &leadership, *seats == 1, command, signals).await?;
        match run.ended {
            Ended::Held(code) => {
                if let Err(error) = leadership.resign().await {
                    // It expires by itself.
                    output::report("lockctl: the command has ended", &error);
                }
                return Ok(code);
            }
            // One that was asked to end does not come back.
            Ended::Lost { asked: None, .. } if options.restart => {}
            Ended::Lost { .. } => return Ok(LOST),
        }
    }
}

/// Prints who leads, each time that others do.
pub(super) async fn observe(client: &LockClient, options: &ElectOptions) -> Result<(), Failure> {
    let mut leaders = options.election(client).observe();
    loop {
        match leaders.try_next().await {
            Ok(Some(leaders)) => output::print(&options.line(&leaders))?,
            Ok(None) => return Ok(()),
            // The next look may be answered.
            Err(error) => output::warn(&Failure::from(error).passing()?),
        }
    }
}

impl ElectOptions {
    fn line(&self, leaders: &[ContenderInfo]) -> String {
        let now = time(SystemTime::now());
        if self.json {
            let leaders: Vec<_> = leaders.iter().map(contender::as_json).collect();
            return format!("{}\n", json!({ "time": now, "name": self.name, "leaders": leaders }));
        }
        let owners: Vec<_> = leaders.iter().map(|leader| visible(leader.owner.as_str())).collect();
        let who = match owners.as_slice() {
            [] => "none leads".to_owned(),
            [one] => format!("{one} leads"),
            several => format!("{} lead", several.join(", ")),
        };
        format!("{now} {}: {who}\n", visible(&self.name))
    }
}
