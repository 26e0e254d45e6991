//! Code of others that the library runs: recorders of metrics and wakers. Each may look at a guard.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake};
use std::thread;

use bakery_lock::LockHandle;
use bakery_lock::testing::FaultyStore;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tokio::time::sleep;

use super::{OBJECT, client, paused_runtime, s, store};
use support::pace;

/// Looks at a lock whenever it is run.
#[derive(Debug, Default)]
struct Looker {
    lock: Mutex<Option<LockHandle>>,
    looks: AtomicU64,
}

impl Looker {
    fn watch(&self, lock: LockHandle) {
        *self.lock.lock().expect("no look panics") = Some(lock);
    }

    fn look(&self) {
        let lock = self.lock.lock().expect("no look panics").clone();
        if let Some(lock) = lock {
            let _ = (lock.state(), lock.remaining());
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }
}

impl CounterFn for Looker {
    fn increment(&self, _: u64) {
        self.look();
    }

    fn absolute(&self, _: u64) {
        self.look();
    }
}

impl GaugeFn for Looker {
    fn increment(&self, _: f64) {
        self.look();
    }

    fn decrement(&self, _: f64) {
        self.look();
    }

    fn set(&self, _: f64) {
        self.look();
    }
}

impl HistogramFn for Looker {
    fn record(&self, _: f64) {
        self.look();
    }
}

impl Wake for Looker {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

#[derive(Debug)]
struct LookingRecorder(Arc<Looker>);

impl Recorder for LookingRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(&self.0))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(&self.0))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(&self.0))
    }
}

/// Runs a test on a thread of its own, which a deadlock leaves behind.
fn without_deadlock(test: impl FnOnce(FaultyStore) + Send + 'static) {
    let store = store();
    let (sender, done) = mpsc::channel();
    let testing = thread::spawn(move || {
        test(store);
        let _ = sender.send(());
    });
    let ended = done.recv_timeout(pace::limit());
    assert_ne!(ended, Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    testing.join().expect("it does not panic");
}

// Goal: a recorder of metrics may look at the lock whose renewal, release or loss is recorded.
// Method: one that looks whenever something is recorded.
#[test]
fn recorder_may_look_at_the_lock() {
    without_deadlock(|store| {
        let looker = Arc::<Looker>::default();
        let recorder = LookingRecorder(Arc::clone(&looker));
        let _recording = metrics::set_default_local_recorder(&recorder);
        paused_runtime().block_on(async {
            let client = client(&store, "a").await;
            let guard = client.lock(OBJECT).await.expect("the lock is free");
            looker.watch(guard.handle());
            // It is renewed twice.
            sleep(s(50)).await;
            let at_renewals = looker.looks();
            assert!(at_renewals > 0, "nothing was recorded");
            guard.unlock().await.expect("it was held");
            let at_release = looker.looks();
            assert!(at_release > at_renewals);

            let once = client.request(OBJECT).auto_renew(false).acquire().await;
            let once = once.expect("the lock is free");
            looker.watch(once.handle());
            sleep(s(60)).await;
            assert!(!once.state().is_held());
            assert!(looker.looks() > at_release);
        });
    });
}

// Goal: a waker may look at the lock whose end it waits for.
// Method: a future of the end, one of the token, and a stream of states, with wakers that look.
#[test]
fn waker_may_look_at_the_lock() {
    without_deadlock(|store| {
        paused_runtime().block_on(async {
            let client = client(&store, "a").await;
            let guard = client.lock(OBJECT).await.expect("the lock is free");
            let looker = Arc::<Looker>::default();
            looker.watch(guard.handle());
            let waker = Arc::clone(&looker).into();
            let mut cx = Context::from_waker(&waker);
            let token = guard.cancellation_token();
            let (mut lost, mut cancelled) = (pin!(guard.lost()), pin!(token.cancelled()));
            assert!(lost.as_mut().poll(&mut cx).is_pending());
            assert!(cancelled.as_mut().poll(&mut cx).is_pending());
            guard.unlock().await.expect("it was held");
            assert!(looker.looks() >= 2, "both were woken");
            assert!(lost.as_mut().poll(&mut cx).is_ready());
            assert!(cancelled.as_mut().poll(&mut cx).is_ready());
        });
    });
}
