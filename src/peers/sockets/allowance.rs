//! Limits the rate at which messages of another client are read.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The maximum number of messages read from a connection in a second. Excess messages wait in the
/// connection: decrypting, handling and answering them must not keep a processor busy. Two busy
/// clients, of which one is the guest of the other, come to 20,000.
const PER_SECOND: u32 = 32_768;

/// The maximum burst, after a second of silence: a guest may ask for many objects at once.
const AT_ONCE: u32 = PER_SECOND;

/// How long reading pauses once the limit is reached.
const PAUSE: Duration = Duration::from_millis(10);

/// The messages that may be read now.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    /// When `left` was last filled up.
    counted: Instant,
}

impl Allowance {
    pub(super) fn new() -> Self {
        Allowance { left: AT_ONCE, counted: Instant::now() }
    }

    /// Waits until one more message may be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future consumes nothing.
    pub(super) async fn take(&mut self) {
        while self.left == 0 {
            let now = Instant::now();
            let passed = now.duration_since(self.counted).min(Duration::from_secs(1));
            let earned = passed.as_micros() * u128::from(PER_SECOND) / 1_000_000;
            self.left = u32::try_from(earned).unwrap_or(AT_ONCE);
            if self.left == 0 {
                sleep(PAUSE).await;
            } else {
                self.counted = now;
            }
        }
        self.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn time_for(allowance: &mut Allowance, messages: u32) -> Duration {
        let began = Instant::now();
        for _ in 0..messages {
            allowance.take().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn flood_is_read_at_a_bounded_rate() {
        let mut allowance = Allowance::new();
        assert_eq!(time_for(&mut allowance, AT_ONCE).await, Duration::ZERO, "it was silent");
        let seconds = time_for(&mut allowance, 10 * PER_SECOND).await.as_secs_f64();
        assert!((9.9..10.3).contains(&seconds), "{seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_earns_a_second_of_messages() {
        let mut allowance = Allowance::new();
        time_for(&mut allowance, AT_ONCE).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(time_for(&mut allowance, AT_ONCE).await, Duration::ZERO);
        assert!(time_for(&mut allowance, 1).await >= PAUSE);
    }
}
