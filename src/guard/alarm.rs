//! What wakes a task to look at a grant.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use crate::clock::SLEEP_MAX;
use crate::guard::grant::{Grant, Phase};

/// Wakes a task at each new phase of a grant, and when it is time for another look at the clock.
pub(super) struct Alarm {
    grant: Arc<Grant>,
    /// Wakes when the client's task, or anything else that looks at the clock, says that the holder
    /// is to finish, or ends the grant; `None` once it has.
    next: Option<Pin<Box<dyn Future<Output = Phase> + Send + Sync>>>,
    /// Wakes to look at the clock. The client's tasks may be unable to: their runtime may be
    /// blocked.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether what was looked for has been found.
    is_done: bool,
}

impl Alarm {
    pub(super) fn new(grant: Arc<Grant>) -> Self {
        let next = Box::pin(grant.phase_after(Phase::Held));
        Alarm { grant, next: Some(next), timer: None, is_done: false }
    }

    /// The grant, for a look that misses no phase: the task is woken by one that comes later.
    pub(super) fn look(&mut self, cx: &mut Context<'_>) -> &Grant {
        while let Some(next) = &mut self.next
            && let Poll::Ready(phase) = next.as_mut().poll(cx)
        {
            let grant = &self.grant;
            self.next = match phase {
                Phase::Ended => None,
                Phase::Held | Phase::Expiring => Some(Box::pin(grant.phase_after(phase))),
            };
        }
        &self.grant
    }

    /// Looks at the grant until `look` has found what it wants; it returns the time until the next
    /// look if not.
    pub(super) fn poll_for<T>(
        &mut self,
        cx: &mut Context<'_>,
        look: impl Fn(&Grant) -> Result<T, Duration>,
    ) -> Poll<T> {
        loop {
            match look(self.look(cx)) {
                Ok(found) => {
                    self.is_done = true;
                    return Poll::Ready(found);
                }
                // Of a phase that a jump of the clock begins, tasks of the same runtime learn from
                // the client's.
                Err(pause) if self.grant.is_watched_here() => ready!(self.arm_for(cx, pause)),
                Err(pause) => ready!(self.arm(cx, pause)),
            }
        }
    }

    /// Whether [`poll_for`](Self::poll_for) has found what was looked for.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Arms the timer for the next look, a second ahead at most; ready when it is time for it.
    pub(super) fn arm(&mut self, cx: &mut Context<'_>, pause: Duration) -> Poll<()> {
        self.arm_for(cx, pause.min(SLEEP_MAX))
    }

    fn arm_for(&mut self, cx: &mut Context<'_>, pause: Duration) -> Poll<()> {
        // Outside a runtime there are no timers.
        if Handle::try_current().is_err() {
            return Poll::Pending;
        }
        // A new one at each poll: a timer belongs to the runtime that created it, which may have
        // ended since.
        let timer = self.timer.insert(Box::pin(sleep(pause)));
        timer.as_mut().poll(cx)
    }
}
