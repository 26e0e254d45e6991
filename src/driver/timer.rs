//! A timer that is seldom set, and waiting for an optional future.

use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Goes off in time, or too early.
///
/// To set a timer to an earlier time than all others interrupts the runtime, which costs more than
/// to wake up once too often, so where deadlines come and go with each turn, a timer that would go
/// off too early is left as it is.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// It was set, and has not gone off.
    is_set: bool,
}

impl Timer {
    /// Waits for this long at most. A timer that is ready has gone off once.
    pub(crate) fn poll_within(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let due = Instant::now() + limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        let is_over = self.is_set && sleep.is_elapsed();
        if !is_over && (!self.is_set || due < sleep.deadline()) {
            sleep.as_mut().reset(due);
        }
        let polled = sleep.as_mut().poll(context);
        self.is_set = polled.is_pending();
        polled
    }

    /// Whether it goes off within this time, as it was set last.
    pub(crate) fn goes_off_within(&self, limit: Duration) -> bool {
        // One that has gone off unnoticed is not set for what comes.
        let set = self.sleep.as_ref().filter(|sleep| self.is_set && !sleep.is_elapsed());
        set.is_some_and(|sleep| sleep.deadline() <= Instant::now() + limit)
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
    use std::future::poll_fn;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    async fn within(timer: &mut Timer, limit: u64) {
        poll_fn(|context| timer.poll_within(context, ms(limit))).await;
    }

    // Goal: a timer that went off while nothing waited for it does not count as set.
    // Method: set one, and let its time pass.
    #[tokio::test(start_paused = true)]
    async fn timer_that_went_off_is_set_again() {
        let mut timer = Timer::default();
        assert!(!timer.goes_off_within(ms(20)));
        let polled = poll_fn(|context| Poll::Ready(timer.poll_within(context, ms(20))));
        assert!(polled.await.is_pending());
        assert!(timer.goes_off_within(ms(20)));
        assert!(!timer.goes_off_within(ms(5)), "it goes off later");
        tokio::time::sleep(ms(30)).await;
        assert!(!timer.goes_off_within(ms(20)), "it has gone off");
        within(&mut timer, 20).await;
    }

    // Goal: a wait never lasts longer than its limit, and a timer that is left alone goes off once.
    // Method: limits that grow and shrink, on a paused clock.
    #[tokio::test(start_paused = true)]
    async fn no_wait_is_longer_than_its_limit() {
        let mut timer = Timer::default();
        let began = Instant::now();
        tokio::select! {
            biased;
            () = within(&mut timer, 20) => panic!("it is too early"),
            () = tokio::time::sleep(ms(5)) => {}
        }
        within(&mut timer, 1_000).await;
        assert_eq!(began.elapsed(), ms(20), "the first one was left alone");
        within(&mut timer, 1_000).await;
        assert_eq!(began.elapsed(), ms(1_020));
        tokio::select! {
            biased;
            () = within(&mut timer, 1_000) => panic!("it is too early"),
            () = tokio::time::sleep(ms(5)) => {}
        }
        within(&mut timer, 10).await;
        assert_eq!(began.elapsed(), ms(1_035));
    }
}
