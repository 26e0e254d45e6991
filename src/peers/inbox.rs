//! Where the messages of other clients go.
//!
//! A message about an object in use goes to that object at once: a turn that goes from hand to hand
//! waits for nothing else. All others go to the client's task.
//!
//! Both take in a bounded number that they have not handled. A connection that brings more is not
//! read meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::{Message, ObjectKey, Received};
use crate::combiner::Combiner;

/// How many messages may wait for an object, and for the client's task.
const WAITING_MAX: usize = 128;

/// Takes in the messages of other clients. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    objects: Arc<Mutex<BTreeMap<ObjectKey, Way>>>,
    others: mpsc::Sender<Received>,
}

/// Where the messages about an object go, and what handles them.
#[derive(Clone, Debug)]
struct Way {
    messages: mpsc::Sender<Message>,
    combiner: Weak<dyn Combiner>,
}

/// The client's task has ended, and takes no messages any more.
#[derive(Debug)]
pub(crate) struct Ended;

impl Inbox {
    /// An inbox, and what comes for the client's task.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Received>) {
        let (others, received) = mpsc::channel(WAITING_MAX);
        (Inbox { objects: Arc::default(), others }, received)
    }

    /// Takes the messages about an object for this combiner, from now on.
    pub(crate) fn open(
        &self,
        object: ObjectKey,
        combiner: Weak<dyn Combiner>,
    ) -> mpsc::Receiver<Message> {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        self.objects().insert(object, Way { messages: sender, combiner });
        messages
    }

    /// An object is no longer in use.
    pub(crate) fn close(&self, object: ObjectKey) {
        self.objects().remove(&object);
    }

    /// Whether an object is in use.
    #[cfg(feature = "peers")]
    pub(crate) fn is_open(&self, object: ObjectKey) -> bool {
        self.objects().contains_key(&object)
    }

    /// Passes a message on to its object, whose task handles it; returns it if the object is not in
    /// use. It is lost if too many wait there.
    pub(crate) fn pass_on(&self, object: ObjectKey, message: Message) -> Option<Message> {
        let Some(way) = self.way(object) else {
            return Some(message);
        };
        match way.messages.try_send(message) {
            Ok(()) | Err(TrySendError::Full(_)) => {
                if let Some(combiner) = way.combiner.upgrade() {
                    combiner.wake();
                }
                None
            }
            Err(TrySendError::Closed(message)) => Some(message),
        }
    }

    /// Takes in what has come, as soon as there is room for it. A message about an object in use is
    /// handled at once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message is lost.
    #[cfg(feature = "peers")]
    pub(crate) async fn take(&self, received: Received) -> Result<(), Ended> {
        let rest = match received {
            Received::Message { object, message } => {
                let way = self.way(object);
                let unsent = match &way {
                    Some(way) => way.messages.send(message).await.err().map(|unsent| unsent.0),
                    None => Some(message),
                };
                let Some(message) = unsent else {
                    if let Some(combiner) = way.and_then(|way| way.combiner.upgrade()) {
                        combiner.run();
                    }
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

    fn way(&self, object: ObjectKey) -> Option<Way> {
        self.objects().get(&object).cloned()
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Way>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
