//! Renewals whose acknowledgement gets lost, or comes too late.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::{
    GuardState, LockClient, LockClientBuilder, LockGuard, LockHandle, LostReason, UnlockError,
};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::lossy::{Loss, LossyLink};
use super::scene::{Scene, built};
use support::monotonic::now;
use support::{pace, rows};

/// How many tries of a renewal are lost: half of them, which leaves seconds to the next one. That
/// the very last one counts too is tested in virtual time.
const LOST_MAX: usize = 3;

// Goal: a renewal is repeated until it is acknowledged, and as long as that is in time the lock
// stays held: whether each renewal loses one acknowledgement, or several.
// Method: proxies between the holder and the database lose answers to renewals, for several of them
// in a row; another client waits.
#[tokio::test]
async fn renewals_whose_acknowledgements_get_lost_keep_the_lock() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    tokio::join!(lose_of_each_renewal(&scene, 1), lose_of_each_renewal(&scene, LOST_MAX));
}

async fn lose_of_each_renewal(scene: &Scene, lost: usize) {
    const RENEWALS: usize = 3;
    let name = support::unique("renewals");
    let lossy = Arc::new(LossyLink::new(scene).await);
    let victim = built(builder(&lossy, scene)).await;
    let other = scene.client().await;
    let guard = victim.lock(&name).await.expect("nothing is lost yet");
    let waiting = wait_behind(&guard, &other).await;
    let before = victim.statistics();
    let mut shortest = guard.remaining();
    for _ in 0..RENEWALS {
        lossy.lose_acknowledgements(lost).await;
        shortest = shortest.min(renewed(&guard).await);
        assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    }
    let after = victim.statistics();
    let unknown = after.unknown_outcomes - before.unknown_outcomes;
    println!(
        "{lost} lost of each of {RENEWALS} renewals: {} tries, {unknown} of unknown outcome; the \
         lease lasted for {shortest:?} at least",
        after.writes - before.writes,
    );
    // What is lost may be a late answer to a try that has ended already.
    assert!(unknown >= u64::try_from(RENEWALS).expect("a few"), "no renewal was repeated");
    guard.check().await.expect("the rows are there");
    assert!(!waiting.is_finished(), "two clients hold the lock");
    let unlocked = now();
    guard.unlock().await.expect("the lock was held to the end");
    let (next, let_in) = waiting.await.expect("the task does not panic");
    assert!(let_in > unlocked);
    next.unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
}

/// Waits until a renewal is acknowledged. How long the lease still lasted then.
async fn renewed(guard: &LockGuard) -> Duration {
    let mut before = guard.remaining();
    loop {
        sleep(Duration::from_millis(1)).await;
        let remaining = guard.remaining();
        assert!(!remaining.is_zero(), "it is {:?}", guard.state());
        if remaining > before {
            return before;
        }
        before = remaining;
    }
}

// Goal: a renewal that is acknowledged only after the old deadline does not count: the lock is lost
// at that deadline and stays lost, its rows go, and the next client is let in then, not before.
// Method: proxies lose the acknowledgements of all tries but the last one before the deadline, and
// hold that one back until after it. It comes within the second for which the try waits.
#[tokio::test]
async fn acknowledgement_after_the_deadline_does_not_count() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    // When the last try comes depends on the TTL: with the same one it would be missed each time.
    let mut ttl = ttl();
    let tried = async || {
        let tried = acknowledge_late(&scene, ttl).await;
        ttl += Duration::from_secs(1);
        tried
    };
    pace::until("a try just before the deadline", tried).await;
}

/// Whether the last try came before the deadline and its acknowledgement after it, which a busy
/// machine may miss.
async fn acknowledge_late(scene: &Scene, ttl: Duration) -> bool {
    const HELD_BACK: Duration = Duration::from_millis(950);
    let held = Held::on(&Handle::current(), scene, ttl).await;
    held.lossy.lose(Loss::Acknowledgements);
    // Before the last try, but so late that what is held back comes after the deadline.
    sleep_until(held.deadline - nanos(Duration::from_millis(900))).await;
    held.lossy.hold_back_acknowledgements(HELD_BACK).await;
    let applied = now();
    let acknowledged = applied + nanos(HELD_BACK);
    if held.is_renewed() || applied >= held.deadline || acknowledged <= held.deadline {
        held.give_up().await;
        return false;
    }
    expect_lost(&held.guard).await;
    let lost_at = now();
    sleep_until(acknowledged).await;
    let (lossy, victim, deadline) = (Arc::clone(&held.lossy), held.victim.clone(), held.deadline);
    let let_in = held.expect_lost_to_the_next(scene).await;
    println!(
        "applied {:?} before the deadline, acknowledged {:?} after it: lost {:?}, the next client \
         let in {:?} after it",
        between(applied, deadline),
        between(deadline, acknowledged),
        between(deadline, lost_at),
        between(deadline, let_in),
    );
    assert!(lost_at >= deadline);
    lossy.heal();
    let again = victim.lock(&support::unique("again")).await;
    again.expect("the client is as good as new").unlock().await.expect("the lock was held");
    true
}

// Goal: the same for an acknowledgement that came in time, but to a client that was too busy to
// take it before the deadline.
// Method: the client runs on a thread of its own, which something blocks from when the first
// renewal is applied until after the deadline.
#[tokio::test]
async fn acknowledgement_taken_late_does_not_count() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    pace::until("a client is blocked in time", async || take_late(&scene).await).await;
}

/// Whether the client was blocked before it had the acknowledgement, which a busy machine may miss.
async fn take_late(scene: &Scene) -> bool {
    let (own_thread, _ends) = own_thread();
    let held = Held::on(&own_thread, scene, ttl()).await;
    // Time enough to block the thread.
    held.lossy.hold_back_acknowledgements(Duration::from_millis(700)).await;
    let (applied, deadline) = (now(), held.deadline);
    let wakes = deadline + nanos(Duration::from_millis(200));
    let lock = held.guard.handle();
    let blocked = own_thread.spawn(async move {
        let in_time = !is_renewed(&lock, deadline) && now() < deadline;
        std::thread::sleep(between(now(), wakes));
        in_time
    });
    sleep_until(deadline).await;
    let is_let_in = held.waiting.is_finished();
    if !blocked.await.expect("the task does not panic") {
        held.give_up().await;
        return false;
    }
    assert!(!is_let_in, "let in although the rows are there");
    expect_lost(&held.guard).await;
    let statistics = held.victim.statistics();
    assert_eq!((statistics.writes, statistics.unknown_outcomes), (2, 0), "the answer was there");
    let (lossy, victim) = (Arc::clone(&held.lossy), held.victim.clone());
    let let_in = held.expect_lost_to_the_next(scene).await;
    println!(
        "applied {:?} before the deadline, taken note of {:?} after it: the next client let in \
         {:?} after it",
        between(applied, deadline),
        between(deadline, wakes),
        between(deadline, let_in),
    );
    lossy.heal();
    victim.shutdown().await.expect("nothing is held");
    true
}

/// A lock that is held by a client whose acknowledgements may get lost, while another one waits.
struct Held {
    lossy: Arc<LossyLink>,
    victim: LockClient,
    guard: LockGuard,
    /// When its first lease ends, and hardly before.
    deadline: u64,
    waiting: JoinHandle<(LockGuard, u64)>,
}

impl Held {
    /// Builds the holder's client on a runtime.
    async fn on(runtime: &Handle, scene: &Scene, ttl: Duration) -> Self {
        let name = support::unique("renewals");
        let lossy = Arc::new(LossyLink::new(scene).await);
        let victim = runtime.spawn(built(builder(&lossy, scene).ttl(ttl))).await;
        let victim = victim.expect("the task does not panic");
        let other = scene.client().await;
        let guard = victim.lock(&name).await.expect("nothing is lost yet");
        let deadline = end_of(&guard);
        let waiting = wait_behind(&guard, &other).await;
        Held { lossy, victim, guard, deadline, waiting }
    }

    /// Whether a renewal was acknowledged since it was granted.
    fn is_renewed(&self) -> bool {
        is_renewed(&self.guard, self.deadline)
    }

    /// Gives the lock back where the machine was too busy to show anything.
    async fn give_up(self) {
        println!("the machine was too busy: once more");
        self.lossy.heal();
        drop(self.guard);
        let (next, _) = self.waiting.await.expect("the task does not panic");
        next.unlock().await.expect("the lock was held");
        self.victim.shutdown().await.expect("nothing is lost any more");
    }

    /// Asserts that the lock is lost for good and that the next client has it. Returns when that
    /// client was let in.
    async fn expect_lost_to_the_next(self, scene: &Scene) -> u64 {
        let Held { guard, deadline, waiting, .. } = self;
        let name = guard.name().to_owned();
        let (next, let_in) = waiting.await.expect("the task does not panic");
        assert!(let_in > deadline, "let in {:?} too early", between(let_in, deadline));
        assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
        let error = guard.unlock().await.expect_err("it was lost");
        assert!(
            matches!(error, UnlockError::Lost { reason: LostReason::Expired, .. }),
            "{error:?}"
        );
        // Whatever was on its way has come by now.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.rows(&name).await, ["entering::"], "of the next one alone");
        next.check().await.expect("no other client has its lock");
        next.unlock().await.expect("the lock was held");
        scene.wait_until_deleted(&name).await;
        let_in
    }
}

async fn expect_lost(guard: &LockGuard) {
    let lost = pace::within_limit("the end of a lease", guard.lost()).await;
    assert_eq!(lost, Some(LostReason::Expired));
}

fn builder(lossy: &LossyLink, scene: &Scene) -> LockClientBuilder {
    lossy.builder(scene).ttl(ttl())
}

/// Lets another client wait for the lock of a guard; when it is let in.
async fn wait_behind(guard: &LockGuard, other: &LockClient) -> JoinHandle<(LockGuard, u64)> {
    let waiting = other.request(guard.name()).acquire();
    let waiting = tokio::spawn(async move {
        let guard = waiting.await.expect("the lock will be free");
        (guard, now())
    });
    rows::wait_for_tickets(other, guard.name(), 1).await;
    waiting
}

/// When the lease of a lock ends, and hardly before.
fn end_of(lock: &LockHandle) -> u64 {
    // Noted before it is asked for, so that the end is not taken for later than it is.
    let asked = now();
    asked + nanos(lock.remaining())
}

/// Whether a renewal was acknowledged since a lease ended at `deadline`: it adds seconds.
fn is_renewed(lock: &LockHandle, deadline: u64) -> bool {
    end_of(lock) > deadline + nanos(Duration::from_secs(1))
}

/// A runtime on a thread of its own, until the sender is dropped.
pub(crate) fn own_thread() -> (Handle, oneshot::Sender<Infallible>) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let (ends, ended) = oneshot::channel();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(ended));
    (handle, ends)
}

async fn sleep_until(time: u64) {
    sleep(between(now(), time)).await;
}

fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a test is short")
}

/// A lease of 10 s: a second of the TTL goes to rounding, one to clock skew. A renewal is due after
/// 4 s, and a try waits for a second; so up to six tries begin before the lease is over.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(12))
}
