//! A caller that waits for a lock, and where its answer goes.

use tokio::sync::oneshot;
use tracing::{Span, debug};

use crate::core::object::io;
use crate::driver::guard::LockGuard;
use crate::error::LockError;

/// The answer to a caller: a guard, `None` for a try that found the lock taken, or an error.
pub(crate) type Reply = Result<Option<LockGuard>, LockError>;

/// A caller that waits for a lock.
#[derive(Debug)]
pub(crate) struct Caller {
    /// What it wants.
    pub(crate) wants: io::Caller,
    /// Where the answer goes.
    pub(crate) reply_to: ReplyTo,
}

/// Where the answer to a caller goes.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    /// The answer carries the guard itself, so that a caller that left in the meantime leaves no
    /// lock behind.
    pub(crate) reply: oneshot::Sender<Reply>,
    /// The root span of the acquisition.
    pub(crate) span: Span,
}

impl Caller {
    /// Answers the caller.
    pub(crate) fn answer(self, answer: Reply) {
        self.reply_to.answer(answer);
    }
}

impl ReplyTo {
    /// Whether the caller still waits for the answer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Answers the caller.
    pub(crate) fn answer(self, answer: Reply) {
        if let Err(error) = &answer {
            debug!(parent: &self.span, %error, "not obtained");
        }
        // A caller that stopped waiting needs no answer; a guard in it is dropped and so released.
        let _ = self.reply.send(answer);
    }
}

impl AsRef<io::Caller> for Caller {
    fn as_ref(&self) -> &io::Caller {
        &self.wants
    }
}
