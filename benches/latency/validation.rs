//! The same on a real cluster, with delays between its nodes.

mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use bakery_lock_instrumented::testing::{Spread, Work};
use bakery_lock_instrumented::{LockClient, LockClientBuilder};
use indicatif::ProgressBar;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use self::cluster::TestCluster;
use crate::arguments::{Arguments, Plan};
use crate::contended::{self, Contest, Ends, Way, builder_for};
use crate::measured::{Quantiles, pairs};
use crate::scenario::on_one_machine;
use crate::{alone, progress_bar};

/// Delays between the nodes.
struct Delays {
    name: &'static str,
    /// The milliseconds of a round trip between each two nodes.
    round_trips: [[f64; 3]; 3],
}

const DELAYS: [Delays; 5] = [
    Delays::even("0 ms", 0.0),
    Delays::even("1 ms", 1.0),
    Delays::even("5 ms", 5.0),
    Delays::even("20 ms", 20.0),
    Delays {
        name: "5 ms, third node 20 ms",
        round_trips: [[0.0, 5.0, 20.0], [5.0, 0.0, 20.0], [20.0, 20.0, 0.0]],
    },
];

/// How many clients contend.
const CLIENTS: [usize; 3] = [2, 8, 32];

/// All figures that were compared.
#[derive(Debug, Serialize)]
pub(crate) struct Validation {
    pub(crate) seed: u64,
    pub(crate) rounds: u32,
    /// The load averages of the machine, each of one minute, least and largest.
    pub(crate) load: [f64; 2],
    pub(crate) work: Vec<WorkBeside>,
    pub(crate) lines: Vec<Line>,
}

/// What nodes needed without delays, each time just before they had these.
#[derive(Debug, Serialize)]
pub(crate) struct WorkBeside {
    pub(crate) delays: &'static str,
    /// For a write, a read of a row and a read of an object, in milliseconds.
    pub(crate) work: [Quantiles; 3],
}

/// One figure.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) delays: &'static str,
    pub(crate) figure: String,
    pub(crate) predicted: f64,
    /// The median of the rounds.
    pub(crate) measured: f64,
    pub(crate) least: f64,
    pub(crate) largest: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Validation> {
    let plan = arguments.plan();
    eprintln!("starting the cluster");
    let runtime = tokio::runtime::Runtime::new()?;
    let measured = runtime.block_on(measure(plan, arguments.rounds))?;
    // The simulation has a runtime of its own.
    drop(runtime);
    let (mut blocks, mut lines) = (Vec::new(), Vec::new());
    for (number, delays) in DELAYS.iter().enumerate() {
        let work = measured.work[number].each_ref().map(|times| Quantiles::of(times.clone()));
        blocks.push(WorkBeside { delays: delays.name, work });
        let [write, row_read, object_read] = work.map(spread);
        let message = Spread::fixed(Duration::ZERO);
        let work = Work { write, row_read, object_read, message };
        let scenario = on_one_machine(delays.name, delays.round_trips, work);
        for (figure, predicted) in predict(&scenario, plan, arguments.seed) {
            let mut seen = measured.figures[&(number, figure.clone())].clone();
            seen.sort_by(f64::total_cmp);
            let (least, largest) = (seen[0], seen[seen.len() - 1]);
            let measured = seen[seen.len() / 2];
            let delays = delays.name;
            lines.push(Line { delays, figure, predicted, measured, least, largest });
        }
    }
    let load = measured.load;
    Ok(Validation { seed: arguments.seed, rounds: arguments.rounds, load, work: blocks, lines })
}

/// The figures of a real cluster.
struct Measured {
    /// Of writes, reads of a row and reads of an object, by the number of the delays that followed:
    /// the machine is not equally fast all the time.
    work: [[Vec<Duration>; 3]; DELAYS.len()],
    /// Each round's, by the number of the delays and the name of the figure.
    figures: BTreeMap<(usize, String), Vec<f64>>,
    load: [f64; 2],
}

async fn measure(plan: Plan, rounds: u32) -> Result<Measured> {
    let cluster = TestCluster::start().await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS[CLIENTS.len() - 1] {
        clients.push(builder(&cluster).build().await?);
    }
    let steps = 1 + DELAYS.len() * rounds as usize;
    let mut bench = Bench { cluster, clients, plan, names: 0, progress: progress_bar(steps) };
    bench.warm().await?;
    let (work, load) = (Default::default(), [f64::MAX, f64::MIN]);
    let mut measured = Measured { work, figures: BTreeMap::new(), load };
    for round in 0..rounds {
        // Back and forth, because a machine drifts.
        let mut order: Vec<_> = DELAYS.iter().enumerate().collect();
        if !round.is_multiple_of(2) {
            order.reverse();
        }
        for (number, delays) in order {
            bench.progress.set_message(format!("round {}, {}", round + 1, delays.name));
            bench.round(number, delays, &mut measured).await?;
            bench.progress.inc(1);
        }
    }
    bench.progress.finish_and_clear();
    bench.end().await?;
    Ok(measured)
}

fn builder(cluster: &TestCluster) -> LockClientBuilder {
    let builder = cluster.client_builder().host("bench");
    builder_for(builder, Way::Table)
}

struct Bench {
    cluster: TestCluster,
    clients: Vec<LockClient>,
    plan: Plan,
    names: u32,
    progress: ProgressBar,
}

impl Bench {
    /// A fresh cluster is several times slower for its first minute.
    async fn warm(&mut self) -> Result<()> {
        self.progress.set_message("warming");
        let begun = Instant::now();
        while begun.elapsed() < self.plan.warm {
            self.cluster.work(50).await?;
            let name = self.next_name();
            pairs(&self.clients[0], &name, 50).await?;
            self.contest(CLIENTS[1]).await?;
        }
        self.progress.inc(1);
        Ok(())
    }

    async fn round(
        &mut self,
        number: usize,
        delays: &Delays,
        measured: &mut Measured,
    ) -> Result<()> {
        self.cluster.set_delays([[0.0; 3]; 3]).await?;
        let work = self.cluster.work(self.plan.real_pairs).await?;
        for (all, times) in measured.work[number].iter_mut().zip(work) {
            all.extend(times);
        }
        self.cluster.set_delays(delays.round_trips).await?;
        let mut note = |figure: &str, value| {
            measured.figures.entry((number, figure.to_owned())).or_default().push(value);
        };
        let name = self.next_name();
        let alone = pairs(&self.clients[0], &name, self.plan.real_pairs).await?;
        note(LOCK, Quantiles::of(alone.lock).median);
        note(UNLOCK, Quantiles::of(alone.unlock).median);
        for clients in CLIENTS {
            let seen = self.contest(clients).await?;
            note(&handoffs(clients), seen.handoffs_per_second());
            note(&per_grant(clients), seen.operations_per_grant());
        }
        let load = load()?;
        measured.load = [measured.load[0].min(load), measured.load[1].max(load)];
        Ok(())
    }

    async fn contest(&mut self, clients: usize) -> Result<contended::Measured> {
        let (name, limit) = (self.next_name(), self.plan.slot);
        let ends = Ends { first: clients, grants: usize::MAX / 2, limit };
        let contest = Contest::apart(clients);
        let seen = contended::run(&self.clients[..clients], contest, &name, ends).await?;
        // Those that waited delete their rows.
        sleep(Duration::from_secs(1)).await;
        Ok(seen)
    }

    /// A name that was never locked.
    fn next_name(&mut self) -> String {
        self.names += 1;
        format!("name-{}", self.names)
    }

    async fn end(self) -> Result<()> {
        for client in &self.clients {
            client.shutdown().await?;
        }
        self.cluster.end().await
    }
}

const LOCK: &str = "lock, ms";
const UNLOCK: &str = "unlock, ms";

fn handoffs(clients: usize) -> String {
    format!("handoffs/s, {clients} clients")
}

fn per_grant(clients: usize) -> String {
    format!("operations per grant, {clients} clients")
}

/// The same figures of the simulation.
fn predict(scenario: &crate::scenario::Scenario, plan: Plan, seed: u64) -> Vec<(String, f64)> {
    let alone = alone::of(scenario, plan.pairs, seed).remove(0);
    let mut figures =
        vec![(LOCK.to_owned(), alone.lock.median), (UNLOCK.to_owned(), alone.unlock.median)];
    for clients in CLIENTS {
        let seen = contended::of(scenario, Contest::apart(clients), plan, seed);
        figures.push((handoffs(clients), seen.handoffs_per_second));
        figures.push((per_grant(clients), seen.operations_per_grant));
    }
    figures
}

/// The lognormal distribution with these quantiles.
fn spread(times: Quantiles) -> Spread {
    /// The 99th percentile of the standard normal distribution.
    const P99: f64 = 2.326;
    let median = Duration::from_secs_f64(times.median / 1_000.0);
    Spread { median, sigma: (times.p99 / times.median).ln() / P99 }
}

/// The load average of the last minute.
fn load() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg").context("could not read the load")?;
    let first = text.split(' ').next().context("the load has a first figure")?;
    Ok(first.parse()?)
}

impl Delays {
    const fn even(name: &'static str, ms: f64) -> Self {
        Delays { name, round_trips: [[0.0, ms, ms], [ms, 0.0, ms], [ms, ms, 0.0]] }
    }
}
