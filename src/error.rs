//! Errors: one type per operation.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::contender::Contender;
use crate::finding::{Finding, Joined};
use crate::options::{InvalidOption, shown};
use crate::store::DatabaseError;

/// Why a lock was not obtained. In every case nothing is held, and rows that were written are being
/// deleted in the background; should that fail too, they expire by their TTL.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The name or an option can't be used. Nothing was written.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// The timeout passed before the lock was free, or while the database did not answer: for the
    /// lock, or for the host's registration once that was a minute old.
    #[error("lock {:?} was not obtained within {waited:?}{}", shown(name), Waiting(ahead))]
    TimedOut {
        /// The object.
        name: String,
        /// How long the caller waited.
        waited: Duration,
        /// The contenders that hold the lock or are ahead, as last seen; empty when none was seen.
        ahead: Vec<Contender>,
        /// The last error of the database, if the last thing that it said was one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The database refuses a statement: the table is gone, as later callers are
    /// [told](Self::TableGone), or access is denied. `lock-hosts check` tells what is wrong.
    #[error("lock {:?}: the database refuses the request; run `lock-hosts check`", shown(name))]
    Refused {
        /// The object.
        name: String,
        /// What the database says.
        #[source]
        cause: DatabaseError,
    },
    /// A row that a quorum had acknowledged was not there: the clocks differ by more than the
    /// bound, or it was deleted. `lock-hosts check` compares clocks.
    #[error(
        "lock {:?}: our own row is missing although it was acknowledged; run `lock-hosts check`",
        shown(name)
    )]
    RowMissing {
        /// The object.
        name: String,
    },
    /// Another client [revoked](crate::LockClient::revoke) this acquisition while it waited.
    #[error("lock {:?}: waiting for it was revoked by {by}: {why}", shown(name))]
    Revoked {
        /// The object.
        name: String,
        /// Who: host name and process id.
        by: String,
        /// Why, in its words.
        why: String,
    },
    /// It was obtained, but lost again before the caller's future was polled: after a pause longer
    /// than the lease, or because another client [revoked](crate::LockClient::revoke) it. The
    /// caller was not inside.
    #[error("lock {:?} was obtained and lost before the caller looked: {reason}", shown(name))]
    Lost {
        /// The object.
        name: String,
        /// Why it is not held any more.
        reason: LostReason,
    },
    /// The largest ticket there is was written; it goes with the TTL of its row.
    #[error("lock {:?}: no ticket is left; a row with an absurd ticket is in the way", shown(name))]
    NoTicketLeft {
        /// The object.
        name: String,
    },
    /// The client's host was removed from the registry.
    #[error("host {host:?} is not registered any more; run `lock-hosts add {host}`")]
    HostRemoved {
        /// The host's name.
        host: String,
    },
    /// Clocks certainly differ by more than the settings of the lock table allow, so two may hold
    /// one lock. Locks that are held go on, and their guards are
    /// [at risk](crate::GuardState::AtRisk). The client looks again when it is asked for a lock
    /// later on, or renews one, at most every 5 s. It goes on by itself once the clocks agree, or
    /// once three looks in a row have asked the nodes that differed and could not show for certain
    /// that they still do: a bound about as small as the error of the measurement is never seen to
    /// be kept.
    #[error(
        "lock {:?}: the clocks differ by too much for locks: {}",
        shown(name),
        Joined(problems)
    )]
    ClocksDiffer {
        /// The object.
        name: String,
        /// Which ones, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped, or dropped and made again, since the client was built. All that
    /// it held is [lost](LostReason::TableGone), and it gets no lock any more.
    #[error(
        "lock {:?}: the lock table was dropped or made again since this client was built: run \
         `lock-hosts check`, `lock-hosts init` if the table is missing, and build another client",
        shown(name)
    )]
    TableGone {
        /// The object.
        name: String,
    },
    /// The client was shut down, or the runtime that it was built on has ended. Or the task behind
    /// this lock ended by a bug, which is logged as an error: then the next request gets another
    /// task, and rows that are left are in the way of other clients until their TTL is over.
    #[error("the lock client is closed")]
    Closed,
    /// This process is a fork of the one that built the client. Nothing was written.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
}

/// Tells which contenders are ahead, for people.
struct Waiting<'a>(&'a [Contender]);

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [one] => write!(f, ": {} holds it or is ahead", one.owner),
            [first, others @ ..] => {
                write!(f, ": {} and {} more hold it or are ahead", first.owner, others.len())
            }
        }
    }
}

/// Why a lock could not be given back as it should.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// The lock had been lost before. Nothing is held; another client may hold it by now.
    #[error("the lock was lost before it was given back: {0}")]
    Lost(LostReason),
    /// No quorum acknowledged the release in time. It goes on in the background; at the latest the
    /// rows expire by their TTL.
    #[error("the release was not acknowledged within {waited:?}")]
    Unacknowledged {
        /// How long was waited.
        waited: Duration,
        /// The last error of the database, if it said one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The client's runtime ended while the release was under way. The rows expire by their TTL.
    #[error("the lock client is closed; the lock is given back when its ttl is over")]
    Closed,
}

/// Why a held lock is held no longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out before a renewal was acknowledged.
    #[error("the lease ran out")]
    Expired,
    /// A row of ours was not there any more.
    #[error("the row of the lock is missing")]
    RowMissing,
    /// Another client [revoked](crate::LockClient::revoke) it.
    #[error("it was revoked by {by}: {why}")]
    Revoked {
        /// Who: host name and process id.
        by: String,
        /// Why, in its words.
        why: String,
    },
    /// Another client holds the lock too, and was granted it later: rows of this holder were lost
    /// for a while, because an assumption about the database or its clocks failed. Of two
    /// such holders the earlier one is lost, within two thirds of a TTL.
    #[error("{holder} holds it too, and was granted it later: rows of the lock had been lost")]
    Conflict {
        /// What the other holder calls itself: host name, process id and label.
        holder: String,
    },
    /// It was held for longer than the request's [`max_hold`](crate::LockRequest::max_hold) and
    /// [`grace`](crate::LockRequest::grace).
    #[error("it was held for longer than its limit and the grace allow")]
    HoldLimit,
    /// The lock table was dropped, and with it went the rows of all holders. Where it was made
    /// again at once, a holder may find its [row missing](Self::RowMissing) first.
    #[error("the lock table was dropped or made again")]
    TableGone,
    /// The client was shut down, or the runtime that it was built on has ended; or the task behind
    /// the lock ended by a bug, which is logged as an error.
    #[error("the client was shut down, or its runtime has ended")]
    ClientClosed,
    /// This process is a fork of the one that holds the lock, and holds nothing.
    #[error("this process is a fork of the one that holds it")]
    Forked,
}

/// Why a held lock could not be [ensured](crate::LockGuard::ensure) or
/// [checked](crate::LockGuard::check).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum EnsureError {
    /// The lock is not held any more.
    #[error("the lock is lost: {0}")]
    Lost(LostReason),
    /// A lease as long as asked for can't be had. The lock is held.
    #[error(
        "the lock can't be held for {min:?} without another renewal, but for {remaining:?}: use a \
         longer ttl, one that is renewed, or a later hold limit"
    )]
    TooLong {
        /// What was asked for.
        min: Duration,
        /// How long it is held.
        remaining: Duration,
    },
    /// The database did not confirm it in time. The lock is held until its lease ends.
    #[error("that the lock is held was not confirmed within {waited:?}")]
    Unconfirmed {
        /// How long was waited.
        waited: Duration,
        /// The last error of the database, if it said one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The client's runtime has ended.
    #[error("the lock client is closed")]
    Closed,
}

/// Why [`with_lock`](crate::LockClient::with_lock) has no output of its body.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WithLockError {
    /// The lock was not obtained, and the body did not begin.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost before the body was done. The body was dropped where it stood, or its
    /// output is; another client may hold it by now.
    #[error("the lock was lost before the work under it was done: {0}")]
    Lost(LostReason),
}

/// Why the contenders of a lock can't be told. Nothing was changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ContendersError {
    /// The name can't be used.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// The database did not answer within the client's acquire timeout.
    #[error("the contenders of lock {:?} could not be read within {waited:?}", shown(name))]
    TimedOut {
        /// The object.
        name: String,
        /// How long was waited.
        waited: Duration,
        /// The last error of the database, if it said one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The database refuses the request: the table is gone, or access is denied. `lock-hosts check`
    /// tells what is wrong.
    #[error("lock {:?}: the database refuses the request; run `lock-hosts check`", shown(name))]
    Refused {
        /// The object.
        name: String,
        /// What the database says.
        #[source]
        cause: DatabaseError,
    },
    /// The client was shut down, or the runtime that it was built on has ended.
    #[error("the lock client is closed")]
    Closed,
    /// This process is a fork of the one that built the client.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
}

/// Why a contender was not [revoked](crate::LockClient::revoke), or not for certain.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The name can't be used. Nothing was written.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// The contender is not there any more, or in another round: what it held or waited for when it
    /// was seen is over. Nothing was written.
    #[error("lock {:?}: {owner} neither holds it nor waits for it any more", shown(name))]
    Gone {
        /// The object.
        name: String,
        /// What the contender called itself.
        owner: String,
    },
    /// The contender's rows are not of this version, or incomplete: what it would take from them
    /// can't be told. Nothing was written; they go with their TTL.
    #[error(
        "lock {:?}: the rows of {owner} can't be read; use the version that wrote them",
        shown(name)
    )]
    Unreadable {
        /// The object.
        name: String,
        /// What the contender called itself.
        owner: String,
    },
    /// The database did not acknowledge it within the client's acquire timeout. It may be revoked
    /// or not; revoking it again does no harm.
    #[error("lock {:?}: revoking was not acknowledged within {waited:?}; do it again", shown(name))]
    TimedOut {
        /// The object.
        name: String,
        /// How long was waited.
        waited: Duration,
        /// The last error of the database, if it said one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The database refuses a statement: the table is gone, or access is denied. `lock-hosts check`
    /// tells what is wrong.
    #[error("lock {:?}: the database refuses the request; run `lock-hosts check`", shown(name))]
    Refused {
        /// The object.
        name: String,
        /// What the database says.
        #[source]
        cause: DatabaseError,
    },
    /// The client was shut down, or the runtime that it was built on has ended. It may be revoked
    /// or not.
    #[error("the lock client is closed")]
    Closed,
    /// This process is a fork of the one that built the client. Nothing was written.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
}

/// A shutdown that did not finish in time: releases are not acknowledged yet. They go on in the
/// background while the runtime lives; at the latest the rows expire by their TTL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not every lock was given back within {waited:?}; the rest expires by its ttl")]
#[non_exhaustive]
pub struct ShutdownError {
    /// How long was waited.
    pub waited: Duration,
}
