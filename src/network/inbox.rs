//! Where the messages of other clients go.
//!
//! A message about an object in use goes to the task of that object at once: a turn that goes from
//! hand to hand waits for nothing else. All others go to the client's task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{Message, ObjectKey, Received};

/// Takes in the messages of other clients. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    tasks: Arc<Mutex<BTreeMap<ObjectKey, mpsc::UnboundedSender<Message>>>>,
    others: mpsc::UnboundedSender<Received>,
}

/// The client's task has ended, and takes no messages any more.
#[derive(Debug)]
pub(crate) struct Ended;

impl Inbox {
    /// An inbox, and what comes for the client's task.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Received>) {
        let (others, received) = mpsc::unbounded_channel();
        (Inbox { tasks: Arc::default(), others }, received)
    }

    /// Takes the messages about an object for its task, from now on.
    pub(crate) fn open(&self, object: ObjectKey) -> mpsc::UnboundedReceiver<Message> {
        let (sender, messages) = mpsc::unbounded_channel();
        self.tasks().insert(object, sender);
        messages
    }

    /// The task of an object has ended.
    pub(crate) fn close(&self, object: ObjectKey) {
        self.tasks().remove(&object);
    }

    /// Passes a message on to the task of its object, or returns it if there is none.
    pub(crate) fn pass_on(&self, object: ObjectKey, message: Message) -> Option<Message> {
        match self.tasks().get(&object) {
            Some(task) => task.send(message).err().map(|unsent| unsent.0),
            None => Some(message),
        }
    }

    /// Takes in what has come.
    pub(crate) fn take(&self, received: Received) -> Result<(), Ended> {
        let rest = match received {
            Received::Message { object, message } => match self.pass_on(object, message) {
                Some(message) => Received::Message { object, message },
                None => return Ok(()),
            },
            Received::Who { .. } | Received::Reconnected { .. } => received,
        };
        self.others.send(rest).map_err(|_| Ended)
    }

    /// Whether the client's task has ended.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn has_ended(&self) -> bool {
        self.others.is_closed()
    }

    /// Waits until the client's task has ended.
    #[cfg(feature = "peers")]
    pub(crate) async fn ended(&self) {
        self.others.closed().await;
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, mpsc::UnboundedSender<Message>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
