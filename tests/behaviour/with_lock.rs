//! Work under a lock, which stops when the lock does.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bakery_lock::testing::Fault;
use bakery_lock::{LockError, LostReason};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// The shortest TTL, and the lease that it gives.
const TTL: Duration = s(5);
const LEASE: Duration = s(3);

// Goal: the work is done under the lock, its output comes back, and the lock is given back.
// Method: work that looks at the rows and at its guard, in a task of its own.
#[tokio::test(start_paused = true)]
async fn work_is_done_under_the_lock() {
    let store = store();
    let client = client(&store, "holder").await;
    let rows = store.clone();
    let work = async move {
        client
            .with_lock(OBJECT, async |lock| {
                sleep(TTL * 3).await;
                (lock.name().to_owned(), rows.live_rows(OBJECT))
            })
            .await
    };
    let output =
        tokio::spawn(work).await.expect("the task does not panic").expect("the lock is free");
    assert_eq!(output, (OBJECT.to_owned(), 1));
    expect_rows(&store, 0).await;
}

// Goal: without the lock the work does not begin.
// Method: another client holds.
#[tokio::test(start_paused = true)]
async fn work_does_not_begin_without_the_lock() {
    let store = store();
    let held = client(&store, "holder").await.lock(OBJECT).await.expect("the lock is free");
    let began = AtomicU32::new(0);
    let other = client(&store, "other").await;
    let work = async |_| began.fetch_add(1, Ordering::SeqCst);
    let outcome = other.with_lock(OBJECT, work).await;
    let error = outcome.expect_err("another client holds the lock");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    assert_eq!(began.into_inner(), 0);
    held.unlock().await.expect("the lock was held");
}

// Goal: once the lock is lost the work is not polled again, but dropped where it stands.
// Method: nothing is renewed; the work counts its steps.
#[tokio::test(start_paused = true)]
async fn work_stops_when_the_lock_is_lost() {
    let store = store();
    let client = client(&store, "holder").await;
    let (began, steps) = (Instant::now(), Arc::new(AtomicU32::new(0)));
    let (failing, counted) = (store.clone(), Arc::clone(&steps));
    let outcome = client
        .request(OBJECT)
        .ttl(TTL)
        .with_lock(async move |_| -> Infallible {
            failing.fail_next(usize::MAX, Fault::UnknownNotApplied);
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                sleep(ms(100)).await;
            }
        })
        .await;
    let error = outcome.expect_err("the work never ends");
    assert!(
        matches!(error, LockError::WorkStopped { reason: LostReason::Expired, .. }),
        "{error:?}"
    );
    assert!((LEASE..LEASE + SOON).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(Arc::strong_count(&steps), 1, "the work was dropped");
    assert!(steps.load(Ordering::SeqCst) <= 31, "{steps:?} steps");
}

// Goal: output that came after the lease does not count.
// Method: a single poll that lasts longer than the lease, by a store whose time continues
// meanwhile.
#[tokio::test(start_paused = true)]
async fn output_after_the_lease_does_not_count() {
    let store = store();
    let client = client(&store, "holder").await;
    let work = client.request(OBJECT).ttl(TTL).auto_renew(false).with_lock(async |_| {
        // Time passes without a chance for another task to notice.
        sleep(LEASE - ms(1)).await;
        tokio::time::advance(ms(2)).await;
        "late"
    });
    let error = work.await.expect_err("the lock was lost");
    assert!(
        matches!(error, LockError::WorkStopped { reason: LostReason::Expired, .. }),
        "{error:?}"
    );
}

// Goal: the output comes back even if the release does not.
// Method: all writes fail from the middle of the work on.
#[tokio::test(start_paused = true)]
async fn output_comes_back_whatever_the_release_did() {
    let store = store();
    let client = client(&store, "holder").await;
    let failing = store.clone();
    let output = client.with_lock(OBJECT, async |_| {
        failing.fail_next(usize::MAX, Fault::UnknownNotApplied);
        "output"
    });
    assert_eq!(output.await.expect("the work was done"), "output");
    store.fail_next(0, Fault::NotApplied);
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0, "the release went on in the background");
}

// Goal: dropping it drops the work and gives the lock back.
// Method: a timeout.
#[tokio::test(start_paused = true)]
async fn dropped_work_gives_the_lock_back() {
    let store = store();
    let client = client(&store, "holder").await;
    let kept = Arc::new(());
    let inside = Arc::clone(&kept);
    let work = client.with_lock(OBJECT, async move |_| {
        sleep(s(60)).await;
        drop(inside);
    });
    assert!(timeout(s(1), work).await.is_err(), "it works for a minute");
    assert_eq!(Arc::strong_count(&kept), 1);
    expect_rows(&store, 0).await;
}

// Goal: an error of the work comes back as it is, and the lock is given back.
// Method: work that fails, and then work that does not.
#[tokio::test(start_paused = true)]
async fn error_of_the_work_comes_back() {
    let store = store();
    let client = client(&store, "holder").await;
    let work = async |fails: bool| {
        client.with_lock(OBJECT, async |_| if fails { Err("empty") } else { Ok(7) }).await
    };
    assert_eq!(work(true).await.expect("the lock is free"), Err("empty"));
    assert_eq!(work(false).await.expect("the lock is free"), Ok(7));
    expect_rows(&store, 0).await;
}

// Goal: a job that another process does is not begun, and not an error.
// Method: a try while another client holds, and one after that.
#[tokio::test(start_paused = true)]
async fn tried_work_is_done_only_with_the_lock() {
    let store = store();
    let held = client(&store, "holder").await.lock(OBJECT).await.expect("the lock is free");
    let other = client(&store, "other").await;
    let skipped = other.try_with_lock(OBJECT, async |_| panic!("it is held")).await;
    assert_eq!(skipped.expect("the store answers"), None::<()>);
    held.unlock().await.expect("the lock was held");
    let done = other.try_with_lock(OBJECT, async |lock| lock.name().len()).await;
    assert_eq!(done.expect("the store answers"), Some(OBJECT.len()));
    expect_rows(&store, 0).await;
}

// Goal: work under several locks stops when the first of them is lost, which the error names.
// Method: another client revokes the second of them.
#[tokio::test(start_paused = true)]
async fn work_under_several_locks_stops_with_the_first_loss() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let names = ["one", "two"];
    let inside = holder.request_all(names).with_lock(async |locks| locks.len()).await;
    assert_eq!(inside.expect("the locks are free"), 2);
    let working = tokio::spawn(async move {
        holder.request_all(names).with_lock(async |_| pending::<()>().await).await
    });
    sleep(s(1)).await;
    let contenders = other.contenders("two").await.expect("the store answers");
    other.revoke("two", &contenders[0], "it is needed").await.expect("the store answers");
    let error = working.await.expect("the task does not panic").expect_err("one is revoked");
    let LockError::WorkStopped { name, reason: LostReason::Revoked { .. }, .. } = error else {
        panic!("another error came: {error:?}");
    };
    assert_eq!(name, "two");
    assert!(other.try_lock("one").await.expect("the store answers").is_some());
}
