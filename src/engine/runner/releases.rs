//! The callers that wait for the acknowledgement of a release.

use std::time::Duration;

use tokio::sync::oneshot;

use super::take_expired;
use crate::error::UnlockError;
use crate::store::DatabaseError;

/// The callers that wait for the acknowledgement of a release, in the order in which they asked.
#[derive(Default)]
pub(super) struct Releases {
    waiting: Vec<Waiting>,
}

struct Waiting {
    asked: Duration,
    reply: oneshot::Sender<Result<(), UnlockError>>,
}

impl Releases {
    /// Adds a caller that waits since `asked`.
    pub(super) fn push(
        &mut self,
        asked: Duration,
        reply: oneshot::Sender<Result<(), UnlockError>>,
    ) {
        self.waiting.push(Waiting { asked, reply });
    }

    /// When the first caller that still waits asked.
    pub(super) fn first_asked(&self) -> Option<Duration> {
        self.waiting.first().map(|waiting| waiting.asked)
    }

    /// Answers the callers: the release is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        for waiting in self.waiting.drain(..) {
            // A caller that stopped waiting needs no answer, here and below.
            let _ = waiting.reply.send(Ok(()));
        }
    }

    /// Answers none: what they wait for does not come, and their grant knows why.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Dismisses callers that have waited for `limit`.
    pub(super) fn dismiss_expired(
        &mut self,
        now: Duration,
        limit: Duration,
        cause: Option<&DatabaseError>,
    ) {
        for (waiting, waited) in take_expired(&mut self.waiting, |w| w.asked, limit, now) {
            let error = UnlockError::Unacknowledged { waited, cause: cause.cloned() };
            let _ = waiting.reply.send(Err(error));
        }
    }
}
