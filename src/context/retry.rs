//! Requests that are repeated until the database answers.

use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::store::{DatabaseError, StoreFuture};

/// The pause before a failed request is repeated.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// For how long a read without a timeout of its own is repeated. A busy cluster may take longer for
/// one than a try waits, a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Repeats a request until it is answered; the last failure is left in `last_error`. Repeating the
/// request must be harmless.
///
/// # Errors
///
/// If the database refuses the request permanently.
pub(crate) async fn until_answered<'a, T>(
    request: impl Fn() -> StoreFuture<'a, T>,
    last_error: &mut Option<DatabaseError>,
) -> Result<T, DatabaseError> {
    let note = |error| {
        *last_error = Some(error);
        Ok(())
    };
    repeated(request, note).await
}

/// Repeats a read for a few seconds, unless it is answered before.
///
/// # Errors
///
/// The last failure; at once if the database refuses the read permanently.
pub(crate) async fn answered_soon<T, F>(read: impl Fn() -> F) -> Result<T, DatabaseError>
where
    F: Future<Output = Result<T, DatabaseError>>,
{
    let began = Instant::now();
    let fail_when_over = |error| if began.elapsed() < PATIENCE { Ok(()) } else { Err(error) };
    repeated(read, fail_when_over).await
}

/// Repeats a request until it is answered, refused permanently, or `failed` returns an error.
async fn repeated<T, F>(
    request: impl Fn() -> F,
    mut failed: impl FnMut(DatabaseError) -> Result<(), DatabaseError>,
) -> Result<T, DatabaseError>
where
    F: Future<Output = Result<T, DatabaseError>>,
{
    loop {
        match request().await {
            Err(error) if !error.is_permanent() => {
                debug!(%error, "a request failed");
                failed(error)?;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            answer @ (Ok(_) | Err(_)) => return answer,
        }
    }
}
