//! What callers decide by, for all errors.

use crate::store::DatabaseError;

/// What an error means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The time was over; a later call may succeed.
    TimedOut,
    /// The time was over, and what was asked for continues in the background.
    Continues,
    /// A lock was lost that work was under.
    Lost,
    /// A lock was lost that no work was under; a later call may succeed.
    LostUnused,
    /// A later call may succeed.
    Passing,
    /// Something must be corrected; the same call may succeed afterwards.
    Disorder,
    /// Something must be corrected, and the program or its client restarted.
    Misconfigured,
    /// None of these.
    Final,
}

impl Class {
    /// What an error of the database means for a call that ends with it.
    pub(crate) fn of_database(error: &DatabaseError) -> Self {
        if error.is_permanent() { Class::Misconfigured } else { Class::Passing }
    }

    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, Class::TimedOut | Class::Continues)
    }

    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Class::Lost | Class::LostUnused)
    }

    pub(crate) fn is_retryable(self) -> bool {
        matches!(self, Class::TimedOut | Class::LostUnused | Class::Passing | Class::Disorder)
    }

    pub(crate) fn is_misconfigured(self) -> bool {
        matches!(self, Class::Disorder | Class::Misconfigured)
    }
}

/// The public predicates of an error that has a [`Class`].
macro_rules! predicates {
    ($error:ty) => {
        impl $error {
            /// Whether the time was over: the call waited for others or for the database for as
            /// long as it may.
            #[must_use]
            pub fn is_timeout(&self) -> bool {
                self.class().is_timeout()
            }

            /// Whether a lock that had been obtained was lost.
            #[must_use]
            pub fn is_lost(&self) -> bool {
                self.class().is_lost()
            }

            /// Whether the same call may succeed later, and does no harm: nothing was done under
            /// the lock.
            #[must_use]
            pub fn is_retryable(&self) -> bool {
                self.class().is_retryable()
            }

            /// Whether something must be corrected first, as the message says: an option, the
            /// tables, access to them, a clock.
            #[must_use]
            pub fn is_misconfigured(&self) -> bool {
                self.class().is_misconfigured()
            }
        }
    };
}

pub(crate) use predicates;
