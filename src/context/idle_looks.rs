//! Looks at idle places: whether a contender waits for one in the table. Many places are read
//! together, because thousands may be idle at once, and none of these reads is in a hurry.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{ClientContext, Pace};
use crate::core::bakery::StoredRow;

/// How many places one read shows at most. ScyllaDB refuses a read of more than 100 partitions.
const PLACES_PER_READ: usize = 32;

/// How often a client reads in a second at most, and how often at once after a pause. When more
/// places are idle than that shows, each is looked at less often.
const READS: u32 = 50;
const READS_AT_ONCE: u32 = 20;

/// The idle places of a client that are to be looked at.
#[derive(Debug)]
pub(crate) struct IdleLooks {
    asked: Mutex<Asked>,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Asked {
    looks: VecDeque<Look>,
    /// A task reads until none is left.
    is_read: bool,
}

#[derive(Debug)]
struct Look {
    object: Arc<str>,
    answer: oneshot::Sender<Vec<StoredRow>>,
}

impl IdleLooks {
    pub(crate) const fn new() -> Self {
        let asked = Asked { looks: VecDeque::new(), is_read: false };
        IdleLooks { asked: Mutex::new(asked), pace: Pace::new(READS, READS_AT_ONCE) }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a look; true if nobody reads yet.
    fn add(&self, look: Look) -> bool {
        let mut asked = self.asked();
        asked.looks.push_back(look);
        !std::mem::replace(&mut asked.is_read, true)
    }

    /// Whether there is something to read. If not, whoever reads has finished.
    fn is_asked(&self) -> bool {
        let mut asked = self.asked();
        asked.is_read = !asked.looks.is_empty();
        asked.is_read
    }

    /// Takes the looks for the next read, without those that nobody waits for any more.
    fn take(&self) -> Vec<Look> {
        let mut asked = self.asked();
        let wanted = std::iter::from_fn(|| asked.looks.pop_front());
        wanted.filter(|look| !look.answer.is_closed()).take(PLACES_PER_READ).collect()
    }
}

impl ClientContext {
    /// The rows of an idle place as one replica has them. A read that fails shows nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the read may be made all the same.
    pub(crate) async fn look_at_idle(self: &Arc<Self>, object: &Arc<str>) -> Vec<StoredRow> {
        let (answer, rows) = oneshot::channel();
        if self.idle_looks.add(Look { object: Arc::clone(object), answer }) {
            tokio::spawn(read_all(Arc::clone(self)));
        }
        rows.await.unwrap_or_default()
    }
}

/// Reads until no look is left. In a fork it reads nothing.
async fn read_all(shared: Arc<ClientContext>) {
    while shared.process.is_current() && shared.idle_looks.is_asked() {
        shared.idle_looks.pace.wait().await;
        if !shared.process.is_current() {
            return;
        }
        let mut looks = shared.idle_looks.take();
        if looks.is_empty() {
            continue;
        }
        looks.sort_by(|one, other| one.object.cmp(&other.object));
        let objects: Vec<_> = looks.iter().map(|look| Arc::clone(&look.object)).collect();
        let rows = shared.store.rows.read_one_replica_of_each(&objects).await.unwrap_or_default();
        let mut rows_of = vec![Vec::new(); looks.len()];
        for (object, row) in rows {
            if let Ok(place) = objects.binary_search_by(|name| (**name).cmp(&object)) {
                rows_of[place].push(row);
            }
        }
        for (look, rows) in looks.into_iter().zip(rows_of) {
            // One that is no longer wanted needs no answer.
            let _ = look.answer.send(rows);
        }
    }
}
