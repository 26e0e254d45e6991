//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds of the monotonic clock, which all processes share.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the machine runs since less than forever");
    let nanos = u64::try_from(now.tv_nsec).expect("a second has a billion nanoseconds");
    seconds * 1_000_000_000 + nanos
}
