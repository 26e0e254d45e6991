//! Requests that are repeated until the database answers.

use std::time::Duration;

use tracing::debug;

use crate::store::{Answer, DatabaseError};

/// How long to wait before a request that failed is made again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Makes a request until it is answered; why it was not yet is left in `setback`. The request must
/// be such that making it again does no harm.
///
/// # Errors
///
/// What the database refuses for good.
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
