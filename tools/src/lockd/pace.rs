//! How fast one client may go while others wait.
//!
//! All connections share one thread, and what one has done is paid for with the time of others: a
//! client that sends without end gets a ninth of the thread while there is other work, and all of
//! it otherwise.

use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// How much time others must have had for each moment of work.
const SHARE: u32 = 8;

/// What may be owed without waiting: those that send a few commands at a time never wait.
const FREE: Duration = Duration::from_micros(200);

/// Others that took less time did nothing but look at what has come.
const ALONE: Duration = Duration::from_micros(5);

/// What is owed to others.
#[derive(Debug, Default)]
pub(super) struct Pace {
    owed: Duration,
}

impl Pace {
    /// Notes own work.
    pub(super) fn worked(&mut self, time: Duration) {
        self.owed += time * SHARE;
    }

    /// Whether others come first now.
    pub(super) fn must_wait(&self) -> bool {
        self.owed > FREE
    }

    /// Notes what time others had. If that was next to none although they had a chance, there is no
    /// other work, and nothing is owed.
    pub(super) fn waited(&mut self, time: Duration, had_a_chance: bool) {
        self.owed = self.owed.saturating_sub(time);
        if had_a_chance && time < ALONE {
            self.owed = Duration::ZERO;
        }
    }

    /// Waits until nothing is owed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn rest(&mut self) {
        while self.must_wait() {
            let began = Instant::now();
            yield_now().await;
            self.waited(began.elapsed(), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_micros(25);

    #[test]
    fn steady_work_gets_a_ninth_beside_others() {
        let mut pace = Pace::default();
        let (mut own, mut others) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..1_000 {
            pace.worked(MOMENT);
            own += MOMENT;
            while pace.must_wait() {
                pace.waited(MOMENT * 2, true);
                others += MOMENT * 2;
            }
        }
        let share = own.as_secs_f64() / (own + others).as_secs_f64();
        assert!((0.10..0.12).contains(&share), "{share}");
    }

    #[test]
    fn commands_now_and_then_never_wait() {
        let mut pace = Pace::default();
        for _ in 0..1_000 {
            pace.worked(MOMENT);
            assert!(!pace.must_wait());
            pace.waited(MOMENT * SHARE, false);
        }
    }

    #[test]
    fn without_other_work_nothing_is_owed() {
        let mut pace = Pace::default();
        pace.worked(Duration::from_secs(1));
        pace.waited(ALONE / 2, false);
        assert!(pace.must_wait(), "what has come was not looked at");
        pace.waited(ALONE / 2, true);
        assert!(!pace.must_wait());
    }
}
