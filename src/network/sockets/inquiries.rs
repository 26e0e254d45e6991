//! Questions of operators: who uses an object, and who waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::wire::{ObjectHash, ToKeeper};
use super::super::{KeeperId, NotReached};
use super::{Shared, keepers, lock};
use crate::line::Line;

/// A question is asked again after this time, because messages may be lost,
pub(super) const REPEAT_AFTER: Duration = Duration::from_millis(250);

/// and at most this often.
pub(super) const ASKED_MAX: u32 = 4;

/// The questions that have no answer yet.
#[derive(Default)]
pub(super) struct Inquiries(Mutex<BTreeMap<(KeeperId, ObjectHash), Vec<Inquirer>>>);

/// Where an answer goes.
type Inquirer = oneshot::Sender<Option<Line>>;

impl Inquiries {
    fn begin(&self, keeper: KeeperId, object: ObjectHash) -> oneshot::Receiver<Option<Line>> {
        let (sender, answer) = oneshot::channel();
        let mut inquiries = lock(&self.0);
        // Those that were given up.
        inquiries.retain(|_, inquirers| {
            inquirers.retain(|inquirer| !inquirer.is_closed());
            !inquirers.is_empty()
        });
        inquiries.entry((keeper, object)).or_default().push(sender);
        answer
    }

    /// Passes an answer on to all that asked this.
    pub(super) fn answered(&self, keeper: KeeperId, object: ObjectHash, line: Option<&Line>) {
        let inquirers = lock(&self.0).remove(&(keeper, object));
        for inquirer in inquirers.into_iter().flatten() {
            // One that gave up needs no answer.
            let _ = inquirer.send(line.cloned());
        }
    }
}

/// Asks a client for the line of an object.
pub(super) async fn who(
    shared: Arc<Shared>,
    keeper: KeeperId,
    object: ObjectHash,
) -> Result<Option<Line>, NotReached> {
    let mut answer = shared.inquiries.begin(keeper, object);
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
