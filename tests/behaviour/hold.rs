//! What a holder can make sure of, and how long it may hold at most.

use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{
    EnsureError, ExpiringReason, GuardState, InvalidOption, LockError, LockGuard, LostReason,
    UnlockError,
};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// A TTL, and the lease that it gives: a second less for rounding, one for clock skew.
const TTL: Duration = s(12);
const LEASE: Duration = s(10);

async fn hold(store: &FaultyStore) -> LockGuard {
    let client = client(store, "holder").await;
    client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free")
}

// Goal: a caller that needs the lock for some time gets a lease for it: without any I/O where
// enough is left, else by one renewal.
// Method: ask for a short time, then for a longer time than what is left; count operations.
#[tokio::test(start_paused = true)]
async fn lease_is_ensured() {
    let store = store();
    let client = client(&store, "holder").await;
    let guard = client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
    sleep(s(3)).await;
    let before = client.statistics();
    let remaining = guard.ensure(s(6)).await.expect("so much is left");
    assert!(remaining >= s(6) && remaining <= LEASE - s(3), "{remaining:?}");
    assert_eq!(client.statistics(), before);

    let remaining = guard.ensure(s(9)).await.expect("a renewal gives as much");
    assert!(remaining >= s(9) && remaining <= LEASE, "{remaining:?}");
    assert_eq!(client.statistics().writes, before.writes + 1);
    guard.unlock().await.expect("the lock was held");
}

// Goal: a renewal that was under way when a lease was asked for, and came back too late for it, is
// followed by another one.
// Method: the database is slow when the renewal is due, and fast again before it is acknowledged.
#[tokio::test(start_paused = true)]
async fn lease_is_ensured_after_a_renewal_that_was_too_slow() {
    let store = store();
    let guard = hold(&store).await;
    sleep(TTL / 3 - s(1)).await;
    store.delay_calls(s(2));
    // The renewal has read, and its write will reach the table in half a second.
    sleep(ms(3_500)).await;
    store.delay_calls(ms(1));
    let asked = Instant::now();
    let remaining = guard.ensure(ms(9_500)).await.expect("the second renewal gives as much");
    assert!(remaining >= ms(9_500) && remaining <= LEASE, "{remaining:?}");
    assert!((ms(500)..ms(500) + SOON).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    guard.unlock().await.expect("the lock was held");
}

// Goal: a lease that can't be had is refused at once, after two renewals, and the lock stays held.
// Method: ask for more than the TTL gives, and of a lock that is not renewed.
#[tokio::test(start_paused = true)]
async fn lease_that_can_not_be_had_is_refused() {
    let store = store();
    let holder = client(&store, "holder").await;
    let guard = holder.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
    let before = holder.statistics();
    let error = timeout(SOON, guard.ensure(TTL)).await.expect("it answers at once");
    let error = error.expect_err("no lease lasts as long as its ttl");
    assert!(matches!(error, EnsureError::TooLong { min: TTL, .. }), "{error:?}");
    assert!(error.to_string().contains("use a longer ttl"), "{error}");
    assert_eq!(holder.statistics().writes, before.writes + 2);
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    guard.unlock().await.expect("the lock was held");

    let client = client(&store, "other").await;
    let request = client.request(OBJECT).ttl(TTL).auto_renew(false);
    let guard = request.acquire().await.expect("the lock is free");
    sleep(s(3)).await;
    assert!(guard.ensure(s(6)).await.is_ok());
    let error = guard.ensure(s(9)).await.expect_err("it is not renewed");
    assert!(matches!(error, EnsureError::TooLong { .. }), "{error:?}");
    guard.check().await.expect("the rows are there");
    guard.unlock().await.expect("the lock was held");
}

// Goal: while the database does not answer, asking ends with an error in time, and with the reason
// once the lock is lost.
// Method: all calls fail; the acquire timeout is five seconds, the lease ten.
#[tokio::test(start_paused = true)]
async fn unanswered_question_ends_in_time() {
    let store = store();
    let guard = hold(&store).await;
    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    let asked = Instant::now();
    let (ensured, checked) = tokio::join!(guard.ensure(LEASE), guard.check());
    for error in [ensured.expect_err("nothing answers"), checked.expect_err("nothing answers")] {
        let EnsureError::Unconfirmed { waited, cause: Some(_), .. } = error else {
            panic!("another error came: {error:?}");
        };
        assert!((s(5)..s(5) + SOON).contains(&waited), "{waited:?}");
    }
    assert!(asked.elapsed() < s(5) + SOON, "{:?}", asked.elapsed());
    sleep(s(2)).await;
    let error = guard.ensure(LEASE).await.expect_err("the lease ends before");
    assert!(matches!(error, EnsureError::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    // The lease counts from the first write, which was a moment before the question.
    let lost = asked.elapsed();
    assert!((LEASE - ms(10)..LEASE + SOON).contains(&lost), "{lost:?}");
    let error = guard.check().await.expect_err("it is lost");
    assert!(matches!(error, EnsureError::Lost { reason: LostReason::Expired, .. }), "{error:?}");
}

// Goal: dropping the question changes nothing; neither does giving the lock back meanwhile.
// Method: drop it after each poll; unlock while it is open.
#[tokio::test(start_paused = true)]
async fn dropped_question_changes_nothing() {
    let store = store();
    let guard = hold(&store).await;
    for _ in 0..3 {
        assert!(timeout(Duration::ZERO, guard.check()).await.is_err(), "it takes a read");
        assert!(timeout(Duration::ZERO, guard.ensure(LEASE)).await.is_err(), "it takes a write");
    }
    guard.check().await.expect("the rows are there");
    guard.unlock().await.expect("the lock was held");
    expect_rows(&store, 0).await;
}

// Goal: a holder beyond its limit is told so, and loses the lock when the grace is over; then the
// next client gets it.
// Method: a limit of 20 s and a grace of 15, with a TTL of 12 s; another client waits.
#[tokio::test(start_paused = true)]
async fn hold_limit_ends_the_lock() {
    let store = store();
    let began = Instant::now();
    let request = client(&store, "holder").await.request(OBJECT).ttl(TTL);
    let guard =
        request.max_hold(s(20)).max_hold_grace(s(15)).acquire().await.expect("the lock is free");
    let next = client(&store, "next").await.request(OBJECT).timeout(s(300)).acquire();
    let next = tokio::spawn(async move { (next.await, began.elapsed()) });
    sleep(s(19)).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    sleep(s(1)).await;
    let GuardState::Expiring { reason: ExpiringReason::HoldLimit, remaining } = guard.state()
    else {
        panic!("the limit is over: {:?}", guard.state());
    };
    assert!(remaining <= LEASE && remaining > s(1), "{remaining:?}");
    guard.check().await.expect("in the grace it is held");
    sleep(s(13)).await;
    assert!(guard.remaining() <= s(2), "{:?}", guard.remaining());
    let error = guard.ensure(s(5)).await.expect_err("the grace ends before");
    assert!(matches!(error, EnsureError::TooLong { .. }), "{error:?}");
    assert_eq!(guard.lost().await, Some(LostReason::HoldLimit));
    let lost = began.elapsed();
    assert!((s(35)..s(35) + SOON).contains(&lost), "lost after {lost:?}");
    let (next, granted) = next.await.expect("the task does not panic");
    // A client that has waited for long looks every second or so.
    assert!((lost..lost + ms(1_300)).contains(&granted), "granted after {granted:?}");
    let error = guard.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost { reason: LostReason::HoldLimit, .. }), "{error:?}");
    next.expect("it was taken back").unlock().await.expect("the store answers");
    expect_rows(&store, 0).await;
}

// Goal: a holder that gives the lock back within the limit notices nothing of it, and a limit that
// is far away does not end a hold.
// Method: unlock in the grace; a limit that no clock reaches.
#[tokio::test(start_paused = true)]
async fn within_the_limit_nothing_happens() {
    let store = store();
    let client = client(&store, "holder").await;
    let request = || client.request(OBJECT).ttl(TTL);
    let guard = request().max_hold(s(20)).acquire().await.expect("the lock is free");
    sleep(s(79)).await;
    assert!(matches!(guard.state(), GuardState::Expiring { .. }), "a minute is the least grace");
    guard.unlock().await.expect("it was held");
    let guard = request().max_hold(Duration::MAX).acquire().await.expect("the lock is free");
    sleep(s(600)).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    guard.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: limits that make no sense are refused before anything is written.
// Method: a limit of zero, and a grace without a limit.
#[tokio::test(start_paused = true)]
async fn limits_that_make_no_sense_are_refused() {
    let store = store();
    let client = client(&store, "holder").await;
    let before = client.statistics();
    let request = client.request(OBJECT);
    for (request, expected) in [
        (request.clone().max_hold(Duration::ZERO), InvalidOption::ZeroMaxHold),
        (request.max_hold_grace(ms(1)), InvalidOption::GraceWithoutMaxHold),
    ] {
        match request.acquire().await {
            Err(LockError::Option(error)) => assert_eq!(error, expected),
            other => panic!("it came to {other:?}"),
        }
    }
    assert_eq!(client.statistics(), before);
}
