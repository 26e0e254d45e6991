//! The clock of stores in memory.

#[cfg(any(test, feature = "test-util"))]
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::{Clock, Moment, SystemClock};

/// A clock that follows tokio's, paused or not, with a wall clock that can be set.
#[derive(Debug)]
pub(crate) struct TokioClock {
    origin: Instant,
    unix_origin_micros: i64,
    #[cfg(any(test, feature = "test-util"))]
    micros_ahead: AtomicI64,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub(crate) fn new() -> Self {
        TokioClock {
            origin: Instant::now(),
            unix_origin_micros: SystemClock::new().unix_micros(),
            #[cfg(any(test, feature = "test-util"))]
            micros_ahead: AtomicI64::new(0),
        }
    }

    /// Sets the wall clock ahead; a negative number sets it back.
    #[cfg(any(test, feature = "test-util"))]
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
        self.now().unix_micros
    }

    fn now(&self) -> Moment {
        let elapsed = self.elapsed();
        let micros = i64::try_from(elapsed.as_micros());
        let micros = micros.expect("no program runs for a thousand years");
        let unix_micros = self.unix_origin_micros + micros;
        #[cfg(any(test, feature = "test-util"))]
        let unix_micros = unix_micros + self.micros_ahead.load(Ordering::Relaxed);
        Moment { elapsed, since_boot: elapsed, unix_micros }
    }
}
