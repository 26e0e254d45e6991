//! The future that reports that the holder of a grant is to finish.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::FusedFuture;

use super::alarm::Alarm;
use crate::error::ExpiringReason;
use crate::guard::grant::{Grant, GuardState};

/// The future of [`LockHandle::expiring`](crate::LockHandle::expiring).
#[must_use = "futures do nothing unless polled"]
pub struct ExpiringFuture(Alarm);

impl ExpiringFuture {
    pub(super) fn new(grant: Arc<Grant>) -> Self {
        ExpiringFuture(Alarm::new(grant))
    }
}

impl Future for ExpiringFuture {
    type Output = Option<ExpiringReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_for(cx, |grant| match grant.state() {
            GuardState::Expiring { reason, .. } => Ok(Some(reason)),
            GuardState::Lost(_) | GuardState::Released => Ok(grant.expiring()),
            GuardState::Held { .. } | GuardState::AtRisk { .. } => Err(grant.changes_in()),
        })
    }
}

impl FusedFuture for ExpiringFuture {
    fn is_terminated(&self) -> bool {
        self.0.is_done()
    }
}

impl fmt::Debug for ExpiringFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringFuture").finish_non_exhaustive()
    }
}
