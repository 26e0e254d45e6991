//! A process with one client of one kind of lock, which does what the bench orders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bakery_lock::Masters;
use common::bare::BareRows;
use common::contest::Served;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use support::monotonic::now;
use support::worker::{next_order, say};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::measures::orders::{Answer, Contend, Names, Order, READY};
use crate::servers::redis::urls;
use crate::sides::bakery::BakeryLock;
use crate::sides::etcd::EtcdLock;
use crate::sides::lwt::LwtLock;
use crate::sides::redlock::Redlock;
use crate::sides::set_nx::SetNx;
use crate::sides::zookeeper::ZookeeperLock;
use crate::sides::{Kind, Setup, Side, Tuning};
use common::cluster::connect;

/// Uncontended pairs go round this many names, over and over, as services do that lock rows of a
/// table.
const NAMES: u32 = 512;

/// A client that failed does not ask again at once.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// Does what it is ordered, until its standard input ends.
pub(crate) async fn run(setup: Setup) -> Result<()> {
    // Should the bench be killed, orders would not end while one is carried out.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match setup.kind {
        Kind::Bare => {
            let session = connect(&setup.servers).await?.into();
            serve(setup, async |setup| BareRows::prepare(&session, setup.ttl).await).await
        }
        Kind::Bakery | Kind::LocalTurns | Kind::Subleases => {
            let session = connect(&setup.servers).await?.into();
            serve(setup, async |setup| BakeryLock::on_cassandra(&session, setup).await).await
        }
        Kind::Masters | Kind::MastersSubleases => {
            let masters = Masters::connect(urls(&setup.servers)).await?;
            serve(setup, async |setup| BakeryLock::on_masters(&masters, setup).await).await
        }
        Kind::Lwt => {
            let session = connect(&setup.servers).await?.into();
            serve(setup, async |setup| LwtLock::prepare(&session, setup).await).await
        }
        Kind::Etcd => serve(setup, EtcdLock::connect).await,
        Kind::Zookeeper => serve(setup, ZookeeperLock::connect).await,
        Kind::Redlock => serve(setup, async |setup| Ok(Redlock::connect(setup))).await,
        Kind::SetNx => serve(setup, SetNx::connect).await,
    }
}

async fn serve<S: Side>(mut setup: Setup, build: impl AsyncFn(&Setup) -> Result<S>) -> Result<()> {
    loop {
        let side = Arc::new(build(&setup).await?);
        say(READY)?;
        match obey(&side).await? {
            Some(tuning) => setup.tuning = tuning,
            None => return side.shut_down().await,
        }
    }
}

/// Obeys until it gets other parameters, or there are no more orders.
async fn obey<S: Side>(side: &Arc<S>) -> Result<Option<Tuning>> {
    let mut kept = Vec::new();
    while let Some(order) = next_order().await? {
        let (before, processor, began) = (side.operations(), processor_time(), Instant::now());
        let mut answer = Answer::default();
        match serde_json::from_str(&order)? {
            Order::Contend(order) => answer.callers = contend(side, order).await?,
            Order::Pairs { first, pairs } => {
                let side = Arc::clone(side);
                // In a task, as services do: each answer would have to wake up the main thread.
                (answer.pairs, answer.errors) =
                    tokio::spawn(time_pairs(side, first, pairs)).await??;
            }
            Order::Rounds { names, rounds } => {
                tokio::spawn(rounds_through(Arc::clone(side), names.of(0), rounds)).await??;
            }
            Order::Crowd { name, callers } => {
                answer.time = tokio::spawn(crowd(Arc::clone(side), name, callers)).await??;
            }
            Order::Keep { name } => kept.push(side.lock(&name).await?),
            Order::Once { name } => {
                let ends = now() + nanoseconds(Duration::from_secs(600));
                let (hold, once) = (Duration::ZERO, true);
                let served = contender(Arc::clone(side), vec![name], hold, ends, once);
                answer.callers.push(tokio::spawn(served).await??);
            }
            Order::Tune(tuning) => return Ok(Some(tuning)),
        }
        if answer.time.is_zero() {
            answer.time = began.elapsed();
        }
        answer.processor = processor_time() - processor;
        answer.operations = side.operations() - before;
        say(&serde_json::to_string(&answer)?)?;
    }
    Ok(None)
}

async fn contend<S: Side>(side: &Arc<S>, order: Contend) -> Result<Vec<Served>> {
    let mut tasks = Vec::new();
    for caller in 0..order.callers {
        let (side, names) = (Arc::clone(side), order.names.of(caller));
        tasks.push(tokio::spawn(contender(side, names, order.hold, order.ends, false)));
    }
    let mut served = Vec::new();
    for task in tasks {
        served.push(task.await??);
    }
    Ok(served)
}

impl Names {
    /// Those of one caller.
    fn of(&self, caller: usize) -> Vec<String> {
        match self {
            Names::Same(name) => vec![name.clone()],
            Names::Each(prefix) => vec![format!("{prefix}-{caller}")],
            Names::InTurn { prefix, names } => {
                (0..*names).map(|name| format!("{prefix}-{name}")).collect()
            }
        }
    }
}

/// Many at once, each in its turn: alone, ten thousand names would take a minute.
async fn rounds_through<S: Side>(side: Arc<S>, names: Vec<String>, rounds: u32) -> Result<()> {
    const AT_ONCE: usize = 64;
    for _ in 0..rounds {
        let mut locking = JoinSet::new();
        for some in names.chunks(names.len().div_ceil(AT_ONCE)) {
            let (side, some) = (Arc::clone(&side), some.to_vec());
            locking.spawn(async move {
                for name in &some {
                    side.unlock(side.lock(name).await?).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(locked) = locking.join_next().await {
            locked??;
        }
    }
    Ok(())
}

/// Locks and unlocks these names in turn, once or until a moment.
async fn contender<S: Side>(
    side: Arc<S>,
    names: Vec<String>,
    hold: Duration,
    ends: u64,
    once: bool,
) -> Result<Served> {
    let mut served = Served::default();
    for name in names.iter().cycle() {
        if once && served.holds.len() == 1 {
            break;
        }
        let asked = now();
        let left = Duration::from_nanos(ends.saturating_sub(asked));
        if left.is_zero() {
            break;
        }
        match timeout(left, side.lock(name)).await {
            Ok(Ok(held)) => {
                let granted = now();
                if !hold.is_zero() {
                    sleep(hold).await;
                }
                let released = now();
                served.holds.push([asked, granted, released]);
                if let Err(error) = side.unlock(held).await {
                    served.errors.push(format!("{error:#}"));
                }
            }
            Ok(Err(error)) => {
                served.errors.push(format!("{error:#}"));
                sleep(PAUSE_AFTER_ERROR).await;
            }
            Err(_time_is_over) => served.waited = now() - asked,
        }
    }
    ensure!(served.errors.len() < 10_000, "nothing but errors: {:?}", served.errors.last());
    Ok(served)
}

/// Times pairs of operations. `first` counts the pairs before, so that the next block continues
/// with the next name. A pair that fails is reported, and repeated.
async fn time_pairs<S: Side>(
    side: Arc<S>,
    first: u32,
    pairs: u32,
) -> Result<(Vec<[u64; 2]>, Vec<String>)> {
    let (mut times, mut errors) = (Vec::new(), Vec::new());
    for pair in first..first + pairs {
        let name = format!("uncontended-{}", pair % NAMES);
        loop {
            match time_pair(&*side, &name).await {
                Ok(time) => break times.push(time),
                Err(error) => errors.push(format!("{error:#}")),
            }
            ensure!(errors.len() < 10, "nothing but errors: {:?}", errors.last());
            sleep(PAUSE_AFTER_ERROR).await;
        }
    }
    Ok((times, errors))
}

async fn time_pair<S: Side>(side: &S, name: &str) -> Result<[u64; 2]> {
    let began = Instant::now();
    let held = side.lock(name).await?;
    let locked = began.elapsed();
    side.unlock(held).await?;
    Ok([nanoseconds(locked), nanoseconds(began.elapsed() - locked)])
}

/// Lets this many tasks wait for one lock, each for one grant, and serves them all: the time from
/// the first release to the last one.
async fn crowd<S: Side>(side: Arc<S>, name: String, callers: usize) -> Result<Duration> {
    let held = side.lock(&name).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (side, name) = (Arc::clone(&side), name.clone());
        tasks.spawn(async move { side.unlock(side.lock(&name).await?).await });
    }
    // Until all wait: spawned tasks run in the order in which they were spawned.
    tokio::spawn(async {}).await?;
    let began = Instant::now();
    side.unlock(held).await?;
    while let Some(served) = tasks.join_next().await {
        served??;
    }
    Ok(began.elapsed())
}

/// The processor time that this process has used, to the nanosecond.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
