//! A client that holds a lock or waits for it, as other clients see it.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::protocol::{ContenderId, SeenContender};

/// A client that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// Host name, process id and label, as the client wrote them.
    pub owner: String,
    /// The number of its host.
    pub host: i32,
    /// The id of the client.
    pub client: Uuid,
    /// The client's place for the lock.
    pub slot: i16,
    /// Its round, one attempt to acquire the lock: a number that only grows within a client. `None`
    /// if this version can't read its rows; then it blocks all others.
    pub round: Option<i64>,
    /// Its ticket; `None` while it chooses one, or if it holds without one.
    pub ticket: Option<i64>,
}

impl Contender {
    /// When it began to acquire the lock, by its own clock; `None` if its rows can't be read.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        // A round is the write timestamp of its announcement, in µs.
        let micros = u64::try_from(self.round?).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros))
    }

    /// The contender as the protocol knows it.
    pub(crate) fn id(&self) -> ContenderId {
        ContenderId { host: self.host, client: self.client.as_u128(), slot: self.slot }
    }
}

impl From<SeenContender> for Contender {
    fn from(seen: SeenContender) -> Self {
        let SeenContender { contender, owner, round, ticket } = seen;
        let ContenderId { host, client, slot } = contender;
        Contender { owner, host, client: Uuid::from_u128(client), slot, round, ticket }
    }
}
