//! `bench`.

mod crowd;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use bakery_lock::LockClient;
use clap::Args;
use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::crowd::{Served, contend};
use self::report::{Alone, Report};
use super::progress::progress_bar;
use crate::connect::{ConnectOptions, Database};
use crate::failure::Failure;
use crate::host::{HostOptions, not_built, shut_down};
use crate::options::{duration, timeout};
use crate::outage::explained;
use crate::output;
use crate::signals::Signals;

/// The names that `bench` locks begin with this.
const PREFIX: &str = "lockctl-bench::";

/// The number of blocks in which each figure is measured. Those of all figures alternate, so that
/// what else the cluster does meanwhile meets all of them.
const BLOCKS: u32 = 5;

/// How long a contender that was withdrawn may need to leave the table.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);

/// Measure what a lock costs on this cluster, from this machine
///
/// Measures how long a lock and its unlock take where no other client wants it, and for comparison
/// a read of the lock's rows, as `show` does it. Then several clients take one lock
/// as fast as they can: how often it is granted, how often it goes from one client to another, how
/// long each waits, and what share the worst-served one gets. Clients hold it for no time.
///
/// All clients are in this one process and share its connections; they are no peers of each
/// other. The load is that of busy services, so mind what else the cluster does.
///
/// The names begin with `lockctl-bench::` and a random part, so no other lock is touched.
#[derive(Clone, Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(super) struct BenchOptions {
    /// How many clients want one lock: several numbers are measured one after the other
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,4,16",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    clients: Vec<u16>,

    /// For how long each figure is measured
    #[arg(long = "for", value_name = "TIME", value_parser = timeout, default_value = "10s")]
    length: Duration,

    /// Warm-up time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3s")]
    warm_up: Duration,

    #[command(flatten)]
    host: HostOptions,

    /// Print JSON: an object with `run`, `warm_up_seconds`, `seconds` (of each figure), `alone`
    /// (`read_ms`, `lock_ms`, `unlock_ms`, `lock_and_unlock_ms`, each with `count`, `median` and
    /// `p99`), `contended` (an object for each number of clients), `errors` and `interrupted`
    #[arg(long)]
    json: bool,
}

const BENCH_HELP: &str = "\
Examples:
  lockctl bench
  lockctl bench --clients 2,8,32 --for 20s
  lockctl bench --json | jq .alone.lock_ms.median

Exit codes:
  0    all was measured
  1    no lock was granted, or something else kept it from measuring
  2    invalid arguments; nothing was sent
  3    the database can't be reached, refuses the login, or did not answer in time
  130  it was ended by Ctrl-C (INT), 143 by TERM; what was measured until then is printed";

/// Measures, and prints the figures.
pub(super) async fn bench(
    connection: &ConnectOptions,
    options: &BenchOptions,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::that_end()?;
    let database = signals.or(connection.connect()).await?;
    let build = Box::pin(options.build(&database, connection));
    let clients = signals.or(explained(&database, connection, build)).await?;
    let mut bench = Bench::new(options, clients);
    let measured = signals.or(bench.measure()).await;
    bench.bar.finish_and_clear();
    // What is still on its way when a signal comes is undone here.
    for client in &bench.clients {
        shut_down(client).await;
    }
    let interrupted = match measured {
        Ok(()) => None,
        Err(Failure::Interrupted { signal }) => Some(signal),
        Err(failure) => return Err(failure),
    };
    if !bench.is_warm {
        bench.forget();
    }
    let report = Report { bench, interrupted };
    if options.json {
        output::print_json(&report.json())?;
    } else {
        output::print(&report.text())?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

impl BenchOptions {
    /// As many clients as are needed at most.
    async fn build(
        &self,
        database: &Database,
        connection: &ConnectOptions,
    ) -> Result<Vec<LockClient>, Failure> {
        let most = self.clients.iter().copied().max().unwrap_or(1);
        let mut building = JoinSet::new();
        for _ in 0..most {
            building.spawn(self.host.builder(database, connection, None).build());
        }
        let mut clients = Vec::new();
        while let Some(built) = building.join_next().await {
            let built = built.expect("building a client does not panic");
            clients.push(built.map_err(not_built)?);
        }
        Ok(clients)
    }
}

/// What is measured, and with what.
struct Bench {
    options: BenchOptions,
    run: String,
    clients: Vec<LockClient>,
    bar: ProgressBar,
    /// Whether the warm-up is over.
    is_warm: bool,
    alone: Alone,
    /// For each number of clients, in the order in which they were given.
    contended: Vec<(u16, Served)>,
}

impl Bench {
    fn new(options: &BenchOptions, clients: Vec<LockClient>) -> Self {
        let contended = options.clients.iter().map(|count| (*count, Served::new(*count)));
        Bench {
            options: options.clone(),
            run: format!("{:016x}", rand::random::<u64>()),
            clients,
            bar: progress_bar("{bar:40} {percent}%, {msg}"),
            is_warm: false,
            alone: Alone::default(),
            contended: contended.collect(),
        }
    }

    /// Measures all figures, block by block.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the figures of blocks that were complete are kept.
    async fn measure(&mut self) -> Result<(), Failure> {
        let figures = u32::try_from(1 + self.contended.len()).unwrap_or(u32::MAX);
        self.bar.set_length(u64::from((BLOCKS + 1) * figures));
        // The warm-up is a block like the others.
        self.block(self.options.warm_up / figures, "warm-up").await?;
        self.forget();
        self.is_warm = true;
        for _ in 0..BLOCKS {
            self.block(self.options.length / BLOCKS, "measuring").await?;
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.alone = Alone::default();
        for (count, served) in &mut self.contended {
            *served = Served::new(*count);
        }
    }

    /// One block of each figure.
    async fn block(&mut self, length: Duration, what: &str) -> Result<(), Failure> {
        self.bar.set_message(format!("{what}: one client alone"));
        self.bar.tick();
        self.lock_alone(length).await?;
        self.bar.inc(1);
        for index in 0..self.contended.len() {
            let count = self.contended[index].0;
            self.bar.set_message(format!("{what}: clients that want one lock: {count}"));
            self.bar.tick();
            let name = format!("{PREFIX}{}::{count}", self.run);
            let served = contend(&self.clients[..usize::from(count)], &name, length).await;
            self.contended[index].1.add(served);
            self.until_free(&name).await?;
            self.bar.inc(1);
        }
        Ok(())
    }

    /// Reads, locks and unlocks in turn.
    async fn lock_alone(&mut self, length: Duration) -> Result<(), Failure> {
        let name = format!("{PREFIX}{}::alone", self.run);
        let client = &self.clients[0];
        let end = Instant::now() + length;
        while Instant::now() < end {
            let began = Instant::now();
            client.contenders(&name).await?;
            let read = began.elapsed();
            let began = Instant::now();
            let guard = match client.lock(&name).await {
                Ok(guard) => guard,
                Err(error) => {
                    self.alone.fail(&error);
                    continue;
                }
            };
            let lock = began.elapsed();
            let began = Instant::now();
            match guard.unlock().await {
                Ok(()) => self.alone.note(read, lock, began.elapsed()),
                Err(error) => self.alone.fail(&error),
            }
        }
        Ok(())
    }

    /// Waits until those that were withdrawn have left: they must not delay the next block.
    async fn until_free(&self, name: &str) -> Result<(), Failure> {
        let end = Instant::now() + LEAVES_WITHIN;
        while !self.clients[0].contenders(name).await?.is_empty() && Instant::now() < end {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
