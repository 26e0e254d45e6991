//! Signals that end a command.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that end a command.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Notices signals from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Signals { interrupt, terminate })
    }

    /// The result of the work, unless a signal comes first; then the work is dropped.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        const INTERRUPT: u8 = 2;
        const TERMINATE: u8 = 15;
        tokio::select! {
            result = work => result,
            _ = self.interrupt.recv() => Err(Failure::Interrupted { signal: INTERRUPT }),
            _ = self.terminate.recv() => Err(Failure::Interrupted { signal: TERMINATE }),
        }
    }
}
