//! Limits how often something is done.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// So often in a second, and so often at once after a pause.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    at_once: u32,
    /// The moment of the next one, if all before came as soon as they may.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) const fn new(per_second: u32, at_once: u32) -> Self {
        let interval = Duration::from_nanos(1_000_000_000 / per_second as u64);
        Pace { interval, at_once, next: Mutex::new(None) }
    }

    /// Waits until it may be done once more, in the order in which callers come.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it counts as done.
    pub(crate) async fn wait(&self) {
        let now = Instant::now();
        let at = self.reserve(now);
        if at > now {
            sleep_until(at).await;
        }
    }

    fn reserve(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = self.interval * (self.at_once - 1);
        let reserved = next.map_or(now, |next| next.max(now));
        *next = Some(reserved + self.interval);
        reserved.checked_sub(earned).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_earn_a_burst_and_no_more() {
        let pace = Pace::new(1_000, 10);
        let begins = Instant::now();
        let waited = |now: Instant, times: u32| {
            let mut last = now;
            for _ in 0..times {
                last = pace.reserve(now);
            }
            last - now
        };
        assert_eq!(waited(begins, 10), Duration::ZERO);
        assert_eq!(waited(begins, 1), ms(1));
        assert_eq!(waited(begins, 99), ms(100));
        // All that was reserved is over, and half of a burst is earned again.
        let later = begins + ms(105);
        assert_eq!(waited(later, 5), Duration::ZERO);
        assert_eq!(waited(later, 1), ms(1));
        let much_later = begins + ms(10_000);
        assert_eq!(waited(much_later, 10), Duration::ZERO);
        assert_eq!(waited(much_later, 2), ms(2));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_end_in_order() {
        let pace = Pace::new(1_000, 1);
        let begins = Instant::now();
        pace.wait().await;
        assert_eq!(begins.elapsed(), ms(0));
        pace.wait().await;
        pace.wait().await;
        assert_eq!(begins.elapsed(), ms(2));
    }
}
