//! Errors of requests to the lock table other than acquisitions.

use std::time::Duration;

use thiserror::Error;

use super::class::{Class, predicates};
use crate::admin::types::ContenderInfo;
use crate::options::{InvalidOption, shown};
use crate::owner::Owner;
use crate::store::DatabaseError;

/// Why a request to the lock table that is no acquisition failed: a look at
/// [contenders](crate::LockClient::contenders), at [all locks](crate::LockClient::locks) or at
/// [leaders](crate::Election::observe), a [revocation](crate::LockClient::revoke), a
/// [repair](crate::LockClient::repair_mark).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The name or an option is invalid. Nothing was written.
    #[error("{0}")]
    Option(#[from] InvalidOption),
    /// The database did not answer within the client's acquire timeout. A write may have been
    /// applied or not; trying again does no harm.
    #[error("{}: the database did not answer within {waited:?}; try again", of(name.as_ref()))]
    #[non_exhaustive]
    TimedOut {
        /// The object; `None` for all of them.
        name: Option<String>,
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The database refuses a statement: the table is gone, or access is denied. `lock-hosts
    /// doctor` shows what is wrong.
    #[error(
        "{}: the database refuses the request{}",
        of(name.as_ref()),
        cause.remedy("; run `lock-hosts doctor`")
    )]
    #[non_exhaustive]
    Refused {
        /// The object; `None` for all of them.
        name: Option<String>,
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
    /// The contender that was to be revoked is gone, or in another round: the acquisition that was
    /// seen is over. Nothing was written.
    #[error("lock {:?}: {owner} neither holds it nor waits for it any more", shown(name))]
    #[non_exhaustive]
    Gone {
        /// The object.
        name: String,
        /// The contender's `owner`.
        owner: Owner,
    },
    /// The rows of the contender that was to be revoked are not of this version, or incomplete:
    /// what it would take from them is not known. Nothing was written; the rows expire by their
    /// TTL.
    #[error(
        "lock {:?}: the rows of {owner} can't be read; use the version that wrote them",
        shown(name)
    )]
    #[non_exhaustive]
    Unreadable {
        /// The object.
        name: String,
        /// The contender's `owner`.
        owner: Owner,
    },
    /// The write timestamp of the mark that was to be repaired is larger than any clock shows as
    /// well. A mark that replaces it would be as large, and no round would be above it. Nothing was
    /// written.
    #[error(
        "lock {:?}: the write timestamp of its mark is more than any clock shows, so that nothing \
         can replace it: use another name",
        shown(name)
    )]
    #[non_exhaustive]
    MarkOutOfReach {
        /// The object.
        name: String,
    },
    /// The client was shut down, or the runtime that it was built on has ended. A write may have
    /// been applied or not.
    #[error("the lock client is closed: build another")]
    Closed,
    /// This process is a fork of the one that built the client. Nothing was written.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
}

/// What a request is about, for people.
fn of(name: Option<&String>) -> String {
    name.map_or_else(|| "all locks".to_owned(), |name| format!("lock {:?}", shown(name)))
}

predicates!(TableError);

impl TableError {
    fn class(&self) -> Class {
        match self {
            TableError::Option(_) | TableError::Refused { .. } => Class::Misconfigured,
            TableError::TimedOut { .. } => Class::TimedOut,
            TableError::Gone { .. }
            | TableError::Unreadable { .. }
            | TableError::MarkOutOfReach { .. }
            | TableError::Closed
            | TableError::Forked => Class::Final,
        }
    }

    /// Whether each later read fails in the same way.
    pub(crate) fn ends_reads(&self) -> bool {
        match self {
            TableError::Option(_) | TableError::Closed | TableError::Forked => true,
            TableError::TimedOut { .. }
            | TableError::Refused { .. }
            | TableError::Gone { .. }
            | TableError::Unreadable { .. }
            | TableError::MarkOutOfReach { .. } => false,
        }
    }
}

/// Why a client does not know the [queue](crate::LockClient::queue) of a lock. Nothing was changed
/// in any case.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The table was not read.
    #[error("{0}")]
    Table(#[from] TableError),
    /// No client has a place, or the lock passes from one to another at this moment.
    #[error("lock {:?}: no client holds it", shown(name))]
    #[non_exhaustive]
    NotHeld {
        /// The object.
        name: String,
    },
    /// Another client holds the lock or is about to, and this one asks no others: it was built
    /// without the feature `peers`, or without `LockClientBuilder::peers`.
    #[error(
        "lock {:?}: {} holds it or is ahead, and this client asks no others: build it with the \
         feature `peers` and with `LockClientBuilder::peers`",
        shown(name),
        contender.owner
    )]
    #[non_exhaustive]
    AsksNone {
        /// The object.
        name: String,
        /// The contender that may hold it.
        contender: ContenderInfo,
    },
    /// A client that holds the lock or is about to did not answer. It lets no others take turns
    /// (its row in `lock_peers` is missing), it is not reached at its address, it was not reached a
    /// short time ago, or it is too busy.
    #[error(
        "lock {:?}: {} holds it or is ahead, and did not answer: it lets no other client take \
         turns, or can't be reached at its advertised address",
        shown(name),
        contender.owner
    )]
    #[non_exhaustive]
    NotReached {
        /// The object.
        name: String,
        /// The contender that may hold it.
        contender: ContenderInfo,
    },
}

predicates!(QueueError);

impl QueueError {
    fn class(&self) -> Class {
        match self {
            QueueError::Table(error) => error.class(),
            QueueError::NotHeld { .. } | QueueError::NotReached { .. } => Class::Passing,
            QueueError::AsksNone { .. } => Class::Misconfigured,
        }
    }
}
