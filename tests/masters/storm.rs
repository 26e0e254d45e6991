//! Programs that take locks while something goes wrong, and what they tell.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bakery_lock::{LockClient, LockError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::scene;
use support::masters::MasterServers;
use support::monotonic::now;
use support::program::{self, Program};

const PROGRAMS: usize = 4;
const TASKS: usize = 4;
const NAMES: usize = 6;

/// For how long a lock outlives a client that is gone.
pub(super) const TTL: Duration = Duration::from_secs(8);

/// How long callers wait before they ask for another name.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a caller that got no lock waits until it asks for another one.
pub(super) const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// The test that is a program on this library.
pub(super) const PROGRAM: &str = "storm::storming_program";

/// What a program says now and then, so that it is not taken for dead.
const GOING_ON: &str = "going on";

/// What is to happen to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It is killed, and another one started.
    Kill,
    Stop,
    Continue,
    /// It comes to its end.
    End,
}

/// Programs that take locks.
pub(super) struct Storm {
    orders: Vec<mpsc::UnboundedSender<Order>>,
    programs: JoinSet<Vec<Grant>>,
    grants: Arc<AtomicUsize>,
}

/// A lock that was held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) name: usize,
    pub(super) from: u64,
    /// When its holder last looked and still had it.
    pub(super) until: u64,
    /// When its holder was done with what it holds the lock for, whether it still had it or not.
    pub(super) done: u64,
}

/// What a storm came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) grants: usize,
    /// Pairs of grants of one name that were held at the same time.
    pub(super) overlaps: Vec<[Grant; 2]>,
    /// How many there are if holders act without a look at what they have.
    pub(super) blind_overlaps: usize,
    /// The longest time without any grant, and all such times above a second together.
    pub(super) longest_pause: Duration,
    pub(super) pauses: Duration,
}

impl Storm {
    /// Starts programs on servers: a test of this binary that calls [`take_part`].
    pub(super) fn begin(test: &'static str, urls: &[String], seed: u64) -> Self {
        let (mut orders, mut programs) = (Vec::new(), JoinSet::new());
        let grants = Arc::new(AtomicUsize::new(0));
        for number in 0..PROGRAMS {
            let (sender, receiver) = mpsc::unbounded_channel();
            let (urls, grants) = (urls.join(","), Arc::clone(&grants));
            let seed = seed.wrapping_add(1_000 * number as u64);
            programs.spawn(supervise(test, urls, seed, receiver, grants));
            orders.push(sender);
        }
        Storm { orders, programs, grants }
    }

    /// How many locks were granted so far.
    pub(super) fn grants(&self) -> usize {
        self.grants.load(Ordering::Relaxed)
    }

    pub(super) fn programs(&self) -> usize {
        self.orders.len()
    }

    /// Gives a program an order.
    pub(super) fn order(&self, program: usize, order: Order) {
        self.orders[program].send(order).expect("its supervisor runs");
    }

    /// Ends all programs, and counts.
    pub(super) async fn end(self) -> Outcome {
        for program in 0..self.programs() {
            self.order(program, Order::Continue);
            self.order(program, Order::End);
        }
        let grants: Vec<_> = self.programs.join_all().await.into_iter().flatten().collect();
        Outcome::of(&grants)
    }
}

impl Outcome {
    pub(super) fn of(grants: &[Grant]) -> Self {
        let overlaps = overlaps_until(grants, |grant| grant.until);
        let blind_overlaps = overlaps_until(grants, |grant| grant.done).len();
        let mut begins: Vec<_> = grants.iter().map(|grant| grant.from).collect();
        begins.sort_unstable();
        let pauses = begins.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0]));
        let longest_pause = pauses.clone().max().unwrap_or_default();
        let pauses = pauses.filter(|pause| *pause > Duration::from_secs(1)).sum();
        Outcome { grants: grants.len(), overlaps, blind_overlaps, longest_pause, pauses }
    }
}

/// Grants of one name, each before the last end of an earlier one.
fn overlaps_until(grants: &[Grant], ends: impl Fn(&Grant) -> u64) -> Vec<[Grant; 2]> {
    let mut of_names = BTreeMap::<usize, Vec<Grant>>::new();
    for grant in grants {
        of_names.entry(grant.name).or_default().push(*grant);
    }
    let mut overlaps = Vec::new();
    for grants in of_names.values_mut() {
        grants.sort_unstable_by_key(|grant| grant.from);
        // A later hold may end earlier, so each is compared with the longest one before it.
        let mut longest: Option<Grant> = None;
        for &grant in grants.iter() {
            overlaps.extend(longest.filter(|it| grant.from < ends(it)).map(|it| [it, grant]));
            longest = longest.filter(|it| ends(it) >= ends(&grant)).or(Some(grant));
        }
    }
    overlaps
}

/// Keeps a program running, and takes what it tells.
async fn supervise(
    test: &'static str,
    urls: String,
    mut seed: u64,
    mut orders: mpsc::UnboundedReceiver<Order>,
    grants: Arc<AtomicUsize>,
) -> Vec<Grant> {
    let mut read = Vec::new();
    let start = |seed: u64| Program::start(test, &format!("{urls} {seed}"), &[]);
    let mut program = start(seed);
    let mut take = |line: Option<String>| {
        let grant = line.filter(|line| line != GOING_ON)?;
        read.push(grant.parse::<GrantLine>().expect("programs print grants").0);
        grants.fetch_add(1, Ordering::Relaxed);
        Some(())
    };
    loop {
        tokio::select! {
            line = program.next() => match line {
                Some(line) => drop(take(Some(line))),
                // Its lock table was made again.
                None => {
                    program.finish().await;
                    seed += 1;
                    program = start(seed);
                }
            },
            order = orders.recv() => match order.expect("the storm has not ended") {
                Order::Kill => {
                    for line in program.kill().await {
                        // The last line may be cut.
                        if line.split(' ').count() == GrantLine::WORDS {
                            take(Some(line));
                        }
                    }
                    seed += 1;
                    program = start(seed);
                }
                Order::Stop => program.signal(Signal::STOP),
                Order::Continue => program.signal(Signal::CONT),
                Order::End => {
                    program.go_on().await;
                    for line in program.finish().await {
                        take(Some(line));
                    }
                    return read;
                }
            },
        }
    }
}

/// A grant as a line between processes.
struct GrantLine(Grant);

impl GrantLine {
    const WORDS: usize = 4;
}

impl std::fmt::Display for GrantLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Grant { name, from, until, done } = self.0;
        write!(f, "{name} {from} {until} {done}")
    }
}

impl std::str::FromStr for GrantLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[name, from, until, done]) => {
                let name = usize::try_from(name).map_err(|_| line.to_owned())?;
                Ok(GrantLine(Grant { name, from, until, done }))
            }
            Ok(_) | Err(_) => Err(line.to_owned()),
        }
    }
}

// Goal: the program that storms start. By itself: it takes locks, and no two at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storming_program() {
    let Some(order) = program::order() else {
        let scene = scene::Scene::new().await;
        calm(PROGRAM, &scene.servers).await;
        return;
    };
    let connect = async |urls: Vec<String>| {
        let masters = scene::connect(&urls).await;
        let builder = scene::builder(&masters).ttl(TTL).acquire_timeout(PATIENCE);
        scene::built(builder).await
    };
    take_part(&order, connect).await;
}

/// Lets programs take locks while nothing goes wrong.
pub(super) async fn calm(test: &'static str, servers: &MasterServers) {
    let storm = Storm::begin(test, &servers.urls(), support::environment::seed());
    let granted = async {
        while storm.grants() < 40 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    support::pace::within_limit("40 grants", granted).await;
    let outcome = storm.end().await;
    assert!(outcome.overlaps.is_empty(), "{outcome:?}");
}

/// A client whose locks programs of a storm take.
pub(super) trait Taker: Clone + Send + 'static {
    /// Takes a lock and holds it for this long, as [`hold`] does, or gives up.
    fn take(&self, name: usize, time: Duration) -> impl Future<Output = ()> + Send;
}

/// What a program of a storm does: it takes locks until it is to end.
pub(super) async fn take_part<T: Taker>(order: &str, connect: impl AsyncFnOnce(Vec<String>) -> T) {
    let (urls, seed) = order.split_once(' ').expect("an order has two words");
    let urls: Vec<_> = urls.split(',').map(str::to_owned).collect();
    let seed: u64 = seed.parse().expect("an order ends with a seed");
    let is_over = Arc::new(AtomicBool::new(false));
    let printing = {
        let is_over = Arc::clone(&is_over);
        tokio::task::spawn_blocking(move || {
            program::wait_for_word();
            is_over.store(true, Ordering::Relaxed);
        })
    };
    let living: JoinHandle<()> = tokio::spawn(async {
        loop {
            program::say(GOING_ON);
            sleep(Duration::from_secs(5)).await;
        }
    });
    let client = connect(urls).await;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let (client, is_over) = (client.clone(), Arc::clone(&is_over));
        let chance = StdRng::seed_from_u64(seed + number as u64);
        tasks.spawn(take_locks(client, chance, is_over));
    }
    tasks.join_all().await;
    living.abort();
    printing.await.expect("it does not panic");
}

async fn take_locks<T: Taker>(client: T, mut chance: StdRng, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let name = chance.random_range(0..NAMES);
        // Some hold for longer than a server takes to lose its data.
        let time = match chance.random_range(0..100) {
            0 => Duration::from_millis(chance.random_range(500..6_000)),
            _ => Duration::from_millis(chance.random_range(0..10)),
        };
        client.take(name, time).await;
    }
}

impl Taker for LockClient {
    async fn take(&self, name: usize, time: Duration) {
        match self.lock(&lock_name(name)).await {
            Ok(guard) => {
                hold(name, time, |_| guard.state().is_held()).await;
                // A server that is away may leave the release to the background.
                let _ = guard.unlock().await;
            }
            Err(LockError::TableGone { .. }) => std::process::exit(0),
            Err(_) => sleep(PAUSE_AFTER_ERROR).await,
        }
    }
}

/// A name as clients take it.
pub(super) fn lock_name(name: usize) -> String {
    format!("storm {name}")
}

/// Holds a lock, and tells for how long it was held for certain: its holder looks before each step
/// whether it still has it, and a step that it could take was taken when it looked. Tells as well
/// how long a holder would have acted that does not look.
pub(super) async fn hold(name: usize, time: Duration, is_held: impl Fn(u64) -> bool) {
    let began = now();
    let (mut held, mut is_lost) = (None, false);
    let done = loop {
        let asked = now();
        is_lost |= !is_held(asked);
        if !is_lost {
            let (from, _) = held.unwrap_or((asked, asked));
            held = Some((from, asked));
        }
        if Duration::from_nanos(asked - began) >= time {
            break asked;
        }
        sleep(Duration::from_millis(2)).await;
    };
    if let Some((from, until)) = held {
        program::say(&GrantLine(Grant { name, from, until, done }).to_string());
    }
}
