//! The future that reports how a grant ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::FusedFuture;

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
        self.0.poll_for(cx, |grant| match grant.ended() {
            Some(End::Lost(reason)) => Ok(Some(reason)),
            Some(End::Released) => Ok(None),
            None => Err(grant.state().remaining()),
        })
    }
}

impl FusedFuture for LostFuture {
    fn is_terminated(&self) -> bool {
        self.0.is_done()
    }
}

impl fmt::Debug for LostFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostFuture").finish_non_exhaustive()
    }
}
