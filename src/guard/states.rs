//! The stream of the states of a grant.

use std::fmt;
use std::future::poll_fn;
use std::mem::discriminant;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::alarm::Alarm;
use crate::guard::grant::{Grant, GuardState};

/// The stream of [`LockHandle::states`](crate::LockHandle::states).
#[must_use = "streams do nothing unless polled"]
pub struct GuardStates {
    alarm: Alarm,
    /// What it yielded last.
    last: Option<GuardState>,
}

impl GuardStates {
    pub(super) fn new(grant: Arc<Grant>) -> Self {
        GuardStates { alarm: Alarm::new(grant), last: None }
    }

    /// The next state; `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no state.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    pub async fn changed(&mut self) -> Option<GuardState> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for GuardStates {
    type Item = GuardState;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<GuardState>> {
        loop {
            if self.last.as_ref().is_some_and(|last| !last.is_held()) {
                return Poll::Ready(None);
            }
            let grant = self.alarm.look(cx);
            let (state, pause) = (grant.state(), grant.changes_in());
            if self.last.as_ref().map(discriminant) != Some(discriminant(&state)) {
                self.last = Some(state.clone());
                return Poll::Ready(Some(state));
            }
            ready!(self.alarm.arm(cx, pause));
        }
    }
}

impl fmt::Debug for GuardStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardStates").field("last", &self.last).finish_non_exhaustive()
    }
}
