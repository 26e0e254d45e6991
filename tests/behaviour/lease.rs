//! How long a lock is held, and what its guard knows of that.

use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{GuardState, LockGuard, LostReason, UnlockError};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// The shortest TTL, and the lease that it gives: a second less for rounding, one for clock skew.
const TTL: Duration = s(5);
const LEASE: Duration = s(3);

async fn hold(store: &FaultyStore, renew: bool) -> LockGuard {
    let client = client(store, "holder").await;
    let guard = client.request(OBJECT).ttl(TTL).auto_renew(renew).acquire().await;
    guard.expect("the lock is free")
}

// Goal: a held lock is renewed as long as it is held.
// Method: hold for twelve TTLs, in which another client tries all the time.
#[tokio::test(start_paused = true)]
async fn renewal_keeps_a_lock_over_many_ttls() {
    let store = store();
    let guard = hold(&store, true).await;
    let other = client(&store, "other").await;
    let until = Instant::now() + TTL * 12;
    while Instant::now() < until {
        assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
        assert!(guard.remaining() > LEASE / 3 && guard.remaining() <= LEASE);
        let won = other.try_lock(OBJECT).await.expect("the store answers");
        assert!(won.is_none(), "a held lock was taken");
        sleep(ms(300)).await;
    }
    guard.unlock().await.expect("the lock was held to the end");
    expect_rows(&store, 0).await;
}

// Goal: without renewal a lock is held for one lease, and the next client gets it then, not before.
// Method: another client waits; both note the time.
#[tokio::test(start_paused = true)]
async fn without_renewal_a_lock_is_held_for_one_lease() {
    let store = store();
    let began = Instant::now();
    let guard = hold(&store, false).await;
    let (lost, token) = (guard.lost(), guard.cancellation_token());
    let lost = tokio::spawn(async move { (lost.await, began.elapsed()) });
    let other = client(&store, "other").await;
    let next = other.request(OBJECT).timeout(s(60)).acquire().await.expect("the lease ends");
    let granted = began.elapsed();
    let (reason, ended) = lost.await.expect("the task does not panic");
    assert_eq!(reason, Some(LostReason::Expired));
    assert!((LEASE..LEASE + SOON).contains(&ended), "lost after {ended:?}");
    // A waiter looks again after a sixteenth of its wait, or a little more.
    assert!((ended..LEASE + LEASE / 8).contains(&granted), "granted after {granted:?}");
    assert!(token.is_cancelled());
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    assert_eq!(guard.remaining(), Duration::ZERO);
    let error = guard.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    next.unlock().await.expect("the store answers");
    expect_rows(&store, 0).await;
}

// Goal: a guard that was given back says so, and nothing was lost.
// Method: unlock and drop, with everything that watches the guard.
#[tokio::test(start_paused = true)]
async fn release_is_no_loss() {
    let store = store();
    let guard = hold(&store, true).await;
    let (lost, token) = (guard.lost(), guard.cancellation_token());
    assert!(timeout(s(60), guard.lost()).await.is_err(), "it is held");
    assert!(!token.is_cancelled());
    guard.unlock().await.expect("the store answers");
    assert_eq!(timeout(SOON, lost).await.expect("it was given back"), None);
    assert!(token.is_cancelled());

    let guard = hold(&store, true).await;
    let (lost, token) = (guard.lost(), guard.cancellation_token());
    drop(guard);
    assert_eq!(timeout(SOON, lost).await.expect("it was given back"), None);
    assert!(token.is_cancelled());
    expect_rows(&store, 0).await;
}

// Goal: a guard that was lost gives nothing back, least of all what the next holder holds.
// Method: the next holder is of the same client, and so of the same contender, and is let in before
// the old guard is dropped.
#[tokio::test(start_paused = true)]
async fn lost_guard_gives_nothing_back() {
    let store = store();
    let client = client(&store, "holder").await;
    let lost = client.request(OBJECT).ttl(TTL).auto_renew(false).acquire().await;
    let lost = lost.expect("the lock is free");
    let next = client.request(OBJECT).timeout(s(60)).acquire().await.expect("the lease ends");
    assert_eq!(lost.state(), GuardState::Lost(LostReason::Expired));
    drop(lost);
    sleep(SOON).await;
    assert_eq!(store.live_rows(OBJECT), 1);
    assert!(matches!(next.state(), GuardState::Held { .. }), "{:?}", next.state());
    next.unlock().await.expect("it was held to the end");
    expect_rows(&store, 0).await;
}

// Goal: cancelling what the guard handed out does nothing to the lock.
// Method: cancel it and hold on.
#[tokio::test(start_paused = true)]
async fn token_only_tells() {
    let store = store();
    let guard = hold(&store, true).await;
    guard.cancellation_token().cancel();
    sleep(TTL * 2).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    assert!(!guard.cancellation_token().is_cancelled());
}

// Goal: when no renewal is acknowledged, the guard first warns, then is lost for good, at the end
// of the lease and not later; no other client was let in before.
// Method: every write fails with an unknown outcome, and none is applied.
#[tokio::test(start_paused = true)]
async fn guard_warns_before_it_is_lost() {
    let store = store();
    let began = Instant::now();
    let guard = hold(&store, true).await;
    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    sleep(LEASE / 2).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    sleep(LEASE / 4).await;
    let GuardState::AtRisk { remaining } = guard.state() else {
        panic!("nothing was acknowledged for long: {:?}", guard.state());
    };
    assert_eq!(remaining, guard.remaining());
    let reason = guard.lost().await;
    assert_eq!(reason, Some(LostReason::Expired));
    assert!((LEASE..LEASE + ms(20)).contains(&began.elapsed()), "{:?}", began.elapsed());

    // Once the database answers again the rows go, but what is lost stays lost.
    store.fail_next(0, Fault::UnknownNotApplied);
    sleep(s(1)).await;
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: an outage that is shorter than what is left of the lease costs nothing.
// Method: the first renewal fails for a while, in each way in which it can.
#[tokio::test(start_paused = true)]
async fn short_outage_loses_nothing() {
    for fault in [Fault::NotApplied, Fault::UnknownNotApplied, Fault::UnknownApplied] {
        let store = store();
        let guard = hold(&store, true).await;
        store.fail_next(usize::MAX, fault);
        sleep(LEASE * 3 / 4).await;
        store.fail_next(0, fault);
        sleep(TTL * 3).await;
        assert!(matches!(guard.state(), GuardState::Held { .. }), "{fault:?}: {:?}", guard.state());
        guard.unlock().await.expect("the store answers");
        expect_rows(&store, 0).await;
    }
}

// Goal: a renewal that gets no answer is tried again until the lease ends.
// Method: no call is answered, for a lease; note when calls are made.
#[tokio::test(start_paused = true)]
async fn renewal_is_tried_until_the_lease_ends() {
    let store = store();
    let client = client(&store, "holder").await;
    let began = Instant::now();
    let guard = client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
    store.fail_next(usize::MAX, Fault::UnknownApplied);
    let (mut before, mut tries) = (client.statistics().operations(), Vec::new());
    while guard.remaining() > Duration::ZERO {
        let operations = client.statistics().operations();
        if operations > before {
            tries.push(began.elapsed());
        }
        before = operations;
        sleep(ms(1)).await;
    }
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    let last = tries.last().expect("a renewal was due");
    assert!(tries.len() >= 4 && LEASE.saturating_sub(*last) < ms(800), "{tries:?}");
}

// Goal: a renewal that is acknowledged after the lease does not bring it back.
// Method: the answer to it takes until then.
#[tokio::test(start_paused = true)]
async fn renewal_acknowledged_too_late_does_not_count() {
    let store = store();
    let began = Instant::now();
    let guard = hold(&store, true).await;
    store.delay_calls(s(2));
    assert_eq!(guard.lost().await, Some(LostReason::Expired));
    assert!((LEASE..LEASE + ms(20)).contains(&began.elapsed()), "{:?}", began.elapsed());
    sleep(s(2)).await;
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    assert_eq!(guard.remaining(), Duration::ZERO);
}

// Goal: a waiting contender keeps its place over many TTLs.
// Method: two clients wait behind a holder for a minute, and are let in in their order.
#[tokio::test(start_paused = true)]
async fn waiting_keeps_the_place() {
    let store = store();
    let guard = hold(&store, true).await;
    let mut waiting = Vec::new();
    for host in ["first", "second"] {
        let request = client(&store, host).await.request(OBJECT).ttl(TTL).timeout(s(300));
        waiting.push(tokio::spawn(request.acquire()));
        sleep(ms(50)).await;
    }
    sleep(TTL * 12).await;
    assert_eq!(store.live_rows(OBJECT), 1 + 1 + 1);
    guard.unlock().await.expect("it was held to the end");
    let mut second = waiting.pop().expect("there are two");
    let first = waiting.pop().expect("there are two").await.expect("the task does not panic");
    let first = first.expect("it is the first in line");
    assert!(timeout(s(10), &mut second).await.is_err(), "the first one holds");
    drop(first);
    let second = second.await.expect("the task does not panic").expect("it is next in line");
    second.unlock().await.expect("the store answers");
    expect_rows(&store, 0).await;
}
