//! Errors: one type per operation.

mod database;

use std::fmt;
use std::time::Duration;

use thiserror::Error;

pub use self::database::{DatabaseError, Outcome};
use crate::contenders::Contender;
use crate::hosts::RegistryError;
use crate::options::{OptionError, shown};
use crate::schema::{Finding, Joined, SchemaError};

/// Why a lock was not obtained. In every case nothing is held, and rows that were written are being
/// deleted in the background; should that fail too, they expire by their TTL.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The name or an option can't be used. Nothing was written.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The timeout passed before the lock was free, or while the database did not answer.
    #[error("lock {:?} was not obtained within {waited:?}{}", shown(name), Waiting(ahead))]
    TimedOut {
        /// The object.
        name: String,
        /// How long the caller waited.
        waited: Duration,
        /// Who holds the lock or is ahead, as last seen; empty when nobody was seen.
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
    /// bound, or somebody deleted it. `lock-hosts check` compares clocks.
    #[error(
        "lock {:?}: our own row is missing although it was acknowledged; run `lock-hosts check`",
        shown(name)
    )]
    RowMissing {
        /// The object.
        name: String,
    },
    /// Somebody [revoked](crate::LockClient::revoke) this acquisition while it waited.
    #[error("lock {:?}: waiting for it was revoked by {by}: {why}", shown(name))]
    Revoked {
        /// The object.
        name: String,
        /// Who: host name and process id.
        by: String,
        /// Why, in its words.
        why: String,
    },
    /// Somebody wrote the largest ticket there is; it goes with the TTL of its row.
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
    /// later on, or renews one, and goes on by itself once the clocks agree.
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
    /// The client was shut down, or the runtime that it was built on has ended.
    #[error("the lock client is closed")]
    Closed,
    /// This process is a fork of the one that built the client. Nothing was written.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
}

/// Says who is ahead, for people.
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
    /// The lock had been lost before. Nothing is held; somebody else may have been let in since.
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
    /// Somebody [revoked](crate::LockClient::revoke) it.
    #[error("it was revoked by {by}: {why}")]
    Revoked {
        /// Who: host name and process id.
        by: String,
        /// Why, in its words.
        why: String,
    },
    /// It was held for longer than the request's [`max_hold`](crate::LockRequest::max_hold) and
    /// [`grace`](crate::LockRequest::grace).
    #[error("it was held for longer than its limit and the grace allow")]
    HoldLimit,
    /// The lock table was dropped, or dropped and made again, and with it went the rows of all
    /// holders. Renewals may have written this one's again, but others may have been let in before.
    #[error("the lock table was dropped or made again")]
    TableGone,
    /// The client was shut down, or the runtime that it was built on has ended.
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
pub enum HoldError {
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
    /// output is; somebody else may have been let in since.
    #[error("the lock was lost before the work under it was done: {0}")]
    Lost(LostReason),
}

/// Why the contenders of a lock can't be told. Nothing was changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ContendersError {
    /// The name can't be used.
    #[error(transparent)]
    Option(#[from] OptionError),
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
    Option(#[from] OptionError),
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

/// Why a client was not built. Nothing was written, but a host's registration where
/// `register_host(true)` asks for it.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An option can't be used.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The tables are missing, or not as they must be.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The host has no number.
    #[error(
        "host {host:?} is not registered: run `lock-hosts --keyspace {keyspace} add {host}`, or \
         build the client with `register_host(true)`"
    )]
    UnknownHost {
        /// The host's name.
        host: String,
        /// The keyspace of the registry.
        keyspace: String,
    },
    /// The registry of hosts could not be read, or the host not added.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The database did not answer.
    #[error("the client could not be prepared")]
    Database(#[from] DatabaseError),
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
