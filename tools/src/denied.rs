//! A permission that the database user lacks.

use std::error::Error;

use bakery_lock::{DatabaseError, MissingGrant};

/// A permission that the database user lacks, and how to get it.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.found(), self.advice())]
pub(crate) struct Denied(MissingGrant);

impl Denied {
    /// The denied permission, if that is the cause of an error.
    pub(crate) fn cause_of(error: &(dyn Error + 'static)) -> Option<Self> {
        let causes = std::iter::successors(Some(error), |error| error.source());
        let mut grants = causes.filter_map(|error| {
            error.downcast_ref::<DatabaseError>().and_then(DatabaseError::missing_grant)
        });
        grants.next().cloned().map(Denied)
    }

    pub(crate) fn found(&self) -> String {
        format!("user {:?} lacks a permission", self.0.role())
    }

    pub(crate) fn advice(&self) -> String {
        format!("run `{}`, or use another user", self.0)
    }
}
