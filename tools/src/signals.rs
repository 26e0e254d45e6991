//! Signals that end a command, or are passed on to the command that it runs.
//!
//! A signal that is ignored when the program starts stays ignored, as after `nohup`, or for a
//! background job of a script.

use std::future::{Future, pending};

use procfs::process::Process;
use rustix::process::Signal;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use signal_hook_tokio::SignalsInfo;
use tokio_stream::StreamExt;

use crate::failure::Failure;

/// Signals that are received instead of ending this process.
pub(crate) struct Signals(SignalsInfo<WithOrigin>);

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) signal: Signal,
    /// Whether a key of the terminal or its end caused it: all processes of the group have it then.
    pub(crate) by_terminal: bool,
}

impl Signals {
    /// The signals that end a command, from now on.
    pub(crate) fn that_end() -> Result<Self, Failure> {
        Signals::new(&[Signal::INT, Signal::TERM])
    }

    /// The signals that are passed on, from now on.
    pub(crate) fn passed_on() -> Result<Self, Failure> {
        Signals::new(&[
            Signal::INT,
            Signal::TERM,
            Signal::HUP,
            Signal::QUIT,
            Signal::USR1,
            Signal::USR2,
        ])
    }

    fn new(signals: &[Signal]) -> Result<Self, Failure> {
        // Without /proc none is known to be ignored.
        let status = Process::myself().and_then(|process| process.status());
        let ignored = status.map_or(0, |status| status.sigign);
        let numbers = signals.iter().map(|signal| signal.as_raw());
        let received = numbers.filter(|number| ignored & (1 << (number - 1)) == 0);
        let signals = SignalsInfo::new(received);
        signals.map(Signals).map_err(Failure::system("signals can't be received"))
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Received {
        loop {
            // The stream ends only if its handle closes it.
            let Some(origin) = self.0.next().await else { return pending().await };
            let Origin { signal, cause, .. } = origin;
            if let Some(signal) = Signal::from_named_raw(signal) {
                return Received { signal, by_terminal: cause == Cause::Kernel };
            }
        }
    }

    /// The result of the work, unless a signal comes first; then the work is dropped.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => result,
            Received { signal, .. } = self.next() => {
                let signal = u8::try_from(signal.as_raw()).unwrap_or(0);
                Err(Failure::Interrupted { signal })
            }
        }
    }
}
