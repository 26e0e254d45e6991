//! The line of a lock, as its keeper reports it to operators.

use uuid::Uuid;

use crate::owner::Owner;

/// The maximum number of waiters reported: with the keeper and the user, no more fit into a
/// message.
pub(crate) const QUEUE_SHOWN_MAX: usize = 6;

/// A client that uses a place, or waits for its turn, as people know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TurnUser {
    /// The id of the client. Callers of the keeper have the keeper's.
    pub client: Uuid,
    /// Host name and process id; of a caller of the keeper its label too. Other clients report at
    /// most 100 bytes of it.
    pub owner: Owner,
}

impl TurnUser {
    /// A user by its client and owner.
    pub(crate) fn new(client: u128, owner: impl Into<Owner>) -> Self {
        TurnUser { client: Uuid::from_u128(client), owner: owner.into() }
    }
}

/// Who uses a lock now, and who stands in line for it: see
/// [`LockClient::queue`](crate::LockClient::queue).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HolderQueue {
    /// The keeper: the client that has the place in the table.
    pub keeper: TurnUser,
    /// Who has the turn: a caller of the keeper, or a guest. `None` for a moment between two turns,
    /// and while the lock is kept.
    pub user: Option<TurnUser>,
    /// Whether the lock is idle and [kept](crate::LockClientBuilder::keep_idle): the keeper's next
    /// caller or guest has it at once.
    pub is_kept: bool,
    /// How many wait in the line: callers of the keeper and guests.
    pub waiting: usize,
    /// The first of them, six at most, in the order in which they are served.
    pub first: Vec<TurnUser>,
}
