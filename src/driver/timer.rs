//! A timer that is seldom set, and waiting for an optional future.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Goes off in time, or too early.
///
/// To set a timer to an earlier time than all others interrupts the runtime, which costs more than
/// to wake up once too often, so where deadlines come and go with each turn, a timer that would go
/// off too early is left as it is.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Waits for this long at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn within(&mut self, limit: Duration) {
        let due = Instant::now() + limit;
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.is_elapsed() || due < timer.deadline() {
            timer.as_mut().reset(due);
        }
        timer.await;
    }
}

/// Waits for a future, if there is one; otherwise for ever.
///
/// # Cancel safety
///
/// As that of the future.
pub(crate) async fn when_some<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    // Goal: a wait never lasts longer than its limit, and a timer that is left alone goes off once.
    // Method: limits that grow and shrink, on a paused clock.
    #[tokio::test(start_paused = true)]
    async fn no_wait_is_longer_than_its_limit() {
        let mut timer = Timer::default();
        let began = Instant::now();
        tokio::select! {
            biased;
            () = timer.within(ms(20)) => panic!("it is too early"),
            () = tokio::time::sleep(ms(5)) => {}
        }
        timer.within(ms(1_000)).await;
        assert_eq!(began.elapsed(), ms(20), "the first one was left alone");
        timer.within(ms(1_000)).await;
        assert_eq!(began.elapsed(), ms(1_020));
        tokio::select! {
            biased;
            () = timer.within(ms(1_000)) => panic!("it is too early"),
            () = tokio::time::sleep(ms(5)) => {}
        }
        timer.within(ms(10)).await;
        assert_eq!(began.elapsed(), ms(1_035));
    }
}
