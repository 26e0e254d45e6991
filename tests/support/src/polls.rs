//! Futures that are dropped at a chosen poll, or polled outside tokio.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::pace;

/// Polls a future `polls` times at most, whether it asked for it or not, with `pause` in between,
/// and drops it. `None` says that it was not complete by then.
pub async fn poll_at_most<F: Future>(
    polls: usize,
    future: F,
    mut pause: impl AsyncFnMut(),
) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        pause().await;
    }
    None
}

/// Runs a future to its end on a thread without a tokio runtime.
///
/// # Panics
///
/// If it is not done before the [limit](pace::limit): `what` hangs.
pub fn outside_tokio<F: Future>(what: &str, future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let runtime = tokio::runtime::Handle::try_current();
    assert!(runtime.is_err(), "this thread has a runtime");
    let (began, limit) = (Instant::now(), pace::limit());
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        let left = limit.saturating_sub(began.elapsed());
        assert!(!left.is_zero(), "{what}: not within {limit:?}");
        thread::park_timeout(left);
    }
}
