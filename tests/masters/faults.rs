//! Locks while servers and clients fail in every way at random.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::scene::{QUARANTINE, Scene};
use super::storm::{self, Order, Outcome, Storm};
use support::environment;
use support::masters::MasterServers;

/// Says how many grants the long test is to see.
const GRANTS: &str = "BAKERY_LOCK_MASTERS_GRANTS";

// Goal: no two clients hold a lock at the same time, whatever happens to one server at a time and
// to clients.
// Method: four programs of four tasks take six names. At random moments a server is killed and
// started without its data, emptied, or stands still, and a program is stopped for up to twice its
// lease, or killed. Data is lost on one server at a time, because a majority that loses it needs an
// operator: see `epochs.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn no_two_hold_while_servers_and_clients_fail() {
    let grants = environment::number(GRANTS).unwrap_or(5_000);
    fail(grants).await;
}

// Goal: the same for a short time, with each fault at least once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_while_servers_fail_for_a_while() {
    fail(300).await;
}

async fn fail(grants: usize) {
    let scene = Scene::new().await;
    let length = Length { grants, each_fault: false, recovery: QUARANTINE };
    let (outcome, _) = while_all_fails(storm::PROGRAM, scene.servers, length).await;
    assert!(outcome.overlaps.is_empty(), "{:?}", outcome.overlaps);
}

/// How long a run is.
pub(super) struct Length {
    /// How many grants it is to see, at least.
    pub(super) grants: usize,
    /// Whether it is to see each fault.
    pub(super) each_fault: bool,
    /// How long it takes until a server that lost its data matters again, so that another one may
    /// lose its own.
    pub(super) recovery: Duration,
}

/// Lets programs take locks while everything fails, and prints what came of it. Returns it with how
/// often each fault happened.
pub(super) async fn while_all_fails(
    test: &'static str,
    mut servers: MasterServers,
    length: Length,
) -> (Outcome, Counts) {
    let seed = environment::seed();
    let mut chance = environment::chance();
    let began = Instant::now();
    let storm = Storm::begin(test, &servers.urls(), seed);
    let mut faults = Faults { lost: None, recovery: length.recovery, counts: [0; 6] };
    let mut next = 0;
    while storm.grants() < length.grants
        || next < faults.counts.len()
        || length.each_fault && faults.counts.contains(&0)
    {
        sleep(Duration::from_millis(chance.random_range(100..1_500))).await;
        // Each of them once, then any.
        let fault = if next < faults.counts.len() { next } else { chance.random_range(0..6) };
        next += 1;
        faults.happen(fault, &mut servers, &storm, &mut chance).await;
    }
    let outcome = storm.end().await;
    println!(
        "{} grants in {:?}; killed and emptied, emptied, stopped servers: {:?}; stopped, killed \
         programs, nothing: {:?}; overlaps: {}, of holders that do not look {}; longest time \
         without a grant {:?}, above a second {:?}",
        outcome.grants,
        began.elapsed(),
        &faults.counts[..3],
        &faults.counts[3..],
        outcome.overlaps.len(),
        outcome.blind_overlaps,
        outcome.longest_pause,
        outcome.pauses,
    );
    (outcome, faults.counts)
}

/// How often each fault happened.
type Counts = [usize; 6];

struct Faults {
    /// When a server last lost its data.
    lost: Option<Instant>,
    recovery: Duration,
    counts: Counts,
}

impl Faults {
    async fn happen(
        &mut self,
        fault: usize,
        servers: &mut MasterServers,
        storm: &Storm,
        chance: &mut StdRng,
    ) {
        let server = chance.random_range(0..servers.count());
        let program = chance.random_range(0..storm.programs());
        let is_whole =
            self.lost.is_none_or(|lost| lost.elapsed() > self.recovery + Duration::from_secs(5));
        match fault {
            0 if is_whole => {
                servers.kill(server);
                sleep(Duration::from_millis(chance.random_range(0..3_000))).await;
                servers.start_again(server);
                self.lost = Some(Instant::now());
            }
            1 if is_whole => {
                servers.flush(server);
                self.lost = Some(Instant::now());
            }
            2 => {
                servers.freeze(server);
                sleep(Duration::from_millis(chance.random_range(10..4_000))).await;
                servers.thaw(server);
            }
            3 => {
                storm.order(program, Order::Stop);
                sleep(Duration::from_millis(chance.random_range(10..16_000))).await;
                storm.order(program, Order::Continue);
            }
            4 => storm.order(program, Order::Kill),
            _ => {
                self.counts[5] += 1;
                return;
            }
        }
        self.counts[fault] += 1;
    }
}
