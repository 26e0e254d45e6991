//! How long a turn may last at most (design section 5).

use std::time::Duration;

/// How long a lock may be held, as its caller asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldTerms {
    /// After this time the holder is told to finish.
    pub(crate) max_hold: Duration,
    /// How long it may take for that.
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
    /// From this time on the holder is told to finish.
    pub(crate) expiring_from: Duration,
    /// When the lock is taken from it.
    pub(crate) ends: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn limit_counts_from_the_grant_and_has_a_grace() {
        for (max_hold, grace, expiring_from, ends) in
            [(10, 60, 110, 170), (10, 5, 110, 115), (10, 0, 110, 110)]
        {
            let terms = HoldTerms { max_hold: s(max_hold), grace: s(grace) };
            let limit = HoldLimit { expiring_from: s(expiring_from), ends: s(ends) };
            assert_eq!(terms.limit(s(100)), limit);
        }
        let for_ever = HoldTerms { max_hold: Duration::MAX, grace: Duration::MAX };
        assert_eq!(for_ever.limit(s(100)).ends, Duration::MAX);
    }
}
