//! The future that reports how a grant ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use crate::clock::SLEEP_MAX;
use crate::engine::grant::{End, Grant};
use crate::error::LostReason;

/// The future of [`LockGuard::lost`](crate::LockGuard::lost).
#[must_use = "futures do nothing unless polled"]
pub struct LostFuture {
    grant: Arc<Grant>,
    /// Wakes when the client's task, or anything else that looks at the clock, ends the grant.
    ended: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Wakes to look at the clock. The client's task may be unable to: its runtime may be blocked.
    timer: Option<Pin<Box<Sleep>>>,
}

impl LostFuture {
    pub(super) fn new(grant: Arc<Grant>) -> Self {
        let mut ends = grant.subscribe();
        let ended = Box::pin(async move {
            // The grant has the sender, and this future has the grant.
            let _ = ends.wait_for(Option::is_some).await;
        });
        LostFuture { grant, ended, timer: None }
    }

    /// Arms the timer that wakes the task for the next look at the clock.
    fn arm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Outside a runtime there are no timers.
        if Handle::try_current().is_err() {
            return Poll::Pending;
        }
        let pause = self.grant.state().remaining().min(SLEEP_MAX);
        // A new one at each poll: a timer belongs to the runtime that created it, which may have
        // ended since.
        let timer = self.timer.insert(Box::pin(sleep(pause)));
        timer.as_mut().poll(cx)
    }
}

impl Future for LostFuture {
    type Output = Option<LostReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            // Polled before the look, so that no end is missed in between. The look alone decides.
            let _ = self.ended.as_mut().poll(cx);
            match self.grant.ended() {
                Some(End::Lost(reason)) => return Poll::Ready(Some(reason)),
                Some(End::Released) => return Poll::Ready(None),
                None if self.arm(cx).is_pending() => return Poll::Pending,
                None => {}
            }
        }
    }
}

impl fmt::Debug for LostFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostFuture").finish_non_exhaustive()
    }
}
