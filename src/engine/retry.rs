//! Requests that are repeated until the database answers.

use std::time::Duration;

use tracing::debug;

use crate::store::{Answer, DatabaseError};

/// The pause before a failed request is repeated.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Repeats a request until it is answered; the last failure is left in `setback`. Repeating the
/// request must be harmless.
///
/// # Errors
///
/// If the database refuses the request permanently.
pub(crate) async fn until_answered<'a, T>(
    request: impl Fn() -> Answer<'a, T>,
    setback: &mut Option<DatabaseError>,
) -> Result<T, DatabaseError> {
    loop {
        match request().await {
            Err(error) if !error.is_permanent() => {
                debug!(%error, "a request failed and is made again");
                *setback = Some(error);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            answer @ (Ok(_) | Err(_)) => return answer,
        }
    }
}
