//! Errors: one type for acquiring, one for other requests to the lock table, one for each use of a
//! guard.
//!
//! Each message is complete by itself; sources are for programs that look for a cause. Printing a
//! whole chain repeats some text.

mod class;
mod table;

use std::fmt;
use std::time::Duration;

use thiserror::Error;

pub(crate) use self::class::{Class, predicates};
pub use self::table::{QueueError, TableError};
use crate::admin::types::{ContenderInfo, TurnUser};
use crate::finding::{Finding, Joined};
use crate::options::{InvalidOption, shell_operand, shown};
use crate::store::DatabaseError;

/// Why a lock was not obtained. In every case nothing is held, and rows that were written are being
/// deleted in the background; if that fails too, they expire by their TTL.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The name or an option is invalid. Nothing was written.
    #[error("{0}")]
    Option(#[from] InvalidOption),
    /// The timeout passed before the lock was free, or while the database did not answer. A caller
    /// whose timeout is shorter than two seconds may have waited for the host's registration.
    #[error(
        "lock {:?} was not obtained within {waited:?}{}",
        shown(name),
        AheadOf { user: user.as_ref(), held_by_self: *held_by_self, ahead }
    )]
    #[non_exhaustive]
    TimedOut {
        /// The object.
        name: String,
        /// How long the caller waited.
        waited: Duration,
        /// Who has the lock now, if the caller waited for a turn: in the line of its own client, or
        /// as a guest of another one, as last reported by that client.
        user: Option<TurnUser>,
        /// The contenders that hold the lock or are ahead, as last seen in the table; empty if none
        /// was seen.
        ahead: Vec<ContenderInfo>,
        /// Whether `user` is this client itself: another task of the program, or the caller, if it
        /// holds the lock and requests it once more.
        held_by_self: bool,
        /// The last error of the database, if its last answer was one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The database refuses a statement: the table is gone, which later callers learn by
    /// [`TableGone`](Self::TableGone), or access is denied; `lock-hosts doctor` shows what is
    /// wrong. Or the nodes refuse the [login of the session](DatabaseError::is_login_refused), as
    /// after its password was changed.
    #[error(
        "lock {:?}: the database refuses the request{}",
        shown(name),
        cause.remedy("; run `lock-hosts doctor`")
    )]
    #[non_exhaustive]
    Refused {
        /// The object.
        name: String,
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
    /// A row that a quorum had acknowledged was missing: the clocks differ by more than the bound,
    /// or the row was deleted. `lock-hosts doctor` compares clocks.
    #[error(
        "lock {:?}: our own row is missing although it was acknowledged; run `lock-hosts doctor`",
        shown(name)
    )]
    #[non_exhaustive]
    RowMissing {
        /// The object.
        name: String,
    },
    /// Another client [revoked](crate::LockClient::revoke) this acquisition while it waited.
    #[error("lock {:?}: waiting for it was revoked by {by}: {why}", shown(name))]
    #[non_exhaustive]
    Revoked {
        /// The object.
        name: String,
        /// The revoking client: host name and process id.
        by: String,
        /// The reason that it gave.
        why: String,
    },
    /// The lock was obtained, but lost before the caller's future was polled: after a pause longer
    /// than the lease, or because another client [revoked](crate::LockClient::revoke) it. Of
    /// [several at once](crate::LockClient::lock_all), one was lost while the others were waited
    /// for. The caller never held it.
    #[error("lock {:?} was obtained and lost before the caller looked: {reason}", shown(name))]
    #[non_exhaustive]
    Lost {
        /// The object.
        name: String,
        /// Why it is no longer held.
        #[source]
        reason: LostReason,
    },
    /// The lock was lost or revoked before the body of [`with_lock`](crate::LockClient::with_lock)
    /// had ended. The body, or its output, was dropped; another client may hold the lock by now.
    #[error("lock {:?} was lost before the work under it was done: {reason}", shown(name))]
    #[non_exhaustive]
    WorkStopped {
        /// The object.
        name: String,
        /// Why it is no longer held.
        #[source]
        reason: LostReason,
    },
    /// The largest possible ticket was written; it expires with the TTL of its row.
    #[error("lock {:?}: no ticket is left; a row with an absurd ticket is in the way", shown(name))]
    #[non_exhaustive]
    NoTicketLeft {
        /// The object.
        name: String,
    },
    /// The mark of the lock, up to which no round counts, was written by hand and is larger than
    /// any clock shows. [`repair_mark`](crate::LockClient::repair_mark) replaces it, and so does
    /// `lockctl repair`.
    #[error(
        "lock {:?}: its mark is {ahead:?} ahead, more than a clock shows: run `lockctl repair {}`",
        shown(name),
        shell_operand(&shown(name))
    )]
    #[non_exhaustive]
    MarkOutOfReach {
        /// The object.
        name: String,
        /// How far the mark of the sweep is ahead of this client's clock.
        ahead: Duration,
    },
    /// The client's host was removed from the registry, as the client read there.
    #[error(
        "host {host:?} is not registered any more; run `lock-hosts add {}`",
        shell_operand(host)
    )]
    #[non_exhaustive]
    HostRemoved {
        /// The host's name.
        host: String,
    },
    /// Clocks certainly differ by more than the settings of the lock table allow, so two clients
    /// may hold one lock. Held locks stay held, and their guards are
    /// [at risk](crate::GuardState::AtRisk). The client compares clocks again when a lock is
    /// requested later, or when it renews one, at most every 5 s. It recovers by itself once the
    /// clocks agree, or once three comparisons in a row with the nodes that differed show no
    /// certain difference: a bound about as small as the error of the measurement is never seen to
    /// be kept.
    #[error(
        "lock {:?}: the clocks differ by too much for locks: {}",
        shown(name),
        Joined(problems)
    )]
    #[non_exhaustive]
    ClocksDiffer {
        /// The object.
        name: String,
        /// Which ones, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped, or dropped and created again, since the client was built. All
    /// its locks are [lost](LostReason::TableGone), and it gets no more locks.
    #[error(
        "lock {:?}: the lock table was dropped or made again since this client was built: run \
         `lock-hosts doctor`, `lock-hosts init` if the table is missing, and build another client",
        shown(name)
    )]
    #[non_exhaustive]
    TableGone {
        /// The object.
        name: String,
    },
    /// The client was shut down, or the runtime that it was built on has ended. Or the task behind
    /// this lock ended by a bug, which is logged as an error: then the next request gets another
    /// task, and rows left behind block other clients until their TTL is over.
    #[error("the lock client is closed: build another")]
    Closed,
    /// This process is a fork of the one that built the client. Nothing was written.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
    /// A call of the module [`blocking`](crate::blocking) was made inside an async runtime, whose
    /// other tasks it would stop. Nothing was written.
    #[cfg(feature = "blocking")]
    #[error(
        "a call of `bakery_lock::blocking` inside an async runtime would stop its other tasks: use \
         `bakery_lock::LockClient` there"
    )]
    InsideRuntime,
}

/// Who has the lock, or else the contenders ahead, for people.
struct AheadOf<'a> {
    user: Option<&'a TurnUser>,
    held_by_self: bool,
    ahead: &'a [ContenderInfo],
}

impl fmt::Display for AheadOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.user, self.ahead) {
            (Some(user), _) if self.held_by_self => write!(
                f,
                ": this client holds it itself ({}); a caller that holds a lock can't acquire it \
                 again",
                user.owner
            ),
            (Some(user), _) => write!(f, ": {} holds it", user.owner),
            (None, []) => Ok(()),
            (None, [one]) => write!(f, ": {} holds it or is ahead", one.owner),
            (None, [first, others @ ..]) => {
                write!(f, ": {} and {} more hold it or are ahead", first.owner, others.len())
            }
        }
    }
}

/// Why an unlock failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// The lock had been lost before. Nothing is held; another client may hold it by now.
    #[error("lock {:?} was lost before it was given back: {reason}", shown(name))]
    #[non_exhaustive]
    Lost {
        /// The object.
        name: String,
        /// Why it was no longer held.
        #[source]
        reason: LostReason,
    },
    /// No quorum acknowledged the release in time. It continues in the background; at the latest
    /// the rows expire by their TTL.
    #[error(
        "lock {:?}: its release was not acknowledged within {waited:?}; it continues in the \
         background",
        shown(name)
    )]
    #[non_exhaustive]
    Unacknowledged {
        /// The object.
        name: String,
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The client's runtime ended while the release was under way. The rows expire by their TTL.
    #[error("the lock client is closed; the lock is given back when its ttl is over")]
    Closed,
}

/// Why a held lock is no longer held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out before a renewal was acknowledged.
    #[error("the lease ran out")]
    Expired,
    /// A row of this holder was missing.
    #[error("the row of the lock is missing")]
    RowMissing,
    /// Another client [revoked](crate::LockClient::revoke) it.
    #[error("it was revoked by {by}: {why}")]
    #[non_exhaustive]
    Revoked {
        /// The revoking client: host name and process id.
        by: String,
        /// The reason that it gave.
        why: String,
    },
    /// Another client holds the lock too, and was granted it later: rows of this holder were lost
    /// for a while, because an assumption about the database or its clocks failed. Of two such
    /// holders, the earlier one loses the lock, within two thirds of a TTL.
    #[error("{holder} holds it too, and was granted it later: rows of the lock had been lost")]
    #[non_exhaustive]
    Conflict {
        /// The other holder: host name, process id and label.
        holder: String,
    },
    /// It was held for longer than the request's [`max_hold`](crate::LockRequest::max_hold) and
    /// [`grace`](crate::LockRequest::max_hold_grace).
    #[error("it was held for longer than its limit and the grace allow")]
    HoldLimit,
    /// The lock table was dropped, with the rows of all holders. If it was created again at once, a
    /// holder may find its [row missing](Self::RowMissing) first.
    #[error("the lock table was dropped or made again")]
    TableGone,
    /// The client that keeps the place of the lock was not reached before the lease of this turn
    /// ended.
    #[error("the client that keeps the place of the lock was not reached in time")]
    KeeperUnreachable,
    /// The client that keeps the place of the lock has lost it, was asked to give it up, or limits
    /// how long others may have it (`PeerOptions::max_guest_hold`).
    #[error("the client that keeps the place of the lock has lost it")]
    KeeperLost,
    /// The client was shut down, or the runtime that it was built on has ended; or the task behind
    /// the lock ended by a bug, which is logged as an error.
    #[error("the client was shut down, or its runtime has ended")]
    ClientClosed,
    /// This process is a fork of the one that holds the lock, and holds nothing.
    #[error("this process is a fork of the one that holds it")]
    Forked,
}

/// Why a held lock is about to end: its holder is to finish.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum ExpiringReason {
    /// Another client [revoked](crate::LockClient::revoke) it.
    #[error("it was revoked by {by}: {why}")]
    #[non_exhaustive]
    Revoked {
        /// The revoking client: host name and process id.
        by: String,
        /// The reason that it gave.
        why: String,
    },
    /// It has been held for longer than the request's
    /// [`max_hold`](crate::LockRequest::max_hold).
    #[error("it has been held for longer than its limit")]
    HoldLimit,
    /// The client that keeps the place of the lock was asked to give it up, or limits how long
    /// others may have it (`PeerOptions::max_guest_hold`).
    #[error("the client that keeps the place of the lock needs it back")]
    Keeper,
}

impl ExpiringReason {
    /// Why the lock is lost if its holder does not finish before its lease ends; `None`: the lease
    /// is renewed.
    pub(crate) fn loss(&self) -> Option<LostReason> {
        match self {
            ExpiringReason::Revoked { by, why } => {
                Some(LostReason::Revoked { by: by.clone(), why: why.clone() })
            }
            ExpiringReason::Keeper => Some(LostReason::KeeperLost),
            ExpiringReason::HoldLimit => None,
        }
    }
}

/// Why a held lock could not be [ensured](crate::LockHandle::ensure),
/// [checked](crate::LockHandle::check) or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum EnsureError {
    /// The lock is no longer held.
    #[error("lock {:?} is lost: {reason}", shown(name))]
    #[non_exhaustive]
    Lost {
        /// The object.
        name: String,
        /// Why it is no longer held.
        #[source]
        reason: LostReason,
    },
    /// A lease of the requested length is not possible. The lock is held.
    #[error(
        "lock {:?} can't be held for {min:?} without another renewal, but for {remaining:?}: use a \
         longer ttl, one that is renewed, or a later hold limit",
        shown(name)
    )]
    #[non_exhaustive]
    TooLong {
        /// The object.
        name: String,
        /// The requested time.
        min: Duration,
        /// How long it is held.
        remaining: Duration,
    },
    /// A TTL or a note can't be used. Nothing was written; the lock is held.
    #[error("{0}")]
    Option(#[from] InvalidOption),
    /// The rows of the lock can't be changed: it is a turn at the place of another client, or it is
    /// not renewed (any more). Or it can't be downgraded, because it is not held alone, or stays
    /// taken for a minimum time. The lock is held.
    #[error(
        "lock {:?} can't be changed: its rows are those of another client or are not renewed, or \
         it is not held alone",
        shown(name)
    )]
    #[non_exhaustive]
    Unchangeable {
        /// The object.
        name: String,
    },
    /// The database did not confirm it in time. The lock is held until its lease ends.
    #[error("could not confirm within {waited:?} that lock {:?} is held", shown(name))]
    #[non_exhaustive]
    Unconfirmed {
        /// The object.
        name: String,
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The lock is released. Only a [handle](crate::LockHandle) that outlived its guard finds that.
    #[error("lock {:?} is released", shown(name))]
    #[non_exhaustive]
    Released {
        /// The object.
        name: String,
    },
    /// The client's runtime has ended.
    #[error("the lock client is closed: the lease ends by itself")]
    Closed,
}

predicates!(LockError);
predicates!(UnlockError);
predicates!(EnsureError);

impl LockError {
    pub(crate) fn class(&self) -> Class {
        match self {
            LockError::Option(_)
            | LockError::Refused { .. }
            | LockError::HostRemoved { .. }
            | LockError::TableGone { .. } => Class::Misconfigured,
            LockError::TimedOut { .. } => Class::TimedOut,
            LockError::RowMissing { .. }
            | LockError::MarkOutOfReach { .. }
            | LockError::ClocksDiffer { .. } => Class::Disorder,
            LockError::NoTicketLeft { .. } => Class::Passing,
            LockError::Lost { .. } => Class::LostUnused,
            LockError::WorkStopped { .. } => Class::Lost,
            LockError::Revoked { .. } | LockError::Closed | LockError::Forked => Class::Final,
            #[cfg(feature = "blocking")]
            LockError::InsideRuntime => Class::Final,
        }
    }
}

impl UnlockError {
    fn class(&self) -> Class {
        match self {
            UnlockError::Lost { .. } => Class::Lost,
            UnlockError::Unacknowledged { .. } => Class::Continues,
            UnlockError::Closed => Class::Final,
        }
    }
}

impl EnsureError {
    fn class(&self) -> Class {
        match self {
            EnsureError::Lost { .. } => Class::Lost,
            EnsureError::TooLong { .. } | EnsureError::Option(_) => Class::Misconfigured,
            EnsureError::Unconfirmed { .. } => Class::TimedOut,
            EnsureError::Unchangeable { .. }
            | EnsureError::Released { .. }
            | EnsureError::Closed => Class::Final,
        }
    }
}

/// A shutdown that did not finish in time: releases are not acknowledged yet. They continue in the
/// background while the runtime lives; at the latest the rows expire by their TTL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not every lock was given back within {waited:?}; the rest expires by its ttl")]
#[non_exhaustive]
pub struct ShutdownError {
    /// How long the call waited.
    pub waited: Duration,
}
