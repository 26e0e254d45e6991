//! Futures that are dropped at a chosen poll.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

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
