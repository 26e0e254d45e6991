//! Why the registry could not be read or changed.

use std::time::Duration;

use thiserror::Error;

use super::HostNameError;
use crate::error::LockError;
use crate::schema::SchemaError;
use crate::store::DatabaseError;

/// Why the registry could not be read or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name can't be used. Nothing was sent.
    #[error(transparent)]
    Name(#[from] HostNameError),
    /// The tables are missing, or not as they must be. Nothing was changed.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Another client changes the registry, or the database does not answer. Nothing was changed.
    #[error("the registry of hosts could not be locked, so nothing was changed; try again")]
    Locked(#[source] LockError),
    /// The database did not answer. Nothing was changed, but a number may have been spent.
    #[error("the registry of hosts did not answer, so nothing was changed; try again")]
    Unanswered(#[source] DatabaseError),
    /// The database refuses a statement: a table is missing, or access is denied. Nothing was
    /// changed, but a number may have been spent.
    #[error("the database refuses to read or write the registry of hosts; run `lock-hosts check`")]
    Refused(#[source] DatabaseError),
    /// The time was over before the change was known to be made. It may be made, or be made later;
    /// and numbers may have been spent, which does no harm. Doing the same again is safe.
    #[error(
        "host {name:?} may or may not have been changed in the registry, as that was not confirmed \
         within {waited:?}; do the same again"
    )]
    Unconfirmed {
        /// The host's name.
        name: String,
        /// How long was tried.
        waited: Duration,
        /// The last error of the database, if it said one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// Hosts in use are seen once a day, so for less than [`UNSEEN_MIN`](super::UNSEEN_MIN) any
    /// host may go unseen. Nothing was changed.
    #[error(
        "hosts can't be asked not to have been seen for {time:?}: those in use are seen once a \
         day, so use at least two days"
    )]
    UnseenTooShort {
        /// The time that was asked for.
        time: Duration,
    },
    /// An earlier version made the registry, which does not tell when hosts were seen. Nothing was
    /// changed.
    #[error(
        "the registry of hosts does not tell when hosts were seen, as an earlier version made it: \
         run `lock-hosts init`, and build all clients anew"
    )]
    NotSeen,
    /// All 2,147,483,647 numbers are spent, or the largest one was written. Nothing was changed.
    #[error("no host number is left in the registry")]
    NoNumberLeft,
}

impl RegistryError {
    /// The error of a call before which nothing was changed.
    pub(crate) fn unread(cause: DatabaseError) -> Self {
        if cause.is_permanent() {
            RegistryError::Refused(cause)
        } else {
            RegistryError::Unanswered(cause)
        }
    }

    /// The error of a change that may be made.
    pub(super) fn unconfirmed(name: &str, waited: Duration, cause: Option<DatabaseError>) -> Self {
        RegistryError::Unconfirmed { name: name.to_owned(), waited, cause }
    }
}
