//! Where the tests of this program take their chance from: a seed, and their own names.
//!
//! The seed is the same in each run unless `BAKERY_LOCK_BEHAVIOUR_SEED` says another one, so a run
//! says the same on any machine. `scripts/behaviour-seeds` tries many.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;

use bakery_lock::testing::{Fault, FaultyStore};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;
use uuid::Uuid;

use support::environment::seed_named;

use super::warnings::record;
use super::{OBJECT, client, ms};

/// Names the seed.
const SEED: &str = "BAKERY_LOCK_BEHAVIOUR_SEED";

const SEED_DEFAULT: u64 = 0;

/// Has all stores write and read in one call, as masters do. The suite is run so, too.
const EXCHANGES: &str = "BAKERY_LOCK_BEHAVIOUR_EXCHANGES";

/// A store whose clients take all chance from the seed of this run.
///
/// It is the thread that tells which test asks, so a store must be made on the test's own one.
pub(crate) fn seeded() -> FaultyStore {
    record();
    let store = FaultyStore::seeded(draw());
    store.exchange(exchanges());
    store
}

/// Whether all stores write and read in one call: announcements and tickets then cost one call
/// instead of two, and a waiter's questions are writes.
pub(crate) fn exchanges() -> bool {
    std::env::var_os(EXCHANGES).is_some()
}

/// Chance for what a test does itself. It too must be made on the test's own thread.
pub(crate) fn chance() -> StdRng {
    StdRng::seed_from_u64(draw())
}

fn draw() -> u64 {
    thread_local! {
        static CHANCE: RefCell<StdRng> = RefCell::new(of_this_test());
    }
    CHANCE.with_borrow_mut(Rng::random)
}

/// Other stores of the same test get other chance, and so do other tests.
fn of_this_test() -> StdRng {
    let seed = seed_named(SEED, || SEED_DEFAULT);
    let thread = thread::current();
    let test = thread.name().expect("the harness names the thread of each test after it");
    let mut hasher = DefaultHasher::new();
    (seed, test).hash(&mut hasher);
    StdRng::seed_from_u64(hasher.finish())
}

// Goal: a seed repeats a run, and others bring others.
// Method: run a client against a database that fails, so that it spreads its tries.
#[tokio::test(start_paused = true)]
async fn seed_repeats_a_run() {
    let first = run(1).await;
    assert_eq!(run(1).await, first);
    let mut others = Vec::new();
    for seed in 2..12 {
        others.push(run(seed).await);
    }
    assert!(others.iter().all(|other| other.0 != first.0), "clients have the same id: {others:?}");
    assert!(others.iter().any(|other| other.1 != first.1), "tries are made at the same moments");
}

/// What tells a client from others, and how many tries it had made after each pause while none of
/// them succeeded.
async fn run(seed: u64) -> (Uuid, Vec<u64>) {
    record();
    let store = FaultyStore::seeded(seed);
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let contenders = client.contenders(OBJECT).await.expect("the store answers");
    store.fail_next(usize::MAX, Fault::NotApplied);
    drop(guard);
    let mut tries = Vec::new();
    for _ in 0..50 {
        sleep(ms(100)).await;
        tries.push(client.statistics().deletes);
    }
    (contenders[0].client, tries)
}
