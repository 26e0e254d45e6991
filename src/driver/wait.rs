//! Awaiting an optional future.

use std::future::{Future, pending};

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
