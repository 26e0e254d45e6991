//! Signals that end a command.

use std::future::{Future, poll_fn};
use std::io;
use std::task::Poll;

use rustix::process;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What fails where signals can't be noticed.
const UNHEARD: &str = "signals can't be received";

/// The signals that end a command.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Notices signals from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = || {
            let interrupt = signal(SignalKind::interrupt())?;
            Ok(Signals { interrupt, terminate: signal(SignalKind::terminate())? })
        };
        listen().map_err(Failure::system(UNHEARD))
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

/// The signals that are passed on to a command. Once made, they no longer end this process.
pub(crate) struct PassedOn {
    streams: Vec<(process::Signal, Signal)>,
}

impl PassedOn {
    /// Notices signals from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let kinds = [
            (process::Signal::INT, SignalKind::interrupt()),
            (process::Signal::TERM, SignalKind::terminate()),
            (process::Signal::HUP, SignalKind::hangup()),
            (process::Signal::QUIT, SignalKind::quit()),
            (process::Signal::USR1, SignalKind::user_defined1()),
            (process::Signal::USR2, SignalKind::user_defined2()),
        ];
        let streams = kinds.into_iter().map(|(number, kind)| Ok((number, signal(kind)?)));
        let streams: io::Result<_> = streams.collect();
        Ok(PassedOn { streams: streams.map_err(Failure::system(UNHEARD))? })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> process::Signal {
        poll_fn(|cx| {
            for (number, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The result of the work, unless a signal comes first; then the work is dropped.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => result,
            signal = self.next() => {
                let signal = u8::try_from(signal.as_raw()).unwrap_or(0);
                Err(Failure::Interrupted { signal })
            }
        }
    }
}
