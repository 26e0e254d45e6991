//! Redlock, by the crate `rslock`, in the same storms and faults: what they show of a lock that is
//! known not to survive them.

use std::time::Duration;

use rslock::{Lock, LockManager};
use tokio::time::sleep;

use super::faults::{Length, while_all_fails};
use super::storm::{self, Grant, Outcome, PAUSE_AFTER_ERROR, TTL, Taker};
use support::environment;
use support::masters::MasterServers;
use support::monotonic::now;
use support::{pace, program};

/// Says how many grants the long test is to see.
const GRANTS: &str = "BAKERY_LOCK_REDLOCK_GRANTS";

/// The test that is a program on Redlock.
const PROGRAM: &str = "redlock::redlock_program";

/// A client, and its locks.
#[derive(Clone)]
struct Redlock(LockManager);

/// A lock, and until when its client may take it for held.
struct Held {
    lock: Lock,
    valid_until: u64,
}

impl Redlock {
    fn connect(urls: Vec<String>) -> Self {
        let mut manager = LockManager::new(urls);
        // A call tries once, so that the time before it is the time before the try.
        manager.set_retry(1, Duration::ZERO);
        Redlock(manager)
    }

    /// Tries once. A lock is valid for its TTL without a hundredth of it for the drift of clocks,
    /// from just before the try.
    async fn try_lock(&self, name: &str, ttl: Duration) -> Option<Held> {
        let asked = now();
        let lock = self.0.lock(name, ttl).await.ok()?;
        let valid = ttl - ttl / 100 - Duration::from_millis(2);
        let valid = u64::try_from(valid.as_nanos()).expect("a TTL is short");
        Some(Held { lock, valid_until: asked + valid })
    }
}

impl Taker for Redlock {
    async fn take(&self, name: usize, time: Duration) {
        match self.try_lock(&storm::lock_name(name), TTL).await {
            Some(Held { lock, valid_until }) => {
                storm::hold(name, time, |asked| asked < valid_until).await;
                self.0.unlock(&lock).await;
            }
            None => sleep(PAUSE_AFTER_ERROR).await,
        }
    }
}

// Goal: the program that storms start. By itself: no two hold at the same time while nothing fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_program() {
    let Some(order) = program::order() else {
        storm::calm(PROGRAM, &MasterServers::start(3)).await;
        return;
    };
    storm::take_part(&order, async |urls| Redlock::connect(urls)).await;
}

// Goal: to count how often Redlock lets two in where the lock of this library lets in one, so that
// the figures of `faults.rs` say something.
// Method: the same programs and faults. A server that lost its data starts at once, and matters
// again once all locks from before have expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn redlock_overlaps_are_counted() {
    let grants = environment::number(GRANTS).unwrap_or(2_000);
    let length = Length { grants, each_fault: true, recovery: TTL };
    let (outcome, faults) = while_all_fails(PROGRAM, MasterServers::start(3), length).await;
    println!(
        "The same harness on rslock counts {} overlaps in {} grants, and {} if holders do not look \
         whether their locks have expired",
        outcome.overlaps.len(),
        outcome.grants,
        outcome.blind_overlaps,
    );
    // How many there are is left to chance: a server may lose what no holder needs.
    assert!(outcome.grants >= grants && !faults.contains(&0), "{faults:?}");
}

// Goal: the harness counts an overlap where there is one: Redlock lets two in where one of the two
// servers that have a lock loses its data.
// Method: the third server is down while the first client locks, and is back for the second one.
#[tokio::test]
async fn redlock_overlap_is_counted_after_data_loss() {
    let mut servers = MasterServers::start(3);
    // Longer than any of this takes on a slow machine.
    let ttl = 2 * pace::limit();
    let one = Redlock::connect(servers.urls());
    servers.kill(2);
    let first = one.try_lock("name", ttl).await.expect("two servers have it");
    let from = now();
    servers.start_again(2);
    let other = Redlock::connect(servers.urls());
    assert!(other.try_lock("name", ttl).await.is_none(), "two servers have it");
    servers.flush(0);
    let second = other.try_lock("name", ttl).await.expect("one server has it");
    let grant = |from, held: &Held| {
        let until = held.valid_until;
        Grant { name: 0, from, until, done: until }
    };
    let outcome = Outcome::of(&[grant(from, &first), grant(now(), &second)]);
    assert_eq!((outcome.grants, outcome.overlaps.len(), outcome.blind_overlaps), (2, 1, 1));
}
