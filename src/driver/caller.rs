//! Who waits for an answer: callers that want a lock, and those that ask for its queue.

use tokio::sync::oneshot;
use tracing::debug;

use crate::admin::types::HolderQueue;
use crate::core::object::io;
use crate::core::turns::GuestId;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::guard::grant::Trace;
use crate::peers::{Network, ObjectKey};

/// The answer to a caller: a guard, `None` for a try that found the lock taken, or an error.
pub(crate) type Reply = Result<Option<LockGuard>, LockError>;

/// A caller that waits for a lock.
#[derive(Debug)]
pub(crate) struct Caller {
    /// What it wants.
    pub(crate) wants: Box<io::Caller>,
    /// Where the answer goes.
    pub(crate) reply_to: ReplyTo,
}

/// Where the answer to a caller goes.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    /// The answer carries the guard itself, so that a caller that left in the meantime leaves no
    /// lock behind.
    pub(crate) reply: oneshot::Sender<Reply>,
    pub(crate) trace: Trace,
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
            debug!(parent: &self.trace.span, %error, "not obtained");
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

/// Who wants to know the queue of an object.
#[derive(Debug)]
pub(crate) enum QueueReplyTo {
    /// A user of this client.
    User(oneshot::Sender<Option<HolderQueue>>),
    /// Another client, and the object as it named it.
    Guest(GuestId, ObjectKey),
}

impl QueueReplyTo {
    /// Reports the queue; `None` if this client has no place.
    pub(crate) fn answer(self, network: Option<&dyn Network>, queue: Option<HolderQueue>) {
        match self {
            QueueReplyTo::User(reply) => {
                // One that stopped waiting needs no answer.
                let _ = reply.send(queue);
            }
            QueueReplyTo::Guest(guest, object) => {
                if let Some(network) = network {
                    network.tell(guest, object, queue);
                }
            }
        }
    }
}
