//! Who holds a lock or waits for it, as others see it.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::client::{Interruption, LockClient};
use crate::error::ContendersError;
use crate::options::check_name;
use crate::protocol::{ContenderId, Read, SeenContender, Survey};
use crate::retry::until_answered;

/// A client that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// Host name, process id and label, as it wrote them.
    pub owner: String,
    /// Number of its host.
    pub host: i32,
    /// The client.
    pub client: Uuid,
    /// Which of the client's places for the lock.
    pub slot: i16,
    /// Which of its tries to acquire the lock this is: a number that only grows within a client.
    /// `None` when its rows can't be read by this version; then it blocks all others.
    pub round: Option<i64>,
    /// Its ticket; `None` while it chooses one, or holds without.
    pub ticket: Option<i64>,
}

impl Contender {
    /// When it began to acquire the lock, by its own clock; `None` when its rows can't be read.
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

impl LockClient {
    /// Who holds the lock of `name` or waits for it now, in the order of the queue.
    ///
    /// The holder is the first one, if anybody holds. Those who have no ticket come before the
    /// others: each of them may hold the lock, or be about to draw a ticket. It costs one read of
    /// the whole object, the dearest operation there is, so don't poll it.
    ///
    /// # Errors
    ///
    /// See [`ContendersError`]. Nothing is changed in any case.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn contenders(&self, name: &str) -> Result<Vec<Contender>, ContendersError> {
        check_name(name)?;
        let store = &self.shared().store;
        let mut setback = None;
        let rows = until_answered(|| store.read(name, Read::Object), &mut setback);
        let rows = self.unless_interrupted(rows).await;
        let name = || name.to_owned();
        let rows = rows.map_err(|interruption| match interruption {
            Interruption::TimedOut { waited } => {
                ContendersError::TimedOut { name: name(), waited, cause: setback }
            }
            Interruption::Closed => ContendersError::Closed,
            Interruption::Forked => ContendersError::Forked,
        })?;
        let rows = rows.map_err(|cause| ContendersError::Refused { name: name(), cause })?;
        Ok(Survey::of(&rows).contenders().into_iter().map(Contender::from).collect())
    }
}
