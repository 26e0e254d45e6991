//! Programs that take locks while something goes wrong, and what they tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bakery_lock::{LockClient, LockError, LockGuard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::scene;
use support::history::Moment;
use support::monotonic::now;
use support::program::{self, Program};

const PROGRAMS: usize = 4;
const TASKS: usize = 4;
const NAMES: usize = 6;

/// How long callers wait before they ask for another name.
const PATIENCE: Duration = Duration::from_secs(2);

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
    name: usize,
    from: u64,
    until: u64,
}

/// What a storm came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) grants: usize,
    /// Pairs of grants of one name that were held at the same time.
    pub(super) overlaps: Vec<[Grant; 2]>,
    /// The longest time without any grant, and all such times above a second together.
    pub(super) longest_pause: Duration,
    pub(super) pauses: Duration,
}

impl Storm {
    /// Starts programs on servers.
    pub(super) fn begin(urls: &[String], seed: u64) -> Self {
        let (mut orders, mut programs) = (Vec::new(), JoinSet::new());
        let grants = Arc::new(AtomicUsize::new(0));
        for number in 0..PROGRAMS {
            let (sender, receiver) = mpsc::unbounded_channel();
            let (urls, grants) = (urls.join(","), Arc::clone(&grants));
            let seed = seed.wrapping_add(1_000 * number as u64);
            programs.spawn(supervise(urls, seed, receiver, grants));
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
    fn of(grants: &[Grant]) -> Self {
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
                overlaps.extend(longest.filter(|it| grant.from < it.until).map(|it| [it, grant]));
                longest = longest.filter(|it| it.until >= grant.until).or(Some(grant));
            }
        }
        let mut begins: Vec<_> = grants.iter().map(|grant| grant.from).collect();
        begins.sort_unstable();
        let pauses = begins.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0]));
        let longest_pause = pauses.clone().max().unwrap_or_default();
        let pauses = pauses.filter(|pause| *pause > Duration::from_secs(1)).sum();
        Outcome { grants: grants.len(), overlaps, longest_pause, pauses }
    }
}

/// Keeps a program running, and takes what it tells.
async fn supervise(
    urls: String,
    mut seed: u64,
    mut orders: mpsc::UnboundedReceiver<Order>,
    grants: Arc<AtomicUsize>,
) -> Vec<Grant> {
    let mut read = Vec::new();
    let start =
        |seed: u64| Program::start("storm::storming_program", &format!("{urls} {seed}"), &[]);
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
                        if line.split(' ').count() == 3 {
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

impl std::str::FromStr for GrantLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (name, moment) = line.split_once(' ').ok_or_else(|| line.to_owned())?;
        let name = name.parse().map_err(|_| line.to_owned())?;
        match format!("held {moment}").parse()? {
            Moment::Held { from, until } => Ok(GrantLine(Grant { name, from, until })),
            Moment::Round(_) | Moment::Place(_) => Err(line.to_owned()),
        }
    }
}

// Goal: the program that storms start. By itself: it takes locks, and no two at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storming_program() {
    let Some(order) = program::order() else {
        let scene = scene::Scene::new().await;
        let storm = Storm::begin(&scene.servers.urls(), support::environment::seed());
        let granted = async {
            while storm.grants() < 40 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        support::pace::within_limit("40 grants", granted).await;
        let outcome = storm.end().await;
        assert!(outcome.overlaps.is_empty(), "{outcome:?}");
        return;
    };
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
    let masters = scene::connect(&urls).await;
    let builder = scene::builder(&masters).ttl(Duration::from_secs(8)).acquire_timeout(PATIENCE);
    let client = scene::built(builder).await;
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

async fn take_locks(client: LockClient, mut chance: StdRng, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let name = chance.random_range(0..NAMES);
        // Some hold for longer than a server takes to lose its data.
        let hold = match chance.random_range(0..100) {
            0 => Duration::from_millis(chance.random_range(500..6_000)),
            _ => Duration::from_millis(chance.random_range(0..10)),
        };
        match client.lock(&format!("storm {name}")).await {
            Ok(guard) => hold_lock(guard, name, hold).await,
            Err(LockError::TableGone { .. }) => std::process::exit(0),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Holds a lock, and tells for how long it was held for certain: it looks at its guard before each
/// step, and a step that it could take was taken when the guard said so.
async fn hold_lock(guard: LockGuard, name: usize, hold: Duration) {
    let began = now();
    let (mut first, mut last) = (None, began);
    loop {
        let asked = now();
        if !guard.state().is_held() {
            break;
        }
        first = first.or(Some(asked));
        last = asked;
        if Duration::from_nanos(asked - began) >= hold {
            break;
        }
        sleep(Duration::from_millis(2)).await;
    }
    if let Some(first) = first {
        program::say(&format!("{name} {first} {last}"));
    }
    // A server that is away may leave the release to the background.
    let _ = guard.unlock().await;
}
