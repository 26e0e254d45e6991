//! How long a request lets a lock be held.

use std::time::Duration;

use crate::core::turns::HoldTerms;
use crate::options::InvalidOption;

/// A holder that exceeds its limit has at least this long to notice, as in snaplock.
const GRACE_MIN: Duration = Duration::from_secs(60);

impl HoldTerms {
    /// The terms of a request; `None` if it sets no limit.
    pub(crate) fn new(
        max_hold: Option<Duration>,
        grace: Option<Duration>,
    ) -> Result<Option<Self>, InvalidOption> {
        match (max_hold, grace) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(InvalidOption::GraceWithoutMaxHold),
            (Some(max_hold), _) if max_hold.is_zero() => Err(InvalidOption::ZeroMaxHold),
            (Some(max_hold), grace) => {
                let grace = grace.unwrap_or(max_hold.max(GRACE_MIN));
                Ok(Some(HoldTerms { max_hold, grace }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::turns::HoldLimit;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn limit_counts_from_the_grant_and_has_a_grace() {
        for (max_hold, grace, expiring_from, ends) in [
            (10, None, 110, 170),
            (90, None, 190, 280),
            (10, Some(5), 110, 115),
            (10, Some(0), 110, 110),
        ] {
            let terms = HoldTerms::new(Some(s(max_hold)), grace.map(s)).expect("it is allowed");
            let limit = terms.expect("there is a limit").limit(s(100));
            assert_eq!(limit, HoldLimit { expiring_from: s(expiring_from), ends: s(ends) });
        }
        let for_ever = HoldTerms::new(Some(Duration::MAX), None).expect("it is allowed");
        let limit = for_ever.expect("there is a limit").limit(s(100));
        assert_eq!(limit.ends, Duration::MAX);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(HoldTerms::new(None, None), Ok(None));
        assert_eq!(HoldTerms::new(None, Some(s(1))), Err(InvalidOption::GraceWithoutMaxHold));
        assert_eq!(HoldTerms::new(Some(s(0)), None), Err(InvalidOption::ZeroMaxHold));
    }
}
