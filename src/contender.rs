//! A client that holds a lock or waits for it, as other clients see it.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::owner::Owner;
use crate::protocol::{ContenderId, Mode, SeenContender};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// By one alone.
    Exclusive,
    /// By all that share it, and by none else.
    Shared,
    /// By a limited number, and by none else.
    Limited {
        /// That number.
        max_holders: u32,
    },
}

impl From<Mode> for LockMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => LockMode::Exclusive,
            Mode::Shared => LockMode::Shared,
            // It is above zero, or its row can't be read.
            Mode::Limited(most) => LockMode::Limited { max_holders: most.unsigned_abs() },
        }
    }
}

/// A client that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// Host name, process id and label, as the client wrote them.
    pub owner: Owner,
    /// The number of its host.
    pub host: i32,
    /// The id of the client.
    pub client: Uuid,
    /// The client's place for the lock.
    pub slot: i16,
    /// Its round, one attempt to acquire the lock: a number that only grows within a client. `None`
    /// if this version can't read its rows; then it blocks all others.
    pub round: Option<i64>,
    /// How it holds the lock, or wants to; `None` as for the round.
    pub mode: Option<LockMode>,
    /// Its ticket; `None` while it chooses one, or if it holds without one.
    pub ticket: Option<i64>,
    /// Since when it holds the lock, by its own clock. `None` if it waits for the lock, or has held
    /// it for too short a time: a holder's rows tell it from its first renewal on, which is due
    /// after a third of its TTL. It is `None` also of those
    /// [ahead](crate::LockError::TimedOut::ahead) of a caller.
    pub held_since: Option<SystemTime>,
}

impl Contender {
    /// When it began to acquire the lock, by its own clock; `None` if its rows can't be read.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        // A round is the write timestamp of its announcement, in µs.
        let micros = u64::try_from(self.round?).ok()?;
        since_epoch(Duration::from_micros(micros))
    }

    /// The contender as the protocol knows it.
    pub(crate) fn id(&self) -> ContenderId {
        ContenderId { host: self.host, client: self.client.as_u128(), slot: self.slot }
    }
}

impl From<SeenContender> for Contender {
    fn from(seen: SeenContender) -> Self {
        let SeenContender { contender, owner, round, mode, ticket, held_since } = seen;
        let ContenderId { host, client, slot } = contender;
        let (client, mode) = (Uuid::from_u128(client), mode.map(LockMode::from));
        let millis = held_since.and_then(|since| u64::try_from(since).ok());
        let held_since = millis.and_then(|millis| since_epoch(Duration::from_millis(millis)));
        let owner = Owner::from(owner);
        Contender { owner, host, client, slot, round, mode, ticket, held_since }
    }
}

fn since_epoch(time: Duration) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(time)
}
