//! A permission that the database user lacks.

use std::error::Error;

use bakery_lock::{DatabaseError, MissingPermission};

/// A permission that the database user lacks, and how to get it.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.found(), self.advice())]
pub(crate) struct Denied(MissingPermission);

impl Denied {
    /// The denied permission, if that is the cause of an error.
    pub(crate) fn cause_of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let database = error.downcast_ref::<DatabaseError>();
            if let Some(grant) = database.and_then(DatabaseError::missing_permission) {
                return Some(Denied(grant.clone()));
            }
            cause = error.source();
        }
        None
    }

    pub(crate) fn found(&self) -> String {
        format!("user {:?} lacks a permission", self.0.role())
    }

    pub(crate) fn advice(&self) -> String {
        format!("run `{}`, or use another user", self.0)
    }
}
