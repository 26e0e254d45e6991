//! Renewals whose acknowledgement gets lost, or comes too late.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::{GuardState, LockClient, LockClientBuilder, LockGuard, LostReason, UnlockError};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::lossy::{Loss, LossySession};
use support::monotonic::now;
use support::scene::Scene;

/// A lease of 5 s: a second of the TTL goes to rounding, one to clock skew. A renewal is due after
/// 2.33 s, and a try waits for a second; so the tries begin 2.33, 3.34 and 4.36 s after the last
/// renewal, and only these three.
const TTL: Duration = Duration::from_secs(7);
const TRIES_MAX: usize = 3;

/// What a busy machine may add.
const LATE_MAX: Duration = Duration::from_secs(1);

// Goal: a renewal is repeated until it is acknowledged, and as long as that is in time the lock
// stays held: whether each renewal loses one acknowledgement, or all but that of the last try.
// Method: proxies between the holder and the nodes drop answers to renewals, for several of them in
// a row; another client waits.
#[tokio::test]
async fn renewals_whose_acknowledgements_get_lost_keep_the_lock() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    tokio::join!(lose_of_each_renewal(&scene, 1), lose_of_each_renewal(&scene, TRIES_MAX - 1));
}

async fn lose_of_each_renewal(scene: &Scene, lost: usize) {
    const RENEWALS: usize = 3;
    let name = support::unique("renewals");
    let lossy = Arc::new(LossySession::new().await);
    let victim = builder(&lossy, scene).build().await.expect("nothing is lost yet");
    let other = scene.client().await;
    let guard = victim.lock(&name).await.expect("nothing is lost yet");
    let waiting = wait_behind(&guard, &other, scene).await;
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
    assert!(unknown >= u64::try_from(lost * RENEWALS).expect("a few"));
    guard.check().await.expect("the rows are there");
    assert!(!waiting.is_finished(), "two clients hold the lock");
    let unlocked = now();
    guard.unlock().await.expect("the lock was held to the end");
    let (next, let_in) = waiting.await.expect("the task does not panic");
    assert!(let_in > unlocked);
    next.unlock().await.expect("the lock was held");
    scene.wait_for_rows(&name, 0, Duration::from_secs(1)).await;
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
// Method: proxies drop the acknowledgements of all tries but the last one before the deadline, and
// hold that one back until after it. It comes within the second for which the try waits.
#[tokio::test]
async fn an_acknowledgement_after_the_deadline_does_not_count() {
    const HELD_BACK: Duration = Duration::from_millis(950);
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("renewals");
    let lossy = Arc::new(LossySession::new().await);
    let victim = builder(&lossy, &scene).build().await.expect("nothing is lost yet");
    let other = scene.client().await;
    let guard = victim.lock(&name).await.expect("nothing is lost yet");
    let deadline = deadline(&guard);
    let waiting = wait_behind(&guard, &other, &scene).await;
    lossy.lose(Loss::Acknowledgements);
    // Before the last try, but so late that what is held back comes after the deadline.
    sleep_until(deadline - nanos(Duration::from_millis(800))).await;
    lossy.hold_back_acknowledgements(HELD_BACK).await;
    let applied = now();
    assert!(applied < deadline, "the last try came too late");

    expect_lost(&guard).await;
    let lost_at = now();
    sleep_until(applied + nanos(HELD_BACK)).await;
    let let_in = expect_lost_to_the_next(&scene, guard, deadline, waiting).await;
    println!(
        "applied {:?} before the deadline, acknowledged {:?} after it: lost {:?}, the next client \
         let in {:?} after it",
        between(applied, deadline),
        between(deadline, applied + nanos(HELD_BACK)),
        between(deadline, lost_at),
        between(deadline, let_in),
    );
    assert!((deadline..deadline + nanos(LATE_MAX)).contains(&lost_at));
    lossy.heal();
    let again = victim.lock(&name).await.expect("the client is as good as new");
    again.unlock().await.expect("the lock was held");
}

// Goal: the same for an acknowledgement that came in time, but to a client that was too busy to
// take it before the deadline.
// Method: the client runs on a thread of its own, which something blocks from when the first
// renewal is applied until after the deadline.
#[tokio::test]
async fn an_acknowledgement_taken_after_the_deadline_does_not_count() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("renewals");
    let lossy = Arc::new(LossySession::new().await);
    let (own_thread, _ends) = own_thread();
    let victim =
        own_thread.spawn(builder(&lossy, &scene).build()).await.expect("the task does not panic");
    let victim = victim.expect("nothing is lost yet");
    let other = scene.client().await;
    let guard = victim.lock(&name).await.expect("nothing is lost yet");
    let deadline = deadline(&guard);
    let waiting = wait_behind(&guard, &other, &scene).await;
    // Time enough to block the thread.
    lossy.hold_back_acknowledgements(Duration::from_millis(300)).await;
    let applied = now();
    let wakes = deadline + nanos(Duration::from_millis(200));
    let blocked = own_thread.spawn(async move { std::thread::sleep(between(now(), wakes)) });
    sleep_until(deadline).await;
    assert!(!waiting.is_finished(), "let in although the rows are there");
    blocked.await.expect("the task does not panic");

    expect_lost(&guard).await;
    let statistics = victim.statistics();
    assert_eq!((statistics.writes, statistics.unknown_outcomes), (2, 0), "the answer was there");
    let let_in = expect_lost_to_the_next(&scene, guard, deadline, waiting).await;
    println!(
        "applied {:?} before the deadline, taken note of {:?} after it: the next client let in \
         {:?} after it",
        between(applied, deadline),
        between(deadline, wakes),
        between(deadline, let_in),
    );
    lossy.heal();
    victim.shutdown().await.expect("nothing is held");
}

async fn expect_lost(guard: &LockGuard) {
    let lost = timeout(TTL, guard.lost()).await.expect("its lease is over");
    assert_eq!(lost, Some(LostReason::Expired));
}

/// Asserts that the lock is lost for good and that the next client has it. Returns when that client
/// was let in.
async fn expect_lost_to_the_next(
    scene: &Scene,
    guard: LockGuard,
    deadline: u64,
    waiting: JoinHandle<(LockGuard, u64)>,
) -> u64 {
    let name = guard.name().to_owned();
    let (next, let_in) = waiting.await.expect("the task does not panic");
    assert!(let_in > deadline, "let in {:?} too early", between(let_in, deadline));
    assert!(let_in < deadline + nanos(LATE_MAX * 2), "{:?} late", between(deadline, let_in));
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    let error = guard.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost(LostReason::Expired)), "{error:?}");
    // Whatever was on its way has come by now.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.rows(&name).await, ["entering::", "tickets::"], "of the next one alone");
    next.check().await.expect("no other client has its lock");
    next.unlock().await.expect("the lock was held");
    scene.wait_for_rows(&name, 0, Duration::from_secs(1)).await;
    let_in
}

fn builder(lossy: &LossySession, scene: &Scene) -> LockClientBuilder {
    let builder = LockClient::builder(Arc::clone(&lossy.session), scene.keyspace.clone());
    builder.host("test-host").register_host(true).ttl(TTL)
}

/// Lets another client wait for the lock of a guard; when it is let in.
async fn wait_behind(
    guard: &LockGuard,
    other: &LockClient,
    scene: &Scene,
) -> JoinHandle<(LockGuard, u64)> {
    let waiting = other.request(guard.name()).timeout(Duration::from_secs(60)).acquire();
    let waiting = tokio::spawn(async move {
        let guard = waiting.await.expect("the lock will be free");
        (guard, now())
    });
    scene.wait_for_rows(guard.name(), 3, LATE_MAX).await;
    waiting
}

/// When the lease of a guard ends, and hardly before.
fn deadline(guard: &LockGuard) -> u64 {
    // Noted before it is asked for, so that the end is not taken for later than it is.
    let asked = now();
    asked + nanos(guard.remaining())
}

/// A runtime on a thread of its own, until the sender is dropped.
fn own_thread() -> (Handle, oneshot::Sender<Infallible>) {
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
