//! Giving back, shutting down, and what is left when a runtime ends.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{GuardState, LockClient, LockError, LockGuard, LostReason, UnlockError};
use tokio::time::{Instant, sleep, timeout};

use super::{
    OBJECT, SOON, client, client_on_the_wall, expect_rows, ms, paused_runtime, runtime_on_the_wall,
    s, seeded, store,
};
use support::pace;

// Goal: a guard goes wherever its owner goes, and so do the futures.
// Method: the compiler.
#[test]
fn guards_and_futures_can_be_sent() {
    fn can_be_sent<T: Send + 'static>(_: impl Fn(&'static LockClient, LockGuard) -> T) {}
    fn can_be_shared<T: Send + Sync + 'static>() {}
    can_be_shared::<LockGuard>();
    can_be_shared::<LockClient>();
    can_be_shared::<bakery_lock::LostFuture>();
    can_be_shared::<LockError>();
    can_be_sent(|client, _| client.lock(OBJECT));
    can_be_sent(|client, _| client.try_lock(OBJECT));
    can_be_sent(|client, _| client.shutdown());
    can_be_sent(|_, guard| guard.unlock());
}

// Goal: a caller that comes while its client shuts down is sent away.
// Method: ask once the shutdown was asked for, before the client's task has heard of it.
#[tokio::test(start_paused = true)]
async fn no_lock_is_taken_during_a_shutdown() {
    let store = store();
    let client = client(&store, "a").await;
    let mut closing = pin!(client.shutdown());
    let mut locking = pin!(client.lock(OBJECT));
    let both_wait = poll_fn(|cx| {
        let waits =
            closing.as_mut().poll(cx).is_pending() && locking.as_mut().poll(cx).is_pending();
        Poll::Ready(waits)
    });
    assert!(both_wait.await, "the task has not run yet");
    let (closed, locked) = tokio::join!(closing, locking);
    closed.expect("nothing is held");
    assert!(matches!(locked, Err(LockError::Closed)), "{locked:?}");
}

// Goal: dropping a guard gives the lock back at once.
// Method: drop it while another client waits.
#[tokio::test(start_paused = true)]
async fn dropping_gives_the_lock_back() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "b").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let waiting = tokio::spawn(other.request(OBJECT).acquire());
    sleep(s(1)).await;
    assert!(!waiting.is_finished(), "the lock is held");
    drop(guard);
    let next = timeout(SOON, waiting).await.expect("the lock is free");
    drop(next.expect("the task does not panic").expect("the lock is free"));
    expect_rows(&store, 0).await;
}

// Goal: once an unlock has returned, no row is left, and that takes one round trip; the rows of a
// dropped guard are gone as soon.
// Method: give back what is held without and with a ticket; calls take ten milliseconds.
#[tokio::test(start_paused = true)]
async fn release_takes_one_round_trip() {
    const CALL: Duration = ms(10);
    let store = store();
    store.delay_calls(CALL);
    let (one, other) = (client(&store, "a").await, client(&store, "b").await);
    for drops in [false, true] {
        let without_ticket = one.lock(OBJECT).await.expect("the lock is free");
        let waiting = tokio::spawn(other.request(OBJECT).acquire());
        sleep(s(1)).await;
        assert_eq!(gives_back(&store, without_ticket, drops, 1).await, CALL);
        let with_ticket = waiting.await.expect("it does not panic").expect("the lock is free");
        assert_eq!(gives_back(&store, with_ticket, drops, 0).await, CALL);
    }
}

/// How long it takes until only this many rows are left.
async fn gives_back(store: &FaultyStore, guard: LockGuard, drops: bool, left: usize) -> Duration {
    let began = Instant::now();
    if drops {
        drop(guard);
        sleep(ms(10)).await;
    } else {
        guard.unlock().await.expect("it was held");
    }
    assert_eq!(store.live_rows(OBJECT), left);
    began.elapsed()
}

// Goal: a guard can be dropped where there is no runtime.
// Method: drop it on a thread of its own, while the client's runtime lives.
#[test]
fn guard_can_be_dropped_outside_a_runtime() {
    let (runtime, store) = (runtime_on_the_wall(), seeded());
    let client = runtime.block_on(client_on_the_wall(&store, "a"));
    let guard = runtime.block_on(client.lock(OBJECT)).expect("the lock is free");
    let dropping = std::thread::spawn(move || drop(guard));
    dropping.join().expect("dropping does not panic");
    let is_free = async || store.live_rows(OBJECT) == 0;
    runtime.block_on(pace::until("a free lock", is_free));
}

// Goal: a guard outlives the last handle of its client, and the task behind both ends afterwards.
// Method: drop the client, hold for many TTLs, give back.
#[tokio::test(start_paused = true)]
async fn guard_outlives_its_client() {
    let store = store();
    let guard = client(&store, "a").await.lock(OBJECT).await.expect("the lock is free");
    sleep(s(600)).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    guard.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
    let tasks = tokio::runtime::Handle::current().metrics();
    sleep(SOON).await;
    assert_eq!(tasks.num_alive_tasks(), 0, "the client's task has ended");
}

// Goal: a shutdown gives back held locks, sends waiters away and refuses later callers; when it
// returns, no row is left.
// Method: a client that holds one object and waits for another one.
#[tokio::test(start_paused = true)]
async fn shutdown_leaves_nothing() {
    let store = store();
    let (closing, other) = (client(&store, "a").await, client(&store, "b").await);
    let held = closing.lock("held").await.expect("the lock is free");
    let foreign = other.lock(OBJECT).await.expect("the lock is free");
    let waiting = tokio::spawn(closing.request(OBJECT).timeout(s(60)).acquire());
    sleep(s(1)).await;
    let (lost, token) = (held.lost(), held.cancellation_token());

    closing.shutdown().await.expect("the store answers");
    assert_eq!(store.live_rows("held"), 0);
    assert_eq!(store.live_rows(OBJECT), 1, "only the other client's");
    let waited =
        timeout(SOON, waiting).await.expect("it was sent away").expect("the task does not panic");
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert_eq!(lost.await, Some(LostReason::ClientClosed));
    assert!(token.is_cancelled());
    assert_eq!(held.state(), GuardState::Lost(LostReason::ClientClosed));
    let error = held.unlock().await.expect_err("it was lost");
    assert!(
        matches!(error, UnlockError::Lost { reason: LostReason::ClientClosed, .. }),
        "{error:?}"
    );

    expect_closed(&closing).await;
    expect_closed(&closing.clone()).await;
    closing.shutdown().await.expect("there is nothing left to do");
    foreign.unlock().await.expect("the other client goes on");
    expect_rows(&store, 0).await;
}

// Goal: a shutdown that finds no database says so when the acquire timeout is over.
// Method: every call fails.
#[tokio::test(start_paused = true)]
async fn shutdown_without_database_ends_too() {
    let store = store();
    let builder = store.client_builder().host("a");
    let client = builder.acquire_timeout(s(2)).build().await.expect("a client is built");
    let _held = client.lock(OBJECT).await.expect("the lock is free");
    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    let asked = Instant::now();
    let error = client.shutdown().await.expect_err("nothing is acknowledged");
    assert_eq!(
        error.to_string(),
        "not every lock was given back within 2s; the rest expires by \
         its ttl"
    );
    assert!((s(2)..s(2) + SOON).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    assert_eq!(store.live_rows(OBJECT), 1);
    // It continues in the background.
    store.fail_next(0, Fault::UnknownNotApplied);
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: an unlock that finds no database says so when the acquire timeout is over, and continues.
// Method: every call fails for a while.
#[tokio::test(start_paused = true)]
async fn unlock_without_database_ends_too() {
    let store = store();
    let client = client(&store, "a").await;
    let held = client.lock(OBJECT).await.expect("the lock is free");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let asked = Instant::now();
    let error = held.unlock().await.expect_err("nothing is acknowledged");
    assert!((s(5)..s(5) + SOON).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    let UnlockError::Unacknowledged { cause: Some(cause), .. } = error else {
        panic!("another error came: {error:?}");
    };
    assert_eq!(cause.outcome(), bakery_lock::Outcome::NotApplied);
    store.fail_next(0, Fault::NotApplied);
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: a client whose runtime has ended answers "closed" on another runtime, and never hangs.
// Method: end the runtime while the client holds one object and waits for another one.
#[test]
fn client_whose_runtime_ended_is_closed() {
    let (first, second) = (runtime_on_the_wall(), paused_runtime());
    let store = seeded();
    let client = first.block_on(client_on_the_wall(&store, "a"));
    let held = first.block_on(client.lock(OBJECT)).expect("the lock is free");
    let unlocked = first.block_on(client.lock("other")).expect("the lock is free");
    let lost = held.lost();
    let mut waiting = pin!(client.lock(OBJECT));
    first.block_on(poll_fn(|cx| {
        assert!(waiting.as_mut().poll(cx).is_pending(), "the lock is held");
        Poll::Ready(())
    }));
    drop(first);
    second.block_on(async {
        let waited = timeout(s(5), waiting).await.expect("it does not hang");
        assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
        expect_closed(&client).await;
        let reason = timeout(s(5), lost).await.expect("it does not hang");
        assert_eq!(reason, Some(LostReason::ClientClosed));
        assert_eq!(held.state(), GuardState::Lost(LostReason::ClientClosed));
        let error = timeout(s(5), unlocked.unlock()).await.expect("it does not hang");
        let error = error.expect_err("no task renews it any more");
        assert!(
            matches!(error, UnlockError::Lost { reason: LostReason::ClientClosed, .. }),
            "{error:?}"
        );
        timeout(s(5), client.shutdown()).await.expect("it does not hang").expect("nothing runs");
        drop(held);
    });
}

async fn expect_closed(client: &LockClient) {
    let lock = timeout(s(5), client.lock(OBJECT)).await.expect("it does not hang");
    assert!(matches!(lock, Err(LockError::Closed)), "{lock:?}");
    let won = timeout(s(5), client.try_lock("free")).await.expect("it does not hang");
    let error = won.expect_err("the client is closed");
    assert_eq!(error.to_string(), "the lock client is closed: build another");
}
