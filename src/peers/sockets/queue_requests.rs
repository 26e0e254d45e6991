//! Questions of operators: who uses an object, and who waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::wire::{ObjectHash, ToKeeper};
use super::super::{KeeperId, NotReached};
use super::{SocketState, keepers, lock};
use crate::admin::types::HolderQueue;

/// A question is asked again after this time, because messages may be lost,
pub(super) const REPEAT_AFTER: Duration = Duration::from_millis(250);

/// and at most this often.
pub(super) const ASKED_MAX: u32 = 4;

/// The questions that have no answer yet.
#[derive(Default)]
pub(super) struct QueueRequests(Mutex<BTreeMap<(KeeperId, ObjectHash), Vec<QueueSender>>>);

/// Where an answer goes.
type QueueSender = oneshot::Sender<Option<HolderQueue>>;

impl QueueRequests {
    fn begin(
        &self,
        keeper: KeeperId,
        object: ObjectHash,
    ) -> oneshot::Receiver<Option<HolderQueue>> {
        let (sender, answer) = oneshot::channel();
        let mut queue_requests = lock(&self.0);
        // Those that were given up.
        queue_requests.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        queue_requests.entry((keeper, object)).or_default().push(sender);
        answer
    }

    /// Passes an answer on to all that asked this.
    pub(super) fn answered(
        &self,
        keeper: KeeperId,
        object: ObjectHash,
        line: Option<&HolderQueue>,
    ) {
        let senders = lock(&self.0).remove(&(keeper, object));
        for sender in senders.into_iter().flatten() {
            // One that gave up needs no answer.
            let _ = sender.send(line.cloned());
        }
    }
}

/// Asks a client for the line of an object.
pub(super) async fn who(
    shared: Arc<SocketState>,
    keeper: KeeperId,
    object: ObjectHash,
) -> Result<Option<HolderQueue>, NotReached> {
    let mut answer = shared.queue_requests.begin(keeper, object);
    for _ in 0..ASKED_MAX {
        // It may be the first one that needs the connection, and the connection may be lost.
        if keepers::connect(&shared, keeper).await {
            shared.keepers.send(keeper, &ToKeeper::Who { object });
        }
        if let Ok(told) = timeout(REPEAT_AFTER, &mut answer).await {
            return told.map_err(|_| NotReached);
        }
    }
    Err(NotReached)
}
