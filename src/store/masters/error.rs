//! Why servers can't be used together, as the store sees it.

use crate::store::InvalidIdentifier;

/// Why servers can't be used together. `MastersError` says it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MastersTrouble {
    /// An address is none.
    Address { number: usize, reason: String },
    /// Too few or too many addresses, or an even number.
    Count { given: usize },
    /// The name of the lock table is invalid.
    Name(InvalidIdentifier),
    /// No server has a record of the lock table.
    NoRecord { lock_table: String },
    /// The lock table is kept by more or fewer servers.
    OtherCount { lock_table: String, recorded: usize, given: usize },
    /// The lock table has other settings.
    Differs { lock_table: String, recorded: String, key: String },
    /// Servers that can't be used, and why.
    Unfit { servers: Vec<(String, String)> },
    /// Another client changes the membership.
    Interrupted,
}

impl From<InvalidIdentifier> for MastersTrouble {
    fn from(error: InvalidIdentifier) -> Self {
        MastersTrouble::Name(error)
    }
}
