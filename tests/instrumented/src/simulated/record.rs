//! The records of a simulated cluster: writes, losses of rows, and what the lines of keepers are
//! told.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::admin::types::LockMode;
use crate::core::bakery::{Change, Write};

/// One attempt of a write of lock rows, as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// The client that sent it.
    pub client: usize,
    /// The object.
    pub object: String,
    /// The slot of the contender that it is about.
    pub slot: i16,
    /// The write timestamp, the same for all attempts of a write.
    pub stamp: i64,
    /// When it was sent.
    pub sent: Duration,
    /// When it was acknowledged, if it was.
    pub acknowledged: Option<Duration>,
    /// What the write does.
    pub kind: WriteKind,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Writes the rows of a round.
    Put {
        /// The round.
        round: i64,
        /// How the contender holds, or wants to.
        mode: LockMode,
        /// Its ticket, once drawn.
        ticket: Option<i64>,
        /// How long they live.
        ttl: Duration,
    },
    /// Asks a client to leave.
    Revoke {
        /// The client.
        whom: usize,
        /// The round.
        round: i64,
    },
    /// Deletes the rows of a client: of another client only by force.
    Delete {
        /// The client.
        of: usize,
    },
}

/// The loss of a row that no client deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRecord {
    /// The client that wrote the row.
    pub client: usize,
    /// The object.
    pub object: String,
    /// The name of the row.
    pub row_name: String,
    /// When it was lost.
    pub at: Duration,
}

/// A message about a guest's place in the line of a keeper, in the order in which that keeper hears
/// and says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRecord {
    /// The keeper.
    pub keeper: usize,
    /// The guest.
    pub guest: usize,
    /// The object.
    pub object: String,
    /// The number of the guest's request; zero where it returns a turn.
    pub request: u64,
    /// When it came to the keeper, or was sent by it.
    pub at: Duration,
    /// What it says.
    pub kind: LineKind,
}

/// What a message about a place in a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The guest asks for a turn.
    Asks,
    /// The guest wants none any more.
    Withdraws,
    /// The guest returns a turn.
    Returns,
    /// The keeper has given it a turn.
    Granted,
    /// The keeper sends it away.
    SentAway,
    /// Its connection has ended.
    Disconnected,
}

impl WriteRecord {
    /// The other client, if this deletes another client's rows.
    #[must_use]
    pub fn removes_by_force(&self) -> Option<usize> {
        match self.kind {
            WriteKind::Delete { of } if of != self.client => Some(of),
            WriteKind::Put { .. } | WriteKind::Revoke { .. } | WriteKind::Delete { .. } => None,
        }
    }

    /// The record of a write; `numbers` maps client ids to numbers.
    pub(super) fn new(
        client: usize,
        object: &str,
        sent: Duration,
        write: &Write,
        numbers: &BTreeMap<u128, usize>,
    ) -> Self {
        let (slot, kind) = match &write.change {
            Change::Put { claim, ttl_seconds } => {
                let (round, mode, ticket) = (claim.round, claim.mode.into(), claim.ticket);
                let ttl = Duration::from_secs(u64::from(ttl_seconds.unsigned_abs()));
                (claim.contender.slot, WriteKind::Put { round, mode, ticket, ttl })
            }
            Change::Revoke { revocation, .. } => {
                let whom = numbers[&revocation.contender.client];
                let round = revocation.round;
                (revocation.contender.slot, WriteKind::Revoke { whom, round })
            }
            Change::Delete { contender, .. } => {
                (contender.slot, WriteKind::Delete { of: numbers[&contender.client] })
            }
            Change::Mark | Change::Sweep { .. } => {
                unreachable!("only writes of contenders are recorded")
            }
        };
        let (object, stamp, acknowledged) = (object.to_owned(), write.stamp, None);
        WriteRecord { client, object, slot, stamp, sent, acknowledged, kind }
    }
}
