//! The future that reports how a grant ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::alarm::Alarm;
use crate::error::LostReason;
use crate::guard::grant::{End, Grant};

/// The future of [`LockHandle::lost`](crate::LockHandle::lost).
#[must_use = "futures do nothing unless polled"]
pub struct LostFuture(Alarm);

impl LostFuture {
    pub(super) fn new(grant: Arc<Grant>) -> Self {
        LostFuture(Alarm::new(grant))
    }
}

impl Future for LostFuture {
    type Output = Option<LostReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let grant = self.0.look(cx);
            match grant.ended() {
                Some(End::Lost(reason)) => return Poll::Ready(Some(reason)),
                Some(End::Released) => return Poll::Ready(None),
                None => {
                    let remaining = grant.state().remaining();
                    if self.0.arm(cx, remaining).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl fmt::Debug for LostFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostFuture").finish_non_exhaustive()
    }
}
