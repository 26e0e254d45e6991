//! Locks that stay taken for a while, even if they are released before.

use std::time::Duration;

use bakery_lock::testing::Fault;
use bakery_lock::{InvalidOption, LockClient, LockError, LockGuard, LostReason, UnlockError};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, client, expect_rows, ms, s, store};

const MIN_HOLD: Duration = s(10);

async fn job(client: &LockClient) -> Option<LockGuard> {
    let request = client.request(OBJECT).min_hold(MIN_HOLD);
    request.try_acquire().await.expect("it is answered")
}

async fn waits(client: &LockClient) -> LockGuard {
    waits_for(client, s(60)).await
}

async fn waits_for(client: &LockClient, timeout: Duration) -> LockGuard {
    client.request(OBJECT).timeout(timeout).acquire().await.expect("each caller is served")
}

// Goal: a job that is done early does not run again before its time, and then it may, at once; that
// costs one renewal.
// Method: two machines try again and again; one has done its job at once.
#[tokio::test(start_paused = true)]
async fn lock_stays_taken_until_its_time() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let began = Instant::now();
    let guard = job(&one).await.expect("the lock is free");
    let writes = one.statistics().writes;
    guard.unlock().await.expect("it was held");
    assert!(began.elapsed() < ms(20), "{:?}", began.elapsed());
    while began.elapsed() < MIN_HOLD - ms(150) {
        for client in [&one, &other] {
            assert!(job(client).await.is_none(), "after {:?}", began.elapsed());
        }
        sleep(ms(100)).await;
    }
    assert_eq!(one.statistics().writes, writes + 1);
    sleep(MIN_HOLD + ms(5) - began.elapsed()).await;
    expect_rows(&store, 0).await;
    let next = job(&other).await.expect("its time is over");
    sleep(MIN_HOLD).await;
    let released = Instant::now();
    next.unlock().await.expect("it was held");
    assert!(released.elapsed() < ms(20), "it was held for long enough");
    assert!(job(&one).await.is_some());
}

// Goal: the lock stays taken if the process ends, and not for much longer than its time, however
// long its TTL is.
// Method: release a lock early, or leave that to the shutdown, and end the client.
#[tokio::test(start_paused = true)]
async fn lock_stays_taken_when_its_process_ends() {
    for unlocks in [true, false] {
        let store = store();
        let (one, other) = (client(&store, "one").await, client(&store, "other").await);
        let began = Instant::now();
        let guard = job(&one).await.expect("the lock is free");
        if unlocks {
            guard.unlock().await.expect("it was held");
            one.shutdown().await.expect("it ends");
        } else {
            one.shutdown().await.expect("it ends");
            assert_eq!(guard.lost().await, Some(LostReason::ClientClosed));
        }
        drop(one);
        assert!(began.elapsed() < ms(50), "{:?}", began.elapsed());
        expect_rows(&store, 1).await;
        let next = loop {
            match job(&other).await {
                Some(guard) => break guard,
                None => sleep(ms(50)).await,
            }
        };
        let taken = began.elapsed();
        assert!((MIN_HOLD..=MIN_HOLD + s(4)).contains(&taken), "{taken:?}");
        drop(next);
    }
}

// Goal: the next caller in the line has the lock when its time is over, also if the guard was
// dropped, and the place is passed on without a release.
// Method: callers of the same and of another client wait.
#[tokio::test(start_paused = true)]
async fn callers_wait_until_its_time_is_over() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let began = Instant::now();
    drop(job(&one).await.expect("the lock is free"));
    let next = tokio::spawn({
        let one = one.clone();
        async move { waits(&one).await }
    });
    tokio::task::yield_now().await;
    let last = tokio::spawn(async move { waits(&other).await });
    let next = next.await.expect("it does not panic");
    let waited = began.elapsed();
    assert!((MIN_HOLD..MIN_HOLD + ms(200)).contains(&waited), "{waited:?}");
    next.unlock().await.expect("it was held");
    let last = timeout(s(2), last).await.expect("it is next").expect("it does not panic");
    last.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: a lock that stays taken can be removed by force.
// Method: another client does, after the guard was released.
#[tokio::test(start_paused = true)]
async fn lock_that_stays_taken_is_removed() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let request = one.request(OBJECT).min_hold(s(100)).ttl(s(30));
    let guard = request.acquire().await.expect("the lock is free");
    guard.unlock().await.expect("it was held");
    let contenders = other.contenders(OBJECT).await.expect("it is answered");
    let revoked = other.revoke_by_force(OBJECT, &contenders[0], "it has to run again").await;
    revoked.expect("it is removed");
    assert!(job(&other).await.is_some());
}

// Goal: an unlock tells if the database does not answer in time; the lock is free when its time is
// over.
// Method: no write is acknowledged while a lock is released early.
#[tokio::test(start_paused = true)]
async fn unlock_without_an_answer_is_told() {
    let store = store();
    let builder = store.client_builder().host("one").acquire_timeout(s(2));
    let one = builder.build().await.expect("a client in memory is built");
    let guard = job(&one).await.expect("the lock is free");
    let began = Instant::now();
    store.fail_next(usize::MAX, Fault::UnknownApplied);
    let error = guard.unlock().await.expect_err("no write is acknowledged");
    assert!(matches!(error, UnlockError::Unacknowledged { .. }), "{error:?}");
    assert_eq!(began.elapsed(), s(2));
    store.fail_next(0, Fault::UnknownApplied);
    let other = client(&store, "other").await;
    let next = waits(&other).await;
    assert!(began.elapsed() >= MIN_HOLD - ms(50), "{:?}", began.elapsed());
    drop(next);
}

// Goal: nothing that is written at the release is needed for the lock to stay taken.
// Method: the database is down when the lock is released, and the process ends. Without renewal,
// the rows of the grant must last as long.
#[tokio::test(start_paused = true)]
async fn lock_stays_taken_when_database_is_down_at_release() {
    const LONG: Duration = s(60);
    for renew in [true, false] {
        let store = store();
        let builder = store.client_builder().host("one").acquire_timeout(s(2));
        let one = builder.build().await.expect("a client in memory is built");
        let other = client(&store, "other").await;
        let ttl = if renew { s(5) } else { s(63) };
        let request = one.request(OBJECT).ttl(ttl).auto_renew(renew).min_hold(LONG);
        let guard = request.acquire().await.expect("the lock is free");
        let granted = Instant::now();
        sleep(ms(500)).await;
        store.fail_next(usize::MAX, Fault::NotApplied);
        guard.unlock().await.expect_err("the database is down");
        one.shutdown().await.expect_err("the database is down");
        drop(one);
        sleep(s(2)).await;
        store.fail_next(0, Fault::NotApplied);
        let next = waits_for(&other, s(90)).await;
        let taken = granted.elapsed();
        assert!((LONG..LONG + s(15)).contains(&taken), "{taken:?}");
        drop(next);
    }
}

// Goal: what the table can't do is refused before anything is written.
// Method: ask for it.
#[tokio::test(start_paused = true)]
async fn unsupported_requests_are_refused() {
    let store = store();
    let client = client(&store, "one").await;
    let writes = client.statistics().writes;
    let longest = ms(117_500);
    let min_hold = longest + ms(1);
    for (request, expected) in [
        (
            client.request(OBJECT).min_hold(min_hold),
            InvalidOption::MinHoldTooLong { min_hold, longest },
        ),
        (client.request(OBJECT).shared().min_hold(s(1)), InvalidOption::SharedWithMinHold),
        (
            client.request(OBJECT).auto_renew(false).ttl(s(30)).min_hold(s(60)),
            InvalidOption::MinHoldWithoutRenewal { min_hold: s(60), least: s(63) },
        ),
    ] {
        let error = request.acquire().await;
        assert!(matches!(&error, Err(LockError::Option(it)) if *it == expected), "{error:?}");
    }
    assert_eq!(client.statistics().writes, writes);
}
