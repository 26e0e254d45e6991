//! Where the messages of other clients go.
//!
//! A message about an object in use goes to the task of that object at once: a turn that goes from
//! hand to hand waits for nothing else. All others go to the client's task.
//!
//! Both take in a bounded number that they have not handled. A connection that brings more is not
//! read meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::{Message, ObjectKey, Received};

/// How many messages may wait for the task of an object, and for the client's task.
const WAITING_MAX: usize = 128;

/// Takes in the messages of other clients. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    tasks: Arc<Mutex<BTreeMap<ObjectKey, mpsc::Sender<Message>>>>,
    others: mpsc::Sender<Received>,
}

/// The client's task has ended, and takes no messages any more.
#[derive(Debug)]
pub(crate) struct Ended;

impl Inbox {
    /// An inbox, and what comes for the client's task.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Received>) {
        let (others, received) = mpsc::channel(WAITING_MAX);
        (Inbox { tasks: Arc::default(), others }, received)
    }

    /// Takes the messages about an object for its task, from now on.
    pub(crate) fn open(&self, object: ObjectKey) -> mpsc::Receiver<Message> {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        self.tasks().insert(object, sender);
        messages
    }

    /// The task of an object has ended.
    pub(crate) fn close(&self, object: ObjectKey) {
        self.tasks().remove(&object);
    }

    /// Whether there is a task for an object.
    #[cfg(feature = "peers")]
    pub(crate) fn is_open(&self, object: ObjectKey) -> bool {
        self.tasks().contains_key(&object)
    }

    /// Passes a message on to the task of its object, or returns it if there is none. It is lost
    /// if too many wait for that task.
    pub(crate) fn pass_on(&self, object: ObjectKey, message: Message) -> Option<Message> {
        let Some(task) = self.tasks().get(&object).cloned() else {
            return Some(message);
        };
        match task.try_send(message) {
            Ok(()) | Err(TrySendError::Full(_)) => None,
            Err(TrySendError::Closed(message)) => Some(message),
        }
    }

    /// Takes in what has come, as soon as there is room for it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message is lost.
    #[cfg(feature = "peers")]
    pub(crate) async fn take(&self, received: Received) -> Result<(), Ended> {
        let rest = match received {
            Received::Message { object, message } => {
                let task = self.tasks().get(&object).cloned();
                let unsent = match task {
                    Some(task) => task.send(message).await.err().map(|unsent| unsent.0),
                    None => Some(message),
                };
                let Some(message) = unsent else {
                    return Ok(());
                };
                Received::Message { object, message }
            }
            Received::Who { .. } | Received::Reconnected { .. } => received,
        };
        self.others.send(rest).await.map_err(|_| Ended)
    }

    /// Takes in what has come. It is lost if there is no room for it.
    #[cfg(any(test, instrumented))]
    pub(crate) fn take_at_once(&self, received: Received) -> Result<(), Ended> {
        let rest = match received {
            Received::Message { object, message } => match self.pass_on(object, message) {
                Some(message) => Received::Message { object, message },
                None => return Ok(()),
            },
            Received::Who { .. } | Received::Reconnected { .. } => received,
        };
        match self.others.try_send(rest) {
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Ended),
        }
    }

    /// Whether the client's task has ended.
    #[cfg(any(test, instrumented))]
    pub(crate) fn has_ended(&self) -> bool {
        self.others.is_closed()
    }

    /// Waits until the client's task has ended.
    #[cfg(feature = "peers")]
    pub(crate) async fn ended(&self) {
        self.others.closed().await;
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, mpsc::Sender<Message>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
