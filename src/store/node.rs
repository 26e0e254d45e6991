//! Facts about the nodes that hold the rows.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use uuid::Uuid;

/// The number of readings of a clock; the fastest answer is the most exact one.
const CLOCK_READINGS: usize = 3;

/// How long all readings of a clock may take, and any other question asked in passing.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The nodes that hold the rows.
pub(crate) trait NodeProbe: Debug + Send + Sync {
    /// Asks each reachable node that counts for quorums for its report. Takes a round trip, and a
    /// second at most.
    fn probe_nodes(&self) -> Testimonies<'_>;
}

/// The future report of each node; `None` for one that did not answer soon.
pub(crate) type Testimonies<'a> =
    Pin<Box<dyn Future<Output = Vec<(Node, Option<NodeReport>)>> + Send + 'a>>;

/// A node as the driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Identifies the node.
    pub(crate) host_id: Uuid,
    /// Its address, human-readable.
    pub(crate) address: String,
    /// Its data centre.
    pub(crate) datacenter: String,
    /// Whether the driver has a connection to it.
    pub(crate) connected: bool,
}

/// How a node's wall clock compares with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// The node's clock less ours, in µs.
    pub(crate) offset_micros: i64,
    /// The error bound of the offset, in µs: half of the round trip, and the server's rounding.
    pub(crate) error_micros: i64,
}

impl ClockReading {
    /// The reading of our own clock.
    pub(crate) const OURS: ClockReading = ClockReading { offset_micros: 0, error_micros: 0 };

    /// The least that the node's clock can be ahead of ours, in µs.
    pub(crate) fn earliest(self) -> i64 {
        self.offset_micros - self.error_micros
    }

    /// The most that the node's clock can be ahead of ours, in µs.
    pub(crate) fn latest(self) -> i64 {
        self.offset_micros + self.error_micros
    }
}

/// A node's report on what locks rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// Its clock.
    pub(crate) clock: ClockReading,
    /// The id of the lock table as the node knows it; `None` if there is no such table.
    pub(crate) lock_table: Option<Uuid>,
}

/// The most exact of a few readings of a clock, as far as they come in time. If one fails, only
/// those before it count; if none comes in time, the result is `silent`.
pub(crate) async fn best_reading<F, E>(
    limit: Duration,
    silent: E,
    read: impl Fn() -> F,
) -> Result<ClockReading, E>
where
    F: Future<Output = Result<ClockReading, E>>,
{
    let mut best = Err(silent);
    let readings = async {
        for _ in 0..CLOCK_READINGS {
            let reading = read().await;
            let (failed, is_first) = (reading.is_err(), best.is_err());
            let error =
                |read: &Result<ClockReading, E>| read.as_ref().ok().map(|it| it.error_micros);
            if is_first || (!failed && error(&reading) < error(&best)) {
                best = reading;
            }
            if failed {
                break;
            }
        }
    };
    // Readings from before the limit are kept.
    let _ = tokio::time::timeout(limit, readings).await;
    best
}

/// Drives futures until all are done. Their results are in the order of the futures.
pub(crate) async fn at_the_same_time<T>(
    futures: impl Iterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    let mut runs: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, result) in &mut runs {
            if result.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *result = Some(output);
            }
        }
        let done = runs.iter().all(|(_, result)| result.is_some());
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    runs.into_iter().filter_map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best of readings that take this long, in ms, and are as exact as that; `None` fails.
    async fn best_of(readings: &[Option<i64>]) -> Option<i64> {
        let next = std::cell::Cell::new(0);
        let read = || {
            let reading = readings.get(next.replace(next.get() + 1)).copied();
            async move {
                let Some(millis) = reading.expect("no more are asked for") else {
                    return Err("no answer");
                };
                tokio::time::sleep(Duration::from_millis(millis.unsigned_abs())).await;
                Ok(ClockReading { offset_micros: 0, error_micros: millis * 1_000 })
            }
        };
        let best = best_reading(Duration::from_millis(100), "silent", read).await;
        best.ok().map(|reading| reading.error_micros / 1_000)
    }

    #[tokio::test(start_paused = true)]
    async fn most_exact_reading_counts() {
        assert_eq!(best_of(&[Some(50), Some(2), Some(30)]).await, Some(2));
        assert_eq!(best_of(&[Some(2), Some(50), Some(30)]).await, Some(2));
        assert_eq!(best_of(&[Some(50), None]).await, Some(50));
        assert_eq!(best_of(&[Some(50), Some(200)]).await, Some(50));
        assert_eq!(best_of(&[Some(200)]).await, None);
        assert_eq!(best_of(&[None]).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn parallel_queries_take_as_long_as_the_slowest() {
        let began = tokio::time::Instant::now();
        let waits = [30, 10, 20].map(|millis| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            millis
        });
        assert_eq!(at_the_same_time(waits.into_iter()).await, [30, 10, 20]);
        assert_eq!(began.elapsed(), Duration::from_millis(30));
    }
}
