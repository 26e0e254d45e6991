//! The lock in synchronous programs.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use bakery_lock::blocking::{LockClient, Runtime};
use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{BuildError, GuardState, LockError, LostReason};

use super::{OBJECT, client_on_the_wall, ms, s};
use support::pace;

/// A client on a thread of its own, and its store.
fn started() -> (FaultyStore, LockClient) {
    let store = FaultyStore::new();
    let runtime = Runtime::new().expect("a thread can be started");
    let builder = store.client_builder().host("a").acquire_timeout(pace::limit());
    let client = runtime.build(builder).expect("a client in memory is built");
    (store, client)
}

// Goal: a lock is taken, tried, described and given back without async code.
// Method: one client and its clone.
#[test]
fn lock_is_taken_and_given_back() {
    let (store, client) = started();
    let guard = client.lock(OBJECT).expect("the lock is free");
    assert_eq!(guard.name(), OBJECT);
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    assert!(guard.ensure(s(1)).expect("it is held") >= s(1));
    assert!(guard.check().expect("it is held") <= guard.remaining() + s(1));
    let token = guard.fencing_token().expect("it is held");
    assert!(guard.fencing_token().expect("it is held") > token);
    assert_eq!(guard.lost_within(ms(1)), None);
    assert!(client.clone().try_lock(OBJECT).expect("the store answers").is_none());
    let request = client.request(OBJECT).options(|request| request.timeout(ms(20)));
    let error = request.acquire().expect_err("it is held");
    assert!(matches!(error, LockError::TimedOut { held_by_self: true, .. }), "{error:?}");
    let handle = guard.handle();
    guard.unlock().expect("it was held");
    assert_eq!(handle.state(), GuardState::Released);
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: threads exclude each other.
// Method: each adds to a number in two steps.
#[test]
fn threads_exclude_each_other() {
    let (_store, client) = started();
    let number = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let added = client.with_lock(OBJECT, |_| {
                        let seen = number.load(Ordering::Relaxed);
                        thread::yield_now();
                        number.store(seen + 1, Ordering::Relaxed);
                    });
                    added.expect("each has it in the end");
                }
            });
        }
    });
    assert_eq!(number.into_inner(), 100);
}

// Goal: with the last clone and the last guard the client is shut down: nothing is left.
// Method: drop the client, then a guard, and look at once.
#[test]
fn last_drop_shuts_down() {
    let (store, client) = started();
    let guard = client.lock(OBJECT).expect("the lock is free");
    drop(client);
    assert!(guard.state().is_held());
    assert_eq!(store.live_rows(OBJECT), 1);
    drop(guard);
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: work whose lock was lost meanwhile does not count, and a lock that is taken is no error.
// Method: the rows vanish during the work.
#[test]
fn work_without_its_lock_does_not_count() {
    let (store, client) = started();
    let output = client.with_lock(OBJECT, |guard| {
        store.lose_rows(OBJECT);
        guard.check().expect_err("its rows are gone");
        assert_eq!(guard.lost_within(pace::limit()), Some(LostReason::RowMissing));
        7
    });
    let error = output.expect_err("the lock was lost");
    assert!(matches!(error, LockError::WorkStopped { .. }), "{error:?}");
    assert_eq!(client.with_lock(OBJECT, |_| 7).expect("the lock is free"), 7);
    let held = client.lock(OBJECT).expect("the lock is free");
    let tried = client.try_with_lock(OBJECT, |_| 7).expect("the store answers");
    assert_eq!(tried, None);
    held.unlock().expect("it was held");
}

// Goal: inside an async runtime, calls that may wait for a lock are refused, and none panics.
// Method: a client that was built outside is used inside.
#[test]
fn calls_inside_a_runtime_are_refused() {
    let (store, client) = started();
    let outside = Runtime::new().expect("a thread can be started");
    let guard = client.lock("another").expect("the lock is free");
    let runtime = tokio::runtime::Runtime::new().expect("it can be built");
    runtime.block_on(async {
        let error = client.lock(OBJECT).expect_err("it would stop other tasks");
        assert!(matches!(error, LockError::InsideRuntime), "{error:?}");
        assert!(error.to_string().contains("async runtime"), "{error}");
        client.try_lock(OBJECT).expect_err("it would stop other tasks");
        let error = outside.build(store.client_builder()).expect_err("it would stop other tasks");
        assert!(matches!(error, BuildError::InsideRuntime), "{error:?}");
        let error = Runtime::new().expect_err("it could not be waited for");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        guard.unlock().expect("it was held");
        let same = client.asynchronous().lock(OBJECT).await.expect("the lock is free");
        same.unlock().await.expect("it was held");
        let other = client_on_the_wall(&store, "b").await;
        other.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
        drop(client);
    });
}

// Goal: a shutdown that can't finish takes as long as the acquire timeout, and says so.
// Method: no call succeeds.
#[test]
fn shutdown_is_bounded() {
    let store = FaultyStore::new();
    let runtime = Runtime::new().expect("a thread can be started");
    let builder = store.client_builder().host("a").acquire_timeout(ms(300));
    let client = runtime.build(builder).expect("a client in memory is built");
    let _guard = client.lock(OBJECT).expect("the lock is free");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let began = Instant::now();
    client.shutdown().expect_err("no release succeeds");
    assert!(began.elapsed() >= ms(300));
    assert!(matches!(client.lock(OBJECT), Err(LockError::Closed)));
}
