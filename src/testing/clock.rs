//! A clock for tests with paused time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};

/// A clock that follows tokio's, paused or not, with a wall clock that can be set.
#[derive(Debug)]
pub(crate) struct TokioClock {
    origin: Instant,
    unix_origin_micros: i64,
    micros_ahead: AtomicI64,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub(crate) fn new() -> Self {
        TokioClock {
            origin: Instant::now(),
            unix_origin_micros: SystemClock::new().unix_micros(),
            micros_ahead: AtomicI64::new(0),
        }
    }

    /// Sets the wall clock ahead; a negative number sets it back.
    pub(crate) fn set_ahead(&self, micros: i64) {
        self.micros_ahead.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for TokioClock {
    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    fn since_boot(&self) -> Duration {
        self.origin.elapsed()
    }

    fn unix_micros(&self) -> i64 {
        let elapsed = i64::try_from(self.elapsed().as_micros());
        let elapsed = elapsed.expect("a test does not run for a thousand years");
        self.unix_origin_micros + elapsed + self.micros_ahead.load(Ordering::Relaxed)
    }
}

/// Stops the time of a test's runtime, as long as the returned value lives: it passes only by
/// `tokio::time::advance`. Paused time alone would jump to the next timer whenever a test waits for
/// its sockets.
#[cfg(test)]
#[must_use = "paused time passes by itself once this is dropped"]
pub(crate) fn still_time() -> tokio::sync::oneshot::Sender<()> {
    let (held, is_dropped) = tokio::sync::oneshot::channel();
    // While a blocking task runs, paused time does not pass by itself.
    tokio::task::spawn_blocking(move || is_dropped.blocking_recv());
    tokio::time::pause();
    held
}
