//! Notices that the clock has gone ahead of the timers.
//!
//! Timers stop while the machine is suspended, and don't know that the wall clock was set forward;
//! leases count both (design section 2). One look for all objects of a client: with a hundred
//! thousand locks held, looks of each left others a fifth of their locks.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;

/// Timers that are late by less are left alone.
const LATE_MIN: Duration = Duration::from_millis(100);

/// How far the clock is ahead of the timers.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    clock_began: Duration,
    timers_began: Instant,
    /// The lead with which timers were set last, or a smaller one since, in µs.
    lead: i128,
}

impl ClockWatch {
    /// Timers are set from now on.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        ClockWatch { clock_began: clock.elapsed(), timers_began: Instant::now(), lead: 0 }
    }

    /// Whether timers that were set before go off too late. The caller resets them if so.
    pub(crate) fn are_timers_late(&mut self, clock: &dyn Clock) -> bool {
        let micros = |time: Duration| i128::try_from(time.as_micros()).unwrap_or(i128::MAX);
        let passed = clock.elapsed().saturating_sub(self.clock_began);
        let lead = micros(passed) - micros(self.timers_began.elapsed());
        let are_late = lead >= self.lead + micros(LATE_MIN);
        self.lead = if are_late { lead } else { lead.min(self.lead) };
        are_late
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Shows what it was set to.
    #[derive(Debug, Default)]
    struct SetClock(Mutex<Duration>);

    impl SetClock {
        fn forward(&self, by: u64) {
            *self.0.lock().expect("nothing panics") += Duration::from_millis(by);
        }
    }

    impl Clock for SetClock {
        fn elapsed(&self) -> Duration {
            *self.0.lock().expect("nothing panics")
        }

        fn since_boot(&self) -> Duration {
            self.elapsed()
        }

        fn unix_micros(&self) -> i64 {
            0
        }
    }

    // Goal: timers count as late once for each time that the clock goes ahead of them, at once or
    // slowly, also after it has fallen behind.
    // Method: advance tokio's time and the clock by different times.
    #[tokio::test(start_paused = true)]
    async fn clock_ahead_is_noticed_once() {
        let clock = SetClock::default();
        let mut watch = ClockWatch::new(&clock);
        let mut late = async |timers: u64, by: u64| {
            tokio::time::advance(Duration::from_millis(timers)).await;
            clock.forward(by);
            watch.are_timers_late(&clock)
        };
        assert!(!late(1_000, 1_000).await, "both run alike");
        assert!(late(1_000, 4_000).await, "the machine was suspended");
        assert!(!late(1_000, 1_000).await, "the timers were reset");
        assert!(!late(1_000, 1_050).await);
        assert!(late(1_000, 1_050).await, "it runs fast");
        assert!(!late(5_000, 0).await, "it has stopped");
        assert!(late(1_000, 1_500).await, "it is less ahead than before, but was set back");
    }
}
