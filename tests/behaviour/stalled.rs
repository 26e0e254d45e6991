//! A caller or a runtime that stands still for longer than a lease.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bakery_lock::{GuardState, LockClient, LockError, LockGuard, LostReason};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

use super::{
    OBJECT, SOON, client, client_on_the_wall, expect_rows, ms, paused_runtime, runtime_on_the_wall,
    s, seeded, store,
};

/// The shortest TTL, and the lease that it gives.
const TTL: Duration = s(5);
const LEASE: Duration = s(3);

/// Polls a future once, which must not complete it.
async fn begin<F: Future>(mut future: Pin<&mut F>) {
    let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    assert!(polled, "it takes I/O, so one poll does not complete it");
}

// Goal: a caller whose future is not polled until the lease is over gets an error, not a guard that
// is lost; nothing is left.
// Method: begin each way to acquire, look away for longer than a lease that is not renewed, and go
// on.
#[tokio::test(start_paused = true)]
async fn lock_lost_before_its_caller_looks_is_an_error() {
    let store = store();
    let client = client(&store, "late").await;
    let request = || client.request(OBJECT).ttl(TTL).auto_renew(false);

    let mut lock = pin!(request().acquire());
    begin(lock.as_mut()).await;
    sleep(LEASE + s(1)).await;
    expect_lost(&lock.await.expect_err("the lease is over"), &LostReason::Expired);

    let mut attempt = pin!(request().try_acquire());
    begin(attempt.as_mut()).await;
    sleep(LEASE + s(1)).await;
    expect_lost(&attempt.await.expect_err("the lease is over"), &LostReason::Expired);

    let began = AtomicU32::new(0);
    let mut work = pin!(request().with_lock(async |_| began.fetch_add(1, Ordering::SeqCst)));
    begin(work.as_mut()).await;
    sleep(LEASE + s(1)).await;
    expect_lost(&work.await.expect_err("the lease is over"), &LostReason::Expired);
    assert_eq!(began.load(Ordering::SeqCst), 0);

    expect_rows(&store, 0).await;
    client.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
}

fn expect_lost(error: &LockError, expected: &LostReason) {
    let LockError::Lost { name, reason, .. } = error else {
        panic!("another error came: {error:?}");
    };
    assert_eq!((&**name, reason), (OBJECT, expected));
    let message = error.to_string();
    assert!(message.contains("\"users::snap\" was obtained and lost"), "{message}");
}

// Goal: a caller that was granted the lock, but had not looked yet when the client was shut down,
// is told that the client is closed, like every other caller that waits.
// Method: begin to lock, look away while it is granted and the client shut down, and continue.
#[tokio::test(start_paused = true)]
async fn caller_that_looks_after_the_shutdown_is_told_of_it() {
    let store = store();
    let client = client(&store, "a").await;
    let mut lock = pin!(client.lock(OBJECT));
    begin(lock.as_mut()).await;
    sleep(SOON).await;
    assert_eq!(store.live_rows(OBJECT), 1, "it was granted");
    client.shutdown().await.expect("the store answers");
    let error = lock.await.expect_err("the client is closed");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    expect_rows(&store, 0).await;
}

/// A guard whose client's runtime stands still from now on.
fn stalled() -> (Runtime, LockGuard) {
    let stalled = paused_runtime();
    let guard = stalled.block_on(async {
        let client: LockClient = client(&store(), "stalled").await;
        client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free")
    });
    (stalled, guard)
}

// Goal: the future of `lost` resolves at the end of the lease also where the client's runtime does
// not get to say so, and the cancellation token follows as soon as anything looks at the clock.
// Method: the client's runtime is not run any more; another client waits.
#[test]
fn lost_resolves_while_the_runtime_of_the_client_is_blocked() {
    let (_stalled, guard) = stalled();
    paused_runtime().block_on(async {
        let (began, token) = (Instant::now(), guard.cancellation_token());
        let remaining = guard.remaining();
        let lost = timeout(LEASE * 10, guard.lost()).await;
        assert_eq!(lost.expect("it resolves"), Some(LostReason::Expired));
        let waited = began.elapsed();
        assert!((remaining..remaining + ms(10)).contains(&waited), "{waited:?}, not {remaining:?}");
        assert!(token.is_cancelled());
        assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    });
}

// Goal: work under the lock stops at the end of the lease also where the client's runtime stands
// still.
// Method: the work itself waits for longer, on a runtime of its own.
#[test]
fn work_stops_while_the_runtime_of_the_client_is_blocked() {
    let (stalled, working) = (paused_runtime(), paused_runtime());
    let client = stalled.block_on(client(&store(), "stalled"));
    let request = client.request(OBJECT).ttl(TTL);
    let work = request.with_lock(async |_| {
        sleep(LEASE * 10).await;
    });
    let mut work = pin!(work);
    stalled.block_on(async { assert!(timeout(SOON, work.as_mut()).await.is_err()) });
    let began = working.block_on(async { Instant::now() });
    let outcome = working.block_on(async { timeout(LEASE * 20, work).await });
    let error = outcome.expect("it stops").expect_err("the lease is over");
    assert!(
        matches!(error, LockError::WorkStopped { reason: LostReason::Expired, .. }),
        "{error:?}"
    );
    let waited = working.block_on(async { began.elapsed() });
    assert!(waited < LEASE + SOON, "stopped after {waited:?}");
}

// Goal: the future of `lost` follows renewals.
// Method: wait for it over many leases.
#[tokio::test(start_paused = true)]
async fn lost_follows_renewals() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
    assert!(timeout(LEASE * 10, guard.lost()).await.is_err(), "it is renewed");
    guard.unlock().await.expect("it was held");
}

// Goal: the future of `lost` may be polled where there is no runtime, and continue from one runtime
// to the next.
// Method: poll it outside, on a runtime that ends, and on another one; give the lock back in the
// end.
#[test]
fn lost_may_be_polled_anywhere() {
    let store = seeded();
    let home = runtime_on_the_wall();
    let guard = home.block_on(async {
        client_on_the_wall(&store, "a").await.lock(OBJECT).await.expect("the lock is free")
    });
    let mut lost = pin!(guard.lost());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(lost.as_mut().poll(&mut cx).is_pending(), "it is held");
    let passing = paused_runtime();
    passing.block_on(async { assert!(timeout(ms(1), lost.as_mut()).await.is_err(), "it is held") });
    drop(passing);
    assert!(lost.as_mut().poll(&mut cx).is_pending(), "it is held");
    home.block_on(async { assert!(timeout(ms(1), lost.as_mut()).await.is_err(), "it is held") });
    drop(guard);
    let Poll::Ready(reason) = lost.as_mut().poll(&mut cx) else {
        panic!("it was given back");
    };
    assert_eq!(reason, None);
}

// Goal: a caller that waits for `lost` outside of every runtime is woken by the client.
// Method: a thread of its own waits for a lock that is given back.
#[test]
fn lost_wakes_a_thread_without_a_paused_runtime() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (_stalled, guard) = stalled();
    let lost = guard.lost();
    let waiting = std::thread::spawn(move || {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut lost = pin!(lost);
        loop {
            match lost.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(reason) => return reason,
                Poll::Pending => std::thread::park(),
            }
        }
    });
    drop(guard);
    assert_eq!(waiting.join().expect("the thread does not panic"), None);
}
