//! Errors of the database, and the outcome of a failed request.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::MissingGrant;

/// An error of the database, with the outcome of the request.
#[derive(Clone)]
pub struct DatabaseError {
    outcome: Outcome,
    permanent: bool,
    missing_grant: Option<Arc<MissingGrant>>,
    source: Arc<dyn StdError + Send + Sync>,
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
        DatabaseError { outcome, permanent: false, missing_grant: None, source }
    }

    /// An error that the same request will meet again: the statement itself is refused.
    pub(crate) fn permanent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        DatabaseError { permanent: true, ..Self::new(Outcome::NotApplied, source) }
    }

    /// The same error, and the permission that the request needed, if that is its cause.
    pub(super) fn lacking(self, grant: Option<MissingGrant>) -> Self {
        DatabaseError { missing_grant: grant.map(Arc::new), ..self }
    }

    /// The outcome of the request.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the same request is bound to fail again: the database refuses the statement, the
    /// table is gone, or access is denied.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The permission that the request needed and the database user lacks, if that is the cause.
    #[must_use]
    pub fn missing_grant(&self) -> Option<&MissingGrant> {
        self.missing_grant.as_deref()
    }

    /// What to do, as the end of a message: grant the missing permission, or else `otherwise`.
    pub(crate) fn remedy(&self, otherwise: &'static str) -> Remedy<'_> {
        Remedy { grant: self.missing_grant(), otherwise }
    }
}

impl fmt::Debug for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseError")
            .field("outcome", &self.outcome)
            .field("permanent", &self.permanent)
            .field("missing_grant", &self.missing_grant)
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
    grant: Option<&'a MissingGrant>,
    otherwise: &'static str,
}

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grant {
            Some(grant) => write!(f, "; user {:?} lacks a permission: run `{grant}`", grant.role()),
            None => f.write_str(self.otherwise),
        }
    }
}

impl StdError for DatabaseError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}
