//! What one client pays when no other client wants the lock.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::sides::Side;

/// Each side goes round so many names, over and over, as services do that lock rows of a table.
const NAMES: u32 = 512;

/// How long operations took, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Timings {
    /// Locking; of the yardstick, writing.
    pub(crate) lock: Histogram<u64>,
    /// Unlocking; of the yardstick, reading.
    pub(crate) unlock: Histogram<u64>,
    /// One and the other, one after the other.
    pub(crate) both: Histogram<u64>,
}

impl Timings {
    /// No operations yet.
    pub(crate) fn new() -> Self {
        Timings { lock: nanoseconds(), unlock: nanoseconds(), both: nanoseconds() }
    }

    /// Adds those of `other`.
    pub(crate) fn add(&mut self, other: &Timings) {
        for (mine, theirs) in [
            (&mut self.lock, &other.lock),
            (&mut self.unlock, &other.unlock),
            (&mut self.both, &other.both),
        ] {
            mine.add(theirs).expect("both hold the same range of durations");
        }
    }
}

/// A histogram of durations in nanoseconds, up to a minute, with three digits.
pub(crate) fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("range and precision are valid")
}

/// A duration as it goes into a histogram.
pub(crate) fn record(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}

/// Times `pairs` pairs of operations of one side. `first` counts the pairs before, so that the next
/// block goes on with the next name.
pub(crate) async fn block<S: Side>(
    side: &S,
    first: u32,
    pairs: u32,
    timings: &mut Timings,
) -> Result<()> {
    for pair in first..first + pairs {
        let name = format!("uncontended-{}", pair % NAMES);
        let begun = Instant::now();
        let held = side.lock(&name).await?;
        let locked = begun.elapsed();
        side.unlock(held).await?;
        let both = begun.elapsed();
        record(&mut timings.lock, locked);
        record(&mut timings.unlock, both - locked);
        record(&mut timings.both, both);
    }
    Ok(())
}
