//! What a simulated cluster tells of the writes that it was asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::{Change, Write};

/// One try of a write of lock rows, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// Which client sent it.
    pub client: usize,
    /// For which object.
    pub object: String,
    /// The write timestamp, which is the same for all tries of a write.
    pub stamp: i64,
    /// When it was sent.
    pub sent: Duration,
    /// When its acknowledgement came, if it did.
    pub acknowledged: Option<Duration>,
    /// What was to be written.
    pub kind: WriteKind,
}

/// What a write is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// To write the rows of a round.
    Put {
        /// The round.
        round: i64,
        /// Its ticket, once drawn.
        ticket: Option<i64>,
        /// How long they live.
        ttl: Duration,
    },
    /// To ask a client to leave.
    Revoke {
        /// Which one.
        whom: usize,
        /// In which round.
        round: i64,
    },
    /// To delete the rows of a client, which is another one only where force is used.
    Delete {
        /// Which one.
        of: usize,
    },
}

/// The loss of a row that no client deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRecord {
    /// Which client's row it was.
    pub client: usize,
    /// Of which object.
    pub object: String,
    /// What the row is called.
    pub row_name: String,
    /// When it was lost.
    pub at: Duration,
}

impl WriteRecord {
    /// Which other client's rows it deletes, if it does.
    #[must_use]
    pub fn removes_by_force(&self) -> Option<usize> {
        match self.kind {
            WriteKind::Delete { of } if of != self.client => Some(of),
            WriteKind::Put { .. } | WriteKind::Revoke { .. } | WriteKind::Delete { .. } => None,
        }
    }

    /// A write that is sent; `numbers` says which client a contender is.
    pub(super) fn new(
        client: usize,
        object: &str,
        sent: Duration,
        write: &Write,
        numbers: &BTreeMap<u128, usize>,
    ) -> Self {
        let kind = match &write.change {
            Change::Put { claim, ttl_seconds } => WriteKind::Put {
                round: claim.round,
                ticket: claim.ticket,
                ttl: Duration::from_secs(u64::from(ttl_seconds.unsigned_abs())),
            },
            Change::Revoke { revocation, .. } => WriteKind::Revoke {
                whom: numbers[&revocation.contender.client],
                round: revocation.round,
            },
            Change::Delete { contender, .. } => {
                WriteKind::Delete { of: numbers[&contender.client] }
            }
        };
        let object = object.to_owned();
        WriteRecord { client, object, stamp: write.stamp, sent, acknowledged: None, kind }
    }
}
