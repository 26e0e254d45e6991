//! Errors of the database, and the outcome of a failed request.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::MissingPermission;

/// An error of the database, with the outcome of the request.
#[derive(Clone)]
pub struct DatabaseError {
    outcome: Outcome,
    permanent: bool,
    denial: Option<Denial>,
    source: Arc<dyn StdError + Send + Sync>,
}

/// What the database denies to the user of the session.
#[derive(Clone, Debug)]
pub(crate) enum Denial {
    /// A permission.
    Permission(Arc<MissingPermission>),
    /// To log in.
    Login,
}

/// The outcome of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It was applied.
    Applied,
    /// It was not applied, and will not be.
    NotApplied,
    /// It may have been applied, or may be applied later.
    Unknown,
}

impl DatabaseError {
    /// An error after which the same request may succeed.
    pub(crate) fn new(
        outcome: Outcome,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let source = Arc::from(source.into());
        DatabaseError { outcome, permanent: false, denial: None, source }
    }

    /// An error that the same request will meet again: the statement itself is refused.
    pub(crate) fn permanent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        DatabaseError { permanent: true, ..Self::new(Outcome::NotApplied, source) }
    }

    /// The same error of a request whose write was applied.
    #[cfg(feature = "redis")]
    pub(crate) fn after_write(self) -> Self {
        DatabaseError { outcome: Outcome::Applied, ..self }
    }

    /// The same error, and what the database denied, if that is its cause.
    pub(crate) fn denied(self, denial: Option<Denial>) -> Self {
        DatabaseError { denial, ..self }
    }

    /// The outcome of the request.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the same request is bound to fail again: the database refuses the statement, the
    /// table is gone, or access is denied, the login included.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The permission that the request needed and the database user lacks, if that is the cause.
    #[must_use]
    pub fn missing_permission(&self) -> Option<&MissingPermission> {
        match &self.denial {
            Some(Denial::Permission(grant)) => Some(grant),
            Some(Denial::Login) | None => None,
        }
    }

    /// Whether the nodes refuse the login of the session: its password was changed, its user may
    /// not log in any more, or the nodes ask for a login and the session has none.
    ///
    /// A session keeps the credentials that it was built with, and uses them for each new
    /// connection, so this begins when the last of the old connections ends, as when nodes are
    /// started again. Build another session with the present credentials, and another client on it.
    #[must_use]
    pub fn is_login_refused(&self) -> bool {
        matches!(self.denial, Some(Denial::Login))
    }

    /// What to do, as the end of a message: about what was denied, or else `otherwise`.
    pub(crate) fn remedy(&self, otherwise: &'static str) -> Remedy<'_> {
        Remedy { denial: self.denial.as_ref(), otherwise }
    }
}

impl fmt::Debug for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseError")
            .field("outcome", &self.outcome)
            .field("permanent", &self.permanent)
            .field("denial", &self.denial)
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match self.outcome {
            Outcome::Applied => "a request failed after it was applied",
            Outcome::NotApplied => "a request failed and was not applied",
            Outcome::Unknown => "a request failed and may or may not have been applied",
        };
        write!(f, "{fate}{}", self.remedy(""))
    }
}

/// What to do about an error, as the end of a message.
pub(crate) struct Remedy<'a> {
    denial: Option<&'a Denial>,
    otherwise: &'static str,
}

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denial {
            Some(Denial::Permission(grant)) => {
                write!(f, "; user {:?} lacks a permission: run `{grant}`", grant.role())
            }
            Some(Denial::Login) => f.write_str(
                "; the login of the session is refused: build another session with the present \
                 credentials, and another client on it",
            ),
            None => f.write_str(self.otherwise),
        }
    }
}

impl StdError for DatabaseError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}
