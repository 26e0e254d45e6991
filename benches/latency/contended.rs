//! Callers that want one name over and over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use bakery_lock_instrumented::testing::SimulatedCluster;
use bakery_lock_instrumented::testing::virtual_time;
use bakery_lock_instrumented::{LockClient, LockClientBuilder};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::alone::{HOST, cluster};
use crate::arguments::Plan;
use crate::measured::Quantiles;
use crate::scenario::Scenario;

/// Who contends, and how.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Contest {
    pub(crate) way: Way,
    pub(crate) clients: usize,
    pub(crate) callers_per_client: usize,
    /// How long a caller holds the lock, in milliseconds. Tokio rounds it up to a whole one.
    pub(crate) hold_ms: u64,
}

/// Whose turns callers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Way {
    /// No turns: each grant goes through the table.
    Table,
    /// Turns of their own client.
    LocalTurns,
    /// Turns of other clients, too.
    Subleases,
}

/// 32 callers in 4 processes that work for 2 ms while they hold: in the table alone, with local
/// turns, with subleases. Without work, turns would take no virtual time at all.
pub(crate) const WAYS: [Contest; 3] = [
    Contest { way: Way::Table, clients: 32, callers_per_client: 1, hold_ms: 2 },
    Contest { way: Way::LocalTurns, clients: 4, callers_per_client: 8, hold_ms: 2 },
    Contest { way: Way::Subleases, clients: 4, callers_per_client: 8, hold_ms: 2 },
];

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Contended {
    pub(crate) scenario: String,
    pub(crate) contest: Contest,
    pub(crate) handoffs_per_second: f64,
    pub(crate) operations_per_grant: f64,
    /// The grants of the worst-served caller, divided by the mean.
    pub(crate) worst_share: f64,
    /// From the request to the grant, in milliseconds.
    pub(crate) wait: Quantiles,
}

impl Contest {
    /// Clients in processes of their own, which unlock at once.
    pub(crate) fn apart(clients: usize) -> Self {
        Contest { way: Way::Table, clients, callers_per_client: 1, hold_ms: 0 }
    }

    fn callers(self) -> usize {
        self.clients * self.callers_per_client
    }
}

/// A contest in virtual time.
pub(crate) fn of(scenario: &Scenario, contest: Contest, plan: Plan, seed: u64) -> Contended {
    let cluster = cluster(scenario, seed);
    let (inner, zones) = (cluster.clone(), scenario.contending.clone());
    let measured = virtual_time::run(&cluster, async move {
        let mut clients = Vec::new();
        for (number, zone) in (0..contest.clients).zip(zones.into_iter().cycle()) {
            clients.push(client(&inner, contest.way, zone, seed + number as u64).await);
        }
        // All have had the lock a few times before anything counts.
        let ends = Ends { first: 4 * contest.callers(), grants: plan.grants, limit: plan.limit };
        run(&clients, contest, "contended", ends).await.expect("nothing fails in the simulation")
    });
    measured.summary(scenario, contest)
}

async fn client(cluster: &SimulatedCluster, way: Way, zone: usize, seed: u64) -> LockClient {
    let client = cluster.connect(Duration::ZERO, 0, seed);
    cluster.set_zone(client.number(), zone);
    let builder = match way {
        Way::Table | Way::LocalTurns => client.client_builder(),
        Way::Subleases => client.peer_builder(),
    };
    let built = builder_for(builder, way).host(HOST).build().await;
    built.expect("the host is registered")
}

/// A builder of clients that wait for long.
pub(crate) fn builder_for(builder: LockClientBuilder, way: Way) -> LockClientBuilder {
    builder.local_handoff(way != Way::Table).acquire_timeout(Duration::from_secs(3_600))
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// After this many grants it begins to count.
    pub(crate) first: usize,
    /// This many are counted,
    pub(crate) grants: usize,
    /// or those of this time.
    pub(crate) limit: Duration,
}

/// The grants that were counted.
#[derive(Debug)]
pub(crate) struct Measured {
    /// How long they took together.
    took: Duration,
    grants: Vec<Grant>,
    operations: u64,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    caller: usize,
    waited: Duration,
    at: Instant,
}

#[derive(Debug, Default)]
struct Log {
    grants: Mutex<Vec<Grant>>,
    granted: Notify,
}

impl Log {
    fn len(&self) -> usize {
        self.grants.lock().expect("no caller panics with the log").len()
    }

    async fn reaches(&self, grants: usize) {
        while self.len() < grants {
            self.granted.notified().await;
        }
    }
}

/// Lets callers contend for a name until enough grants are counted.
pub(crate) async fn run(
    clients: &[LockClient],
    contest: Contest,
    name: &str,
    ends: Ends,
) -> Result<Measured> {
    let log = Arc::new(Log::default());
    let mut callers = JoinSet::new();
    for caller in 0..contest.callers() {
        let client = clients[caller % clients.len()].clone();
        callers.spawn(call(client, name.to_owned(), caller, contest.hold_ms, Arc::clone(&log)));
    }
    let sent = || clients.iter().map(|it| it.statistics().operations()).sum::<u64>();
    tokio::select! {
        reached = timeout(ends.limit, log.reaches(ends.first)) => drop(reached),
        failed = callers.join_next() => return Err(failure(failed)),
    }
    let (first, before) = (log.len(), sent());
    let begun = Instant::now();
    tokio::select! {
        reached = timeout(ends.limit, log.reaches(first + ends.grants)) => drop(reached),
        failed = callers.join_next() => return Err(failure(failed)),
    }
    let took = begun.elapsed();
    let operations = sent() - before;
    callers.shutdown().await;
    let mut grants = log.grants.lock().expect("no caller panics with the log").split_off(first);
    grants.retain(|grant| grant.at <= begun + took);
    Ok(Measured { took, grants, operations })
}

fn failure(ended: Option<Result<Result<()>, tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => error.into(),
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("callers never end"),
    }
}

async fn call(
    client: LockClient,
    name: String,
    caller: usize,
    hold_ms: u64,
    log: Arc<Log>,
) -> Result<()> {
    loop {
        let begun = Instant::now();
        let guard = client.lock(&name).await?;
        let grant = Grant { caller, waited: begun.elapsed(), at: Instant::now() };
        log.grants.lock().expect("no caller panics with the log").push(grant);
        log.granted.notify_one();
        if hold_ms > 0 {
            sleep(Duration::from_millis(hold_ms)).await;
        }
        guard.unlock().await?;
    }
}

impl Measured {
    pub(crate) fn handoffs_per_second(&self) -> f64 {
        let pairs = self.grants.windows(2);
        let handoffs = pairs.filter(|pair| pair[0].caller != pair[1].caller).count();
        count(handoffs) / self.took.as_secs_f64()
    }

    pub(crate) fn operations_per_grant(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "operations are far fewer than 2^52")]
        let operations = self.operations as f64;
        operations / count(self.grants.len())
    }

    fn summary(&self, scenario: &Scenario, contest: Contest) -> Contended {
        let mut shares = vec![0; contest.callers()];
        for grant in &self.grants {
            shares[grant.caller] += 1;
        }
        let worst = shares.into_iter().min().unwrap_or_default();
        let mean = count(self.grants.len()) / count(contest.callers());
        Contended {
            scenario: scenario.name.clone(),
            contest,
            handoffs_per_second: self.handoffs_per_second(),
            operations_per_grant: self.operations_per_grant(),
            worst_share: count(worst) / mean,
            wait: Quantiles::of(self.grants.iter().map(|grant| grant.waited)),
        }
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("it is not so many"))
}
