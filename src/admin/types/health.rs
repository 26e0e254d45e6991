//! Whether a client gets locks now.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::finding::{Finding, Joined};
use crate::options::shell_operand;
use crate::store::DatabaseError;

/// Whether a client gets locks now, and if not, why: see
/// [`LockClient::health`](crate::LockClient::health). Its text has all of it, in one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// What keeps the client from getting locks; empty if nothing does.
    pub reasons: Vec<UnreadyReason>,
    /// What should be seen to although it keeps no lock from being granted.
    pub warnings: Vec<HealthWarning>,
}

impl Health {
    /// Whether the client gets locks, as far as could be seen.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }

    /// The health of a client that has ended.
    pub(crate) fn ended(reason: UnreadyReason) -> Self {
        Health { reasons: vec![reason], warnings: Vec::new() }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_ready() { "ready" } else { "not ready" })?;
        let reasons = self.reasons.iter().map(|reason| reason as &dyn Error);
        let warnings = self.warnings.iter().map(|warning| warning as &dyn Error);
        for (index, item) in reasons.chain(warnings).enumerate() {
            write!(f, "{}{item}", if index == 0 { ": " } else { " | " })?;
            if let Some(cause) = item.source() {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

/// What keeps a client from getting locks, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadyReason {
    /// No quorum of the replicas of an object answered in time. It passes by itself when they do.
    #[error(
        "no quorum of replicas answered within {waited:?}: run `lock-hosts doctor`, which names \
         the nodes that are down"
    )]
    Unanswered {
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The nodes refuse the login of the client's session: its password was changed, or its user
    /// may not log in any more. A session keeps the credentials that it was built with, so that is
    /// final for this client unless they become valid again: build another session with the present
    /// ones, and another client on it.
    #[error("the nodes refuse the login of this client's session")]
    LoginRefused {
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
    /// The database refuses to read the tables: one is gone, or access is denied.
    #[error("the database refuses a request: run `lock-hosts doctor`")]
    Refused {
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
    /// The client's host was removed from the registry. It passes within a minute of its being
    /// added again.
    #[error(
        "host {host:?} is not registered any more; run `lock-hosts add {}`",
        shell_operand(host)
    )]
    HostRemoved {
        /// The host's name.
        host: String,
    },
    /// Clocks certainly differ by more than the settings of the lock table allow. It passes as
    /// [`LockError::ClocksDiffer`](crate::LockError::ClocksDiffer) says.
    #[error("the clocks differ by too much for locks: {}", Joined(problems))]
    ClocksDiffer {
        /// Which ones, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped, or dropped and created again, since the client was built. That
    /// is final for this client.
    #[error(
        "the lock table was dropped or made again since this client was built: run `lock-hosts \
         check`, `lock-hosts init` if the table is missing, and build another client"
    )]
    TableGone,
    /// The client was shut down, or the runtime that it was built on has ended. That is final.
    #[error("the lock client is closed: build another")]
    Closed,
    /// This process is a fork of the one that built the client. That is final here.
    #[error("the lock client belongs to the process that this one was forked from: build another")]
    Forked,
}

impl UnreadyReason {
    /// The reason behind an error that a later try would meet again.
    pub(crate) fn refused(cause: DatabaseError) -> Self {
        if cause.is_login_refused() {
            UnreadyReason::LoginRefused { cause }
        } else {
            UnreadyReason::Refused { cause }
        }
    }
}

/// What an operator should see to although the client gets locks.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthWarning {
    /// What is known of the client's host is more than a minute old, and the registry of hosts
    /// can't be read. Locks are granted as if it was still registered, which is safe; a removal is
    /// noticed once the registry is read again, which is tried every second or two. It passes by
    /// itself then.
    #[error(
        "the registration of host {host:?} was last read {unread_for:?} ago and can't be read now; \
         locks are granted meanwhile: run `lock-hosts doctor`"
    )]
    RegistryUnread {
        /// The host's name.
        host: String,
        /// How long ago the last successful read began.
        unread_for: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
}
