//! Time since the machine started, which counts while it sleeps and which no one sets.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Boot(Duration);

impl Boot {
    /// The present moment.
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Boot(Duration::try_from(now).unwrap_or_default())
    }

    /// The moment at this time since the machine started.
    pub(super) fn at(since_start: Duration) -> Self {
        Boot(since_start)
    }

    /// The time since the machine started.
    pub(super) fn since_start(self) -> Duration {
        self.0
    }

    /// The moment so much later.
    pub(super) fn after(self, time: Duration) -> Self {
        Boot(self.0.saturating_add(time))
    }

    /// How long it is since an earlier moment.
    pub(super) fn since(self, earlier: Boot) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// How long it is until this moment; zero once it is over.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_sub(Boot::now().0)
    }
}
