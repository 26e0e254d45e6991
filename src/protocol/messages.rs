//! What goes in and out of a contender: inputs, outputs, and what they carry.

use std::time::Duration;

use super::admission::Denial;
use super::lease::{Lease, LeaseTerms};
use super::row::{Claim, ContenderId, Mode, Revocation, StoredRow, row_name};

/// The moment at which something is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time elapsed since the clock's origin. It never goes back.
    pub(crate) elapsed: Duration,
    /// A write timestamp, in µs, above every one that this client has used.
    pub(crate) stamp: i64,
    /// A random number in 0..1, to spread polls.
    pub(crate) jitter: f64,
}

/// What a contender is told.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Acquire the object. Legal only when idle: before the first one, and after
    /// [`Event::Released`].
    Acquire(Acquire),
    /// The answer to a write.
    Written {
        /// The operation that is answered.
        op: OpId,
        /// What became of it.
        outcome: WriteOutcome,
    },
    /// The answer to a read.
    Read {
        /// The operation that is answered.
        op: OpId,
        /// The rows seen.
        rows: Result<Vec<StoredRow>, ReadFailure>,
    },
    /// The deadline passed.
    Tick,
    /// Renew the lease now. Does nothing unless the object is held on terms that renew.
    Renew,
    /// Read the own rows now: [`Event::Confirmed`] or [`Event::Lost`] follows a read that begins
    /// after this. Does nothing unless the object is held.
    Confirm,
    /// Give the object back, or give up acquiring it. Legal in every state; [`Event::Released`]
    /// follows, at once when there is nothing to give back.
    Release,
}

/// How to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acquire {
    /// How to hold the object.
    pub(crate) mode: Mode,
    /// How long rows live without renewal.
    pub(crate) terms: LeaseTerms,
    /// Whether to wait for those ahead.
    pub(crate) patience: Patience,
    /// Whether to renew the lease while holding; while waiting it always is.
    pub(crate) renew: bool,
    /// For people: host name, process id and label.
    pub(crate) owner: String,
}

/// Whether to wait for those ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until let in.
    Wait,
    /// Only for choosing contenders, and only as long as choosing takes.
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

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// Acknowledged by a quorum.
    Applied,
    /// Certainly not applied; trying again may help.
    NotApplied,
    /// Certainly not applied, and never will be: the statement itself is refused.
    Rejected,
    /// It may be applied, now, later or never.
    Unknown,
}

/// Why a read brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// Trying again may help.
    Failed,
    /// The statement itself is refused.
    Rejected,
}

/// What a contender wants done, or tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Write rows; answer with [`Input::Written`].
    Write {
        /// Answer with this id.
        op: OpId,
        /// What to write.
        write: Write,
    },
    /// Read rows; answer with [`Input::Read`].
    Read {
        /// Answer with this id.
        op: OpId,
        /// What to read.
        read: Read,
    },
    /// Something happened.
    Event(Event),
}

/// A write of rows of one contender. Repeating it changes nothing but the moment of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The write timestamp, in µs, kept by retries.
    pub(crate) stamp: i64,
    /// What is written.
    pub(crate) change: Change,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes the claim's `entering::` row, and its `tickets::` row if it has a ticket, as one.
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
    /// Deletes the `entering::` row, and with it the `tickets::` row if one was ever sent, and the
    /// `revoked::` row if one was seen.
    Delete {
        /// Whose rows.
        contender: ContenderId,
        /// Whether there may be a `tickets::` row.
        ticket: bool,
        /// Whether there may be a `revoked::` row.
        revoked: bool,
    },
}

impl Change {
    /// Which rows are deleted, by their names.
    pub(crate) fn deleted_rows(&self) -> Vec<&'static str> {
        let Change::Delete { ticket, revoked, .. } = *self else {
            return Vec::new();
        };
        let ticket = ticket.then_some(row_name::TICKETS);
        let revoked = revoked.then_some(row_name::REVOKED);
        [Some(row_name::ENTERING), ticket, revoked].into_iter().flatten().collect()
    }
}

/// What a read reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// All rows of the object.
    Object,
    /// The rows of one contender.
    Contender(ContenderId),
    /// The `entering::` row of one contender.
    Entering(ContenderId),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The object is held.
    Held {
        /// Until when, without renewal.
        lease: Lease,
        /// The terms it is renewed on.
        terms: LeaseTerms,
    },
    /// A renewal was acknowledged in time.
    Renewed {
        /// The new lease.
        lease: Lease,
    },
    /// A read, begun after all that was asked for, shows the rows of the held object.
    Confirmed,
    /// A try found the lock taken; the rows are being deleted.
    Taken,
    /// The acquisition failed; the rows are being deleted.
    Failed(Failure),
    /// The object is held no longer; the rows are being deleted.
    Lost(Loss),
    /// The contender has no rows any more, and is idle.
    Released,
}

/// Why an acquisition failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A row that was acknowledged is not there.
    RowMissing,
    /// Another client asked this contender to leave.
    Revoked(Revocation),
    /// The database refuses a statement.
    Rejected,
    /// The largest ticket there is was written.
    NoTicketLeft,
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
    /// The lease ran out.
    Expired,
    /// A row that was acknowledged is not there.
    RowMissing,
    /// Another client asked this contender to leave.
    Revoked(Revocation),
    /// Another contender holds the object too, and was granted it later.
    Conflict {
        /// What it calls itself.
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
    use super::*;

    #[test]
    fn a_delete_names_the_rows_that_there_may_be() {
        let contender = ContenderId { host: 1, client: 2, slot: 0 };
        let rows = |ticket, revoked| Change::Delete { contender, ticket, revoked }.deleted_rows();
        assert_eq!(rows(false, false), ["entering::"]);
        assert_eq!(rows(true, false), ["entering::", "tickets::"]);
        assert_eq!(rows(false, true), ["entering::", "revoked::"]);
        assert_eq!(rows(true, true), ["entering::", "tickets::", "revoked::"]);
        let (by, why) = (String::new(), String::new());
        let revocation = Revocation { contender, round: 1, by, why };
        assert_eq!(Change::Revoke { revocation, ttl_seconds: 60 }.deleted_rows(), [""; 0]);
    }
}
