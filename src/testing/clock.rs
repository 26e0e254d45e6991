//! Time in tests.

/// Stops the time of a test's runtime, as long as the returned value lives: it passes only by
/// `tokio::time::advance`. Paused time alone would jump to the next timer whenever a test waits for
/// its sockets.
#[cfg(test)]
#[must_use = "paused time passes by itself once this is dropped"]
pub(crate) fn still_time() -> tokio::sync::oneshot::Sender<()> {
    let (held, is_dropped) = tokio::sync::oneshot::channel();
    // While a blocking task runs, paused time does not pass by itself.
    tokio::task::spawn_blocking(move || is_dropped.blocking_recv());
    tokio::time::pause();
    held
}
