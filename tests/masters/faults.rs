//! Locks while servers and clients fail in every way at random.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::scene::{QUARANTINE, Scene};
use super::storm::{Order, Storm};
use support::environment;

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
    let seed = environment::seed();
    let mut chance = environment::chance();
    let mut scene = Scene::new().await;
    let began = Instant::now();
    let storm = Storm::begin(&scene.servers.urls(), seed);
    let mut faults = Faults { lost: None, counts: [0; 6] };
    let mut next = 0;
    while storm.grants() < grants || next < faults.counts.len() {
        sleep(Duration::from_millis(chance.random_range(100..1_500))).await;
        // Each of them once, then any.
        let fault = if next < faults.counts.len() { next } else { chance.random_range(0..6) };
        next += 1;
        faults.happen(fault, &mut scene, &storm, &mut chance).await;
    }
    let outcome = storm.end().await;
    println!(
        "{} grants in {:?}; killed and emptied, emptied, stopped servers: {:?}; stopped, killed \
         programs, nothing: {:?}; overlaps: {}; longest time without a grant {:?}, above a second \
         {:?}",
        outcome.grants,
        began.elapsed(),
        &faults.counts[..3],
        &faults.counts[3..],
        outcome.overlaps.len(),
        outcome.longest_pause,
        outcome.pauses,
    );
    assert!(outcome.overlaps.is_empty(), "{:?}", outcome.overlaps);
}

struct Faults {
    /// When a server last lost its data.
    lost: Option<Instant>,
    /// How often each fault happened.
    counts: [usize; 6],
}

impl Faults {
    async fn happen(
        &mut self,
        fault: usize,
        scene: &mut Scene,
        storm: &Storm,
        chance: &mut StdRng,
    ) {
        let server = chance.random_range(0..scene.servers.count());
        let program = chance.random_range(0..storm.programs());
        let is_whole =
            self.lost.is_none_or(|lost| lost.elapsed() > QUARANTINE + Duration::from_secs(5));
        match fault {
            0 if is_whole => {
                scene.servers.kill(server);
                sleep(Duration::from_millis(chance.random_range(0..3_000))).await;
                scene.servers.start_again(server);
                self.lost = Some(Instant::now());
            }
            1 if is_whole => {
                scene.servers.flush(server);
                self.lost = Some(Instant::now());
            }
            2 => {
                scene.servers.freeze(server);
                sleep(Duration::from_millis(chance.random_range(10..4_000))).await;
                scene.servers.thaw(server);
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
