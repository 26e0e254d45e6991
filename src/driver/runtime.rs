//! Timers for futures that are polled outside a tokio runtime.

use std::future::{Future, poll_fn};

use tokio::runtime::Handle;

/// Polls `work` in the context of `runtime` where it is polled outside any runtime. Inside one its
/// timers belong to the runtime that polls it, which may run while `runtime` is blocked.
///
/// A timer panics on a runtime that has ended, so what outlives a client must look first whether
/// its task has ended.
pub(crate) fn with_timers<T>(
    runtime: &Handle,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    // On the heap: every lock would carry what few wait for.
    let mut work = Box::pin(work);
    poll_fn(move |cx| {
        let _context = Handle::try_current().is_err().then(|| runtime.enter());
        work.as_mut().poll(cx)
    })
}
