//! Callers that ask without a pause.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bakery_lock::GuardState;
use support::polls::poll_at_most;
use tokio::time::{Instant, advance};

use super::{OBJECT, client, expect_rows, ms, s, store};

/// The shortest TTL, and the lease that it gives.
const TTL: Duration = s(5);
const LEASE: Duration = s(3);

/// More than a task takes from its channel before others have their turn, so that the channel never
/// runs empty.
const BURST: usize = 150;

/// Asks and stops waiting at once, over and over, for `time`.
async fn flood<F: Future>(time: Duration, ask: impl Fn() -> F) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        for _ in 0..BURST {
            poll_at_most(1, ask(), async || ()).await;
        }
        // Time stands still while anything can run, so it is set.
        advance(ms(25)).await;
    }
}

// Goal: a lease is renewed however many commands wait for the task of the name.
// Method: questions by the hundreds, each kind for more than a lease; for a little more than is
// left, and for the rows.
#[tokio::test(start_paused = true)]
async fn commands_do_not_delay_a_renewal() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
    flood(LEASE + s(1), || guard.ensure(LEASE)).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    flood(LEASE + s(1), || guard.check()).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    guard.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: what locks rely on is looked at, and holders are told, however many calls wait for the
// client's task.
// Method: clocks differ while a free lock is tried for by the hundreds.
#[tokio::test(start_paused = true)]
async fn calls_do_not_delay_what_holders_are_told() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
    let _other = client.lock("other").await.expect("the lock is free");
    store.set_clocks_apart(s(3));
    flood(TTL * 2, || client.try_lock("other")).await;
    // Its lease was renewed at a third of it, so no more than that is missing of it.
    assert!(guard.remaining() > LEASE / 3, "{:?}", guard.remaining());
    assert!(matches!(guard.state(), GuardState::AtRisk { .. }), "{:?}", guard.state());
    guard.unlock().await.expect("it was held");
}

// Goal: an unlock that comes after a shutdown, but before the task of the name knows of that, gives
// the lock back as any other does: no shutdown takes it from its holder first.
// Method: the client's task has passed the shutdown on when the guard is given back.
#[tokio::test(start_paused = true)]
async fn unlock_precedes_an_unknown_shutdown() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    // Tasks run in the order in which they are woken: this one, the client's, the one that gives
    // back, the name's.
    let unlocked = tokio::spawn(async move {
        let mut shutdown = pin!(client.shutdown());
        let ended = poll_at_most(1, shutdown.as_mut(), async || ()).await;
        assert!(ended.is_none(), "something is held");
        let unlocking = tokio::spawn(guard.unlock());
        shutdown.await.expect("the store answers");
        unlocking.await.expect("unlocking does not panic")
    });
    unlocked.await.expect("it does not panic").expect("it was held, and is acknowledged");
    expect_rows(&store, 0).await;
}
