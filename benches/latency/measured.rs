//! Times and counts, and what is told of them.

use std::time::Duration;

use anyhow::Result;
use bakery_lock_instrumented::LockClient;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Quantiles of times, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl Quantiles {
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are possible");
        for time in times {
            let nanos = u64::try_from(time.as_nanos()).expect("no run takes so long");
            histogram.record(nanos).expect("the histogram grows");
        }
        let quantile = |q| {
            let nanos = Duration::from_nanos(histogram.value_at_quantile(q));
            nanos.as_secs_f64() * 1_000.0
        };
        Quantiles { median: quantile(0.5), p99: quantile(0.99) }
    }
}

/// Locks and unlocks as many names as there are pairs, one after the other.
pub(crate) async fn pairs(client: &LockClient, tag: &str, pairs: u32) -> Result<Pairs> {
    let mut measured = Pairs::default();
    for number in 0..pairs {
        let begun = tokio::time::Instant::now();
        let guard = client.lock(&format!("{tag}-{number}")).await?;
        let locked = begun.elapsed();
        guard.unlock().await?;
        let both = begun.elapsed();
        measured.lock.push(locked);
        measured.unlock.push(both - locked);
        measured.both.push(both);
    }
    Ok(measured)
}

/// The times of a lone client.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) lock: Vec<Duration>,
    pub(crate) unlock: Vec<Duration>,
    pub(crate) both: Vec<Duration>,
}
