//! Where the rows of a holder stand.

use uuid::Uuid;

use crate::core::bakery::ContenderId;

/// The place in the table that a lock uses: the rows of one contender in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldPlace {
    /// The number of the contender's host.
    pub host: i32,
    /// The id of its client: that of the holder's own client, or of another one whose place the
    /// holder uses in turn.
    pub client: Uuid,
    /// The slot of the contender.
    pub slot: i16,
    /// Its round, one attempt to acquire the lock.
    pub round: i64,
}

impl HeldPlace {
    pub(crate) fn new(contender: ContenderId, round: i64) -> Self {
        let ContenderId { host, client, slot } = contender;
        HeldPlace { host, client: Uuid::from_u128(client), slot, round }
    }

    /// The contender as the protocol knows it.
    pub(crate) fn contender(&self) -> ContenderId {
        ContenderId { host: self.host, client: self.client.as_u128(), slot: self.slot }
    }
}
