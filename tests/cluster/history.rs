//! Histories of this machine's processes: the clock that they share, and what is asked of them.

#[path = "../support/history.rs"]
mod judged;

use rustix::time::{ClockId, clock_gettime};

pub(crate) use judged::{End, Moment, Round, overlap, overtaking};

/// Now, in nanoseconds of the monotonic clock, which all processes share.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the machine runs since less than forever");
    let nanos = u64::try_from(now.tv_nsec).expect("a second has a billion nanoseconds");
    seconds * 1_000_000_000 + nanos
}

impl Moment {
    /// When it began.
    pub(crate) fn first(&self) -> u64 {
        match self {
            Moment::Held { from, .. } => *from,
            Moment::Round(round) => round.announced,
        }
    }

    /// When it ended.
    pub(crate) fn last(&self) -> u64 {
        match self {
            Moment::Held { until, .. } => *until,
            Moment::Round(round) => round.end.time(),
        }
    }
}
