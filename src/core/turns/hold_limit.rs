//! How long a turn may last at most (design section 5).

use std::time::Duration;

/// How long a lock may be held, as its caller asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldTerms {
    /// After this time the holder must finish.
    pub(crate) max_hold: Duration,
    /// How long that may take.
    pub(crate) grace: Duration,
}

impl HoldTerms {
    /// The limit of a turn that was given at `granted`.
    pub(crate) fn limit(self, granted: Duration) -> HoldLimit {
        let expiring_from = granted.saturating_add(self.max_hold);
        HoldLimit { expiring_from, ends: expiring_from.saturating_add(self.grace) }
    }
}

/// How long one turn may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldLimit {
    /// From this time on the holder must finish.
    pub(crate) expiring_from: Duration,
    /// When the lock is taken from it.
    pub(crate) ends: Duration,
}
