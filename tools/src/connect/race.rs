//! Concurrent attempts; the first success counts.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

/// Starts attempts one after the other, each once the previous one has failed or taken `pause`.
/// Returns the first success, or all failures in order of arrival. The other attempts are dropped.
pub(super) async fn first_success<T, E, F>(
    attempts: impl IntoIterator<Item = F>,
    pause: Duration,
) -> Result<T, Vec<E>>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let mut waiting = attempts.into_iter();
    let mut running = JoinSet::new();
    let mut failures = Vec::new();
    loop {
        let has_begun = waiting.next().map(|attempt| running.spawn(attempt)).is_some();
        if running.is_empty() {
            return Err(failures);
        }
        tokio::select! {
            Some(ended) = running.join_next() => match ended.expect("an attempt does not panic") {
                Ok(success) => return Ok(success),
                Err(failure) => failures.push(failure),
            },
            () = sleep(pause), if has_begun => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Runs attempts that take the given ms and succeed or fail. Returns the result, the time, and
    /// how many attempts were started.
    async fn race(attempts: &[(u64, bool)]) -> (Result<u64, Vec<u64>>, Duration, usize) {
        let (began, begun) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let attempts = attempts.iter().map(|&(millis, succeeds)| {
            let begun = Arc::clone(&begun);
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                sleep(ms(millis)).await;
                if succeeds { Ok(millis) } else { Err(millis) }
            }
        });
        let result = first_success(attempts, ms(500)).await;
        (result, began.elapsed(), begun.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn first_success_counts() {
        assert_eq!(race(&[(100, true), (10, true)]).await, (Ok(100), ms(100), 1));
        assert_eq!(race(&[(9_000, true), (100, true)]).await, (Ok(100), ms(600), 2));
        let silent = (9_000, false);
        assert_eq!(race(&[silent, silent, (100, true)]).await, (Ok(100), ms(1_100), 3));
        assert_eq!(race(&[(1_000, true), silent, silent]).await, (Ok(1_000), ms(1_000), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_begins_the_next_attempt_at_once() {
        assert_eq!(race(&[(10, false), (20, true)]).await, (Ok(20), ms(30), 2));
        let all = [(10, false), (900, false), (20, false)];
        assert_eq!(race(&all).await, (Err(vec![10, 20, 900]), ms(910), 3));
        assert_eq!(race(&[]).await, (Err(vec![]), ms(0), 0));
    }
}
