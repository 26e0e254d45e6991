//! Why the registry could not be read or changed.

use std::time::Duration;

use thiserror::Error;

use super::HostNameError;
use crate::error::{Class, LockError, predicates};
#[cfg(feature = "redis")]
use crate::setup::masters::MastersError;
use crate::setup::schema::SchemaError;
use crate::store::DatabaseError;

/// Why the registry could not be read or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is invalid. Nothing was sent.
    #[error("{0}")]
    Name(#[from] HostNameError),
    /// The tables are missing or unfit. Nothing was changed.
    #[error("{0}")]
    Schema(#[from] SchemaError),
    /// The masters can't be used. Nothing was changed.
    #[cfg(feature = "redis")]
    #[error("{0}")]
    Masters(#[from] MastersError),
    /// Another client is changing the registry, or the database does not answer. Nothing was
    /// changed.
    #[error("the registry of hosts could not be locked, so nothing was changed; try again")]
    Locked(#[source] LockError),
    /// The database did not answer. Nothing was changed, but a number may have been spent.
    #[error("the registry of hosts did not answer, so nothing was changed; try again")]
    Unanswered(#[source] DatabaseError),
    /// The database refuses a statement: a table is missing, or access is denied. Nothing was
    /// changed, but a number may have been spent.
    #[error(
        "the database refuses to read or write the registry of hosts{}",
        .0.remedy("; run `lock-hosts doctor`")
    )]
    Refused(#[source] DatabaseError),
    /// The timeout passed before the change was confirmed. It may have been made, or may be made
    /// later; and numbers may have been spent, which does no harm. Repeating the call is safe.
    #[error(
        "host {name:?} may or may not have been changed in the registry, as that was not confirmed \
         within {waited:?}; do the same again"
    )]
    #[non_exhaustive]
    Unconfirmed {
        /// The host's name.
        name: String,
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The time is below [`UNSEEN_MIN`](super::UNSEEN_MIN). Hosts in use are seen once a day, so
    /// any host may go unseen for that long. Nothing was changed.
    #[error(
        "hosts can't be asked not to have been seen for {time:?}: those in use are seen once a \
         day, so use at least two days"
    )]
    #[non_exhaustive]
    UnseenTooShort {
        /// The requested time.
        time: Duration,
    },
    /// An earlier version created the registry, so it does not record when hosts were seen. Nothing
    /// was changed.
    #[error(
        "the registry of hosts does not tell when hosts were seen, as an earlier version made it: \
         run `lock-hosts init`, and build all clients again"
    )]
    NotSeen,
    /// All 2,147,483,647 numbers are spent, or the largest one was written. Nothing was changed.
    #[error("no host number is left in the registry")]
    NoNumberLeft,
}

impl RegistryError {
    /// The error of a failed call before any change.
    pub(crate) fn unread(cause: DatabaseError) -> Self {
        if cause.is_permanent() {
            RegistryError::Refused(cause)
        } else {
            RegistryError::Unanswered(cause)
        }
    }

    /// The error of a change with an unknown outcome.
    pub(super) fn unconfirmed(name: &str, waited: Duration, cause: Option<DatabaseError>) -> Self {
        RegistryError::Unconfirmed { name: name.to_owned(), waited, cause }
    }
}

predicates!(RegistryError);

impl RegistryError {
    pub(crate) fn class(&self) -> Class {
        match self {
            RegistryError::Schema(error) => error.class(),
            RegistryError::Locked(error) => error.class(),
            #[cfg(feature = "redis")]
            RegistryError::Masters(error) => error.class(),
            RegistryError::Unanswered(_) => Class::Passing,
            RegistryError::Unconfirmed { .. } => Class::TimedOut,
            RegistryError::Name(_)
            | RegistryError::Refused(_)
            | RegistryError::UnseenTooShort { .. }
            | RegistryError::NotSeen => Class::Misconfigured,
            RegistryError::NoNumberLeft => Class::Final,
        }
    }
}
