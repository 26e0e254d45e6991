//! The io of a contender: its inputs, its outputs, and the data they carry.

use std::sync::Arc;
use std::time::Duration;

use super::admission::Denial;
use super::lease::{Lease, LeaseTerms};
use super::row::{Claim, ContenderId, LastRelease, Mode, Revocation, Statics, StoredRow, row_name};

/// The moment at which an input is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time elapsed since the clock's origin. It never goes back.
    pub(crate) elapsed: Duration,
    /// A write timestamp, in µs, above every earlier one of this client.
    pub(crate) stamp: i64,
    /// A random number in 0..1, to spread polls.
    pub(crate) jitter: f64,
}

/// An input of a contender.
#[derive(Clone, Debug)]
pub(crate) enum ContenderInput {
    /// Acquire the object. Legal only when idle: before the first acquisition, and after
    /// [`ContenderEvent::Released`].
    Acquire(Acquire),
    /// The answer to a write, or to an exchange whose write is not acknowledged.
    Written {
        /// The answered operation.
        op: OpId,
        /// Its outcome.
        outcome: WriteOutcome,
    },
    /// The answer to a read, or to an exchange: a quorum has applied its write as well.
    Read {
        /// The answered operation.
        op: OpId,
        /// The rows seen.
        rows: Result<Vec<StoredRow>, ReadFailure>,
        /// The static columns seen.
        statics: Statics,
    },
    /// The deadline passed.
    Tick,
    /// Renew the lease now. Does nothing unless the object is held with renewal.
    Renew,
    /// Hold the object on other terms from now on. The rows say so from the next renewal on. Does
    /// nothing unless the object is held.
    ///
    /// With another TTL the lease ends with the shorter of both until that renewal is acknowledged,
    /// so send it only while no turn relies on the lease (rule R5 of design section 7).
    Reassign(Assignment),
    /// The object is idle: renew nothing until it is reassigned. A write in progress still counts.
    /// Does nothing unless the object is held.
    Rest,
    /// Read the contender's own rows now: [`ContenderEvent::Confirmed`] or [`ContenderEvent::Lost`]
    /// follows a read that begins after this input. Does nothing unless the object is held.
    Confirm,
    /// Release the object, or give up acquiring it. Legal in every state;
    /// [`ContenderEvent::Released`] follows, at once if there is nothing to release.
    Release,
}

/// How to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acquire {
    /// How to hold the object.
    pub(crate) mode: Mode,
    /// How long rows live without renewal.
    pub(crate) terms: LeaseTerms,
    /// Whether to wait for the contenders ahead.
    pub(crate) patience: Patience,
    /// Whether to renew the lease while holding. While waiting it is always renewed.
    pub(crate) renew: bool,
    /// When its caller gives up, by the library's clock, if that is known.
    pub(crate) gives_up: Option<Duration>,
    /// Human-readable: host name, process id and label.
    pub(crate) owner: Arc<str>,
}

/// What may change while the object is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// How long rows live without renewal.
    pub(crate) terms: LeaseTerms,
    /// Whether to renew the lease.
    pub(crate) renew: bool,
    /// Human-readable: host name, process id, label and note.
    pub(crate) owner: Arc<str>,
    /// Whether it is shared from now on.
    pub(crate) shares: bool,
    /// Whether to write it at once, even if only the owner differs.
    pub(crate) at_once: bool,
}

/// Whether to wait for the contenders ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    /// Wait until let in.
    Wait,
    /// Wait only for choosing contenders, and only as long as choosing takes.
    Try,
}

/// Identifies an operation of one contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(u64);

impl OpId {
    /// The id of the operation after this one.
    #[must_use]
    pub(super) fn next(self) -> Self {
        OpId(self.0 + 1)
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// Acknowledged by a quorum.
    Applied,
    /// Certainly not applied; a retry may succeed.
    NotApplied,
    /// Certainly not applied, and never will be: the statement itself is refused.
    Rejected,
    /// May be applied now, later or never.
    Unknown,
}

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// A retry may succeed.
    Failed,
    /// The statement itself is refused.
    Rejected,
}

/// An output of a contender: a request or an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ContenderOutput {
    /// Write rows; answer with [`ContenderInput::Written`].
    Write {
        /// Answer with this id.
        op: OpId,
        /// What to write.
        write: Write,
    },
    /// Read rows; answer with [`ContenderInput::Read`].
    Read {
        /// Answer with this id.
        op: OpId,
        /// What to read.
        read: Read,
    },
    /// Write rows and read others, each replica both as a unit, in this order; answer with
    /// [`ContenderInput::Read`] what a quorum shows that did both, or that the write is applied and
    /// the read failed; or with [`ContenderInput::Written`] why the write is not acknowledged.
    Exchange {
        /// Answer with this id.
        op: OpId,
        /// What to write.
        write: Write,
        /// What to read.
        read: Read,
    },
    /// Something happened.
    Event(ContenderEvent),
}

/// A write of the rows of one object. Repeating it changes nothing but the time of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The write timestamp, in µs, kept by retries.
    pub(crate) stamp: i64,
    /// What to write.
    pub(crate) change: Change,
}

/// The effect of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes the claim's `entering::` row.
    Put {
        /// The content.
        claim: Claim,
        /// The TTL in seconds.
        ttl_seconds: i32,
    },
    /// Writes the `revoked::` row of another contender.
    Revoke {
        /// The content.
        revocation: Revocation,
        /// The TTL in seconds.
        ttl_seconds: i32,
    },
    /// Deletes the `entering::` row, together with the `revoked::` row if one was seen.
    Delete {
        /// The contender.
        contender: ContenderId,
        /// Whether a `revoked::` row may exist.
        revoked: bool,
        /// What the release reports to waiters, if anything.
        last_release: Option<LastRelease>,
    },
    /// Raises the object's mark to the stamp.
    Mark,
    /// Deletes the `entering::` rows of all contenders but some, as far as they were written up to
    /// the stamp.
    Sweep {
        /// The contenders whose rows stay, in the order of their keys.
        spared: Vec<ContenderId>,
    },
}

impl Change {
    /// The names of the deleted rows.
    pub(crate) fn deleted_rows(&self) -> Vec<&'static str> {
        let Change::Delete { revoked, .. } = *self else {
            return Vec::new();
        };
        let revoked = revoked.then_some(row_name::REVOKED);
        std::iter::once(row_name::ENTERING).chain(revoked).collect()
    }
}

/// The rows that a read covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// All rows of the object.
    Object,
    /// The rows of one contender.
    Contender(ContenderId),
    /// The `entering::` row of one contender.
    Entering(ContenderId),
    /// The rows of one contender, and the `entering::` rows of all that are ahead of it.
    Front { own: ContenderId, ahead: [Option<ContenderId>; FRONT_MAX] },
}

impl Read {
    /// The read of the rows of `own`, and of the first [`FRONT_MAX`] of those ahead of it.
    pub(crate) fn front(own: ContenderId, others: impl Iterator<Item = ContenderId>) -> Self {
        let mut ahead = [None; FRONT_MAX];
        for (place, other) in ahead.iter_mut().zip(others) {
            *place = Some(other);
        }
        Read::Front { own, ahead }
    }

    /// Whether it asks for this row of a contender.
    pub(crate) fn asks_for(self, row_name: &str, contender: ContenderId) -> bool {
        let is_entering = row_name == row_name::ENTERING;
        match self {
            Read::Object => true,
            Read::Contender(asked) => asked == contender,
            Read::Entering(asked) => asked == contender && is_entering,
            Read::Front { own, ahead } => {
                own == contender || is_entering && ahead.contains(&Some(contender))
            }
        }
    }
}

/// How many contenders ahead one read asks for at most. Each is a row more for the servers to find,
/// and waiters further back ask seldom.
pub(crate) const FRONT_MAX: usize = 4;

/// An event of a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContenderEvent {
    /// The object is held.
    Held {
        /// The lease until the first renewal.
        lease: Lease,
        /// The terms of renewal.
        terms: LeaseTerms,
    },
    /// A renewal was acknowledged in time.
    Renewed {
        /// The new lease.
        lease: Lease,
        /// The terms on which the rows were written.
        terms: LeaseTerms,
    },
    /// A read that began after the last request to confirm shows the rows of the held object.
    Confirmed,
    /// Another client asked the holder to leave. The lease is not renewed any more; when it ends,
    /// the object is lost.
    Expiring(Revocation),
    /// A try found the lock taken; the rows are being deleted.
    Taken,
    /// The acquisition failed; the rows are being deleted.
    Failed(Failure),
    /// The object is no longer held. The rows stay until [`ContenderInput::Release`].
    Lost(Loss),
    /// The contender has no rows left and is idle.
    Released,
}

/// Why an acquisition failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An acknowledged row is missing.
    RowMissing,
    /// Another client asked this contender to leave.
    Revoked(Revocation),
    /// The database refuses a statement.
    Rejected,
    /// The largest possible ticket was already written.
    NoTicketLeft,
    /// The mark is larger than any that a client writes, so that no round is begun above it.
    MarkOutOfReach {
        /// How far it is ahead.
        ahead: Duration,
    },
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::RowMissing => Failure::RowMissing,
            Denial::Revoked(revocation) => Failure::Revoked(revocation),
        }
    }
}

/// Why a held object was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The lease expired.
    Expired,
    /// An acknowledged row is missing.
    RowMissing,
    /// Another client asked this contender to leave.
    Revoked(Revocation),
    /// Another contender also holds the object and was granted it later.
    Conflict {
        /// Its owner, as stated in its rows.
        holder: String,
    },
}

impl From<Denial> for Loss {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::RowMissing => Loss::RowMissing,
            Denial::Revoked(revocation) => Loss::Revoked(revocation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::RevokeKind;
    use super::*;

    #[test]
    fn delete_names_the_rows_that_there_may_be() {
        let contender = ContenderId { host: 1, client: 2, slot: 0 };
        let rows =
            |revoked| Change::Delete { contender, revoked, last_release: None }.deleted_rows();
        assert_eq!(rows(false), ["entering::"]);
        assert_eq!(rows(true), ["entering::", "revoked::"]);
        let (by, why) = (String::new(), String::new());
        let revocation = Revocation { contender, round: 1, by, why, kind: RevokeKind::Request };
        assert_eq!(Change::Revoke { revocation, ttl_seconds: 60 }.deleted_rows(), [""; 0]);
    }
}
