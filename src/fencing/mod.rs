//! Fencing tokens: numbers that let a resource tell the holder of a lock from one that has not yet
//! noticed its loss (design section 6).

mod gate;
mod token;

use std::time::Duration;

use thiserror::Error;

pub use self::gate::{FenceGate, StaleToken};
pub use self::token::FencingToken;
use crate::error::{Class, LostReason, predicates};
use crate::options::shown;
use crate::store::DatabaseError;

/// Why a guard has no fencing token. The lock itself is unaffected: ask the guard whether it is
/// held. The fence may have been raised, which only makes the next token larger.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FencingError {
    /// The lock was lost before a token was confirmed. Another client may hold it by now.
    #[error("no fencing token: lock {:?} is lost: {reason}", shown(name))]
    #[non_exhaustive]
    Lost {
        /// The object.
        name: String,
        /// Why it is no longer held.
        #[source]
        reason: LostReason,
    },
    /// A limited number of holders share the lock and exclude others, so they have no order.
    #[error(
        "no fencing token: one of a limited number of holders of lock {:?} has none",
        shown(name)
    )]
    #[non_exhaustive]
    Limited {
        /// The object.
        name: String,
    },
    /// The holder has [downgraded](crate::LockGuard::downgrade) the lock, and shares it.
    #[error("no fencing token: lock {:?} is shared since its downgrade", shown(name))]
    #[non_exhaustive]
    Downgraded {
        /// The object.
        name: String,
    },
    /// The last token is ahead of this machine's clock by more than clocks may differ. A client
    /// with a wrong clock drew it, or this machine's clock is wrong. Tokens are refused until the
    /// clock catches up, because timestamps in the future would hide the writes of others.
    #[error(
        "no fencing token: the last one of lock {:?} is {ahead:?} ahead of this machine's clock; \
         set the clocks of all clients right, then wait that long or use another name",
        shown(name)
    )]
    #[non_exhaustive]
    Poisoned {
        /// The object.
        name: String,
        /// How far the last token is ahead.
        ahead: Duration,
    },
    /// The database refuses a statement: the table is gone, or access is denied. `lock-hosts
    /// doctor` shows what is wrong.
    #[error(
        "no fencing token: the database refuses the request for lock {:?}{}",
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
    /// No quorum answered within the client's acquire timeout. A retry may help.
    #[error("no fencing token of lock {:?} within {waited:?}", shown(name))]
    #[non_exhaustive]
    TimedOut {
        /// The object.
        name: String,
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The lock is released. Only a [handle](crate::LockHandle) that outlived its guard finds that.
    #[error("no fencing token: lock {:?} is released", shown(name))]
    #[non_exhaustive]
    Released {
        /// The object.
        name: String,
    },
    /// The client's runtime has ended.
    #[error("no fencing token: the lock client is closed")]
    Closed,
}

predicates!(FencingError);

impl FencingError {
    /// The error of a lock that was lost.
    pub(crate) fn lost(name: &str, reason: LostReason) -> Self {
        FencingError::Lost { name: name.to_owned(), reason }
    }

    /// The error of a lock that is released.
    pub(crate) fn released(name: &str) -> Self {
        FencingError::Released { name: name.to_owned() }
    }

    fn class(&self) -> Class {
        match self {
            FencingError::Lost { .. } => Class::Lost,
            FencingError::Poisoned { .. } => Class::Disorder,
            FencingError::Limited { .. } | FencingError::Refused { .. } => Class::Misconfigured,
            FencingError::TimedOut { .. } => Class::TimedOut,
            FencingError::Downgraded { .. }
            | FencingError::Released { .. }
            | FencingError::Closed => Class::Final,
        }
    }
}
