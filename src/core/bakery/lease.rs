//! Lease arithmetic (design section 5). Times are elapsed since an origin chosen by the clock.

use std::time::Duration;

use super::seeded_bug::SeededBug;

/// The shortest TTL: below it the rounding of TTLs and the renewals leave no time to work.
pub(crate) const TTL_MIN: Duration = Duration::from_secs(5);

/// Cassandra stores the expiry in whole seconds, so up to one second of a TTL is lost.
const TTL_ROUNDING: Duration = Duration::from_secs(1);

/// Rows live for this much longer than their place is to stay taken, or it would be lost before it
/// is passed on.
const TIME_TO_PASS_ON: Duration = Duration::from_millis(500);

/// How late a sent request may still be coordinated. Since 4.1 Cassandra drops requests that waited
/// for 12 s (`native_transport_timeout`), and the way there takes a little more. Cassandra 4.0 and
/// ScyllaDB have no such limit: there a later request may bring back the row of a contender that
/// left, which blocks others until it expires. It lets none in.
pub(crate) const TIME_IN_FLIGHT: Duration = Duration::from_secs(15);

/// Renewals are due this many times in a TTL.
const RENEWALS_PER_TTL: u32 = 3;

/// Renewals are due at least this many times in a lease. With a short TTL and a large clock skew, a
/// third of the TTL is two thirds of the lease, and then the lock is at risk.
const RENEWALS_PER_LEASE: u32 = 2;

/// The terms on which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseTerms {
    ttl: Duration,
    max_clock_skew: Duration,
}

impl LeaseTerms {
    /// Terms for a TTL in whole seconds.
    ///
    /// # Panics
    ///
    /// If the TTL is shorter than [`TTL_MIN`], has a fraction of a second or leaves no lease;
    /// options are checked before.
    pub(crate) fn new(ttl: Duration, max_clock_skew: Duration) -> Self {
        assert!(ttl >= TTL_MIN, "a ttl below the minimum was let through");
        assert!(ttl.subsec_nanos() == 0, "the database would cut the fraction off the ttl");
        assert!(ttl > (TTL_ROUNDING + max_clock_skew) * 2, "clock skew eats the lease");
        LeaseTerms { ttl, max_clock_skew }
    }

    /// The shortest terms for a place that is to stay taken for so long, and to be passed on then.
    pub(crate) fn for_min_hold(min_hold: Duration, max_clock_skew: Duration) -> Self {
        let needed = min_hold + TIME_TO_PASS_ON + TTL_ROUNDING + max_clock_skew;
        let whole = needed.as_secs() + u64::from(needed.subsec_nanos() > 0);
        let least = ((TTL_ROUNDING + max_clock_skew) * 2).as_secs() + 1;
        let ttl = Duration::from_secs(whole.max(least)).max(TTL_MIN);
        LeaseTerms::new(ttl, max_clock_skew)
    }

    /// The longest time that a place can stay taken for without renewal, in a table with this TTL.
    pub(crate) fn longest_min_hold(max_ttl: Duration, max_clock_skew: Duration) -> Duration {
        Self::longest_lease(max_ttl, max_clock_skew) - TIME_TO_PASS_ON
    }

    /// The longest lease that rows with this TTL give.
    pub(crate) fn longest_lease(max_ttl: Duration, max_clock_skew: Duration) -> Duration {
        max_ttl - TTL_ROUNDING - max_clock_skew
    }

    /// How long rows live without renewal.
    pub(crate) fn ttl(self) -> Duration {
        self.ttl
    }

    /// How far the clocks of two nodes may differ.
    pub(crate) fn max_clock_skew(self) -> Duration {
        self.max_clock_skew
    }

    /// The TTL bound to each write, in seconds.
    pub(crate) fn ttl_seconds(self) -> i32 {
        ttl_seconds(self.ttl)
    }

    /// Until when a row is certainly seen if its acknowledged write was first tried at `first_try`.
    pub(crate) fn deadline(self, first_try: Duration) -> Duration {
        first_try + self.lease()
    }

    /// How long a row is certainly seen, from the first try of its write.
    pub(crate) fn lease(self) -> Duration {
        Self::longest_lease(self.ttl, self.max_clock_skew)
    }

    /// When the row should be written again.
    pub(crate) fn renewal_due(self, first_try: Duration) -> Duration {
        first_try + (self.ttl / RENEWALS_PER_TTL).min(self.lease() / RENEWALS_PER_LEASE)
    }

    /// When a row last sent at `last_sent` is certainly gone, whatever the outcome of the request.
    pub(crate) fn gone_by(self, last_sent: Duration) -> Duration {
        last_sent + self.ttl + self.max_clock_skew + TIME_IN_FLIGHT
    }
}

/// A TTL as bound to a write, in seconds.
///
/// # Panics
///
/// If it is longer than 68 years; a table allows at most ten minutes.
pub(crate) fn ttl_seconds(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_secs()).expect("a ttl is at most ten minutes")
}

/// How long a contender's rows count. Each write is of all of them, so they have one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    first_try: Duration,
    deadline: Duration,
}

impl Lease {
    /// The lease after an acknowledged write that was first tried at `first_try`.
    pub(crate) fn new(terms: LeaseTerms, first_try: Duration) -> Self {
        Lease { first_try, deadline: terms.deadline(first_try) }
    }

    /// The lease of a sublease, from now until a time that its keeper decided.
    pub(crate) fn sublease(now: Duration, until: Duration) -> Self {
        Lease { first_try: now, deadline: until.max(now) }
    }

    /// The lease after another acknowledged write, first tried at `first_try`.
    ///
    /// `None` if the acknowledgement came only after the old deadline: the rows may have been gone
    /// in between, so it does not count.
    #[must_use]
    pub(crate) fn renewed(
        self,
        terms: LeaseTerms,
        first_try: Duration,
        now: Duration,
    ) -> Option<Self> {
        let late = SeededBug::LeaseFromAcknowledgement.is_planted();
        let renewed = Lease::new(terms, if late { now } else { first_try });
        let in_time = self.is_valid(now) && renewed.is_valid(now);
        (in_time || SeededBug::LateRenewalCounts.is_planted()).then_some(renewed)
    }

    /// The lease, cut off at `deadline`.
    #[must_use]
    pub(crate) fn until(self, deadline: Duration) -> Self {
        Lease { deadline: self.deadline.min(deadline), ..self }
    }

    /// Until when the rows count.
    pub(crate) fn deadline(self) -> Duration {
        self.deadline
    }

    /// Whether the rows count at `now`.
    pub(crate) fn is_valid(self, now: Duration) -> bool {
        now < self.deadline()
    }

    /// When the lease becomes at risk: two thirds of it passed without an acknowledged renewal.
    pub(crate) fn at_risk_from(self) -> Duration {
        self.first_try + (self.deadline - self.first_try) * 2 / 3
    }

    /// The share of the lease that is left at `now`, from 0 to 1.
    pub(crate) fn left(self, now: Duration) -> f64 {
        let left = self.deadline.saturating_sub(now);
        if left.is_zero() { 0.0 } else { left.div_duration_f64(self.deadline - self.first_try) }
    }

    /// When the rows should be written again.
    pub(crate) fn renewal_due(self, terms: LeaseTerms) -> Duration {
        terms.renewal_due(self.first_try)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn terms() -> LeaseTerms {
        LeaseTerms::new(s(60), s(1))
    }

    #[test]
    fn lease_counts_from_the_first_try() {
        let lease = Lease::new(terms(), s(100));
        assert_eq!([100, 129, 158, 159].map(|now| lease.left(s(now))), [1.0, 0.5, 0.0, 0.0]);
        assert_eq!(lease.deadline(), s(158), "ttl less the rounding less the skew");
        assert!(lease.is_valid(s(157)) && !lease.is_valid(s(158)));
        assert_eq!(lease.renewal_due(terms()), s(120));
        assert_eq!(
            lease.at_risk_from(),
            Duration::from_millis(138_666) + Duration::from_nanos(666_666)
        );
        assert_eq!(terms().gone_by(s(100)), s(176));
        assert_eq!(terms().max_clock_skew(), s(1));
    }

    #[test]
    fn renewal_is_due_well_before_the_lease_is_at_risk() {
        let ms = Duration::from_millis;
        for (ttl, skew, due, at_risk) in [
            (s(60), s(1), s(20), ms(58_000) * 2 / 3),
            (s(5), s(1), ms(1_500), s(2)),
            (s(5), ms(1_499), ms(2_501) / 2, ms(2_501) * 2 / 3),
            (s(5), ms(1), s(5) / 3, ms(3_999) * 2 / 3),
        ] {
            let terms = LeaseTerms::new(ttl, skew);
            let lease = Lease::new(terms, s(100));
            let times = (lease.renewal_due(terms), lease.at_risk_from());
            assert_eq!(times, (s(100) + due, s(100) + at_risk), "ttl {ttl:?}, skew {skew:?}");
            assert!(at_risk - due > ms(400), "a renewal has no time: {ttl:?}, {skew:?}");
        }
    }

    #[test]
    fn terms_for_min_hold_are_the_shortest_that_last_as_long() {
        let ms = Duration::from_millis;
        let ttl = |min_hold, skew| LeaseTerms::for_min_hold(min_hold, skew).ttl();
        // Half a second to pass the place on, what a TTL may lose, and the skew.
        assert_eq!(ttl(ms(10_500), s(1)), s(13));
        assert_eq!(ttl(ms(10_501), s(1)), s(14));
        assert_eq!(ttl(s(1), s(5)), s(13), "some lease must be left");
        assert_eq!(ttl(ms(1), ms(100)), TTL_MIN);
        assert_eq!(LeaseTerms::longest_min_hold(s(13), s(1)), ms(10_500));
    }

    /// The announcement and three more writes.
    const WRITES: usize = 4;
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn every_order_of_writes_and_acknowledgements() {
        let shortest = LeaseTerms::new(s(5), Duration::from_millis(1_499));
        for table in [
            Table { terms: terms(), lease: s(58) },
            Table { terms: shortest, lease: Duration::from_millis(2_501) },
        ] {
            let tried = s(100);
            let mut looked_at = 0;
            for acknowledged in [tried, tried + s(1), tried + table.lease - MOMENT] {
                let acknowledged = Some(acknowledged);
                let announcement = Written { tried, acknowledged };
                let lease = Lease::new(table.terms, tried);
                looked_at += table.walk(&mut vec![announcement], lease);
            }
            assert!(looked_at > 10_000, "only {looked_at} leases were looked at");
        }
    }

    /// A write of the rows: when it was first tried, and when it was acknowledged, if ever.
    #[derive(Clone, Copy, Debug)]
    struct Written {
        tried: Duration,
        acknowledged: Option<Duration>,
    }

    /// A table for one pair of TTL and skew, and the lease that they leave.
    #[derive(Clone, Copy)]
    struct Table {
        terms: LeaseTerms,
        lease: Duration,
    }

    impl Table {
        /// When the lease ends by the design, from all that happened so far. An acknowledgement
        /// counts if it comes before the old deadline. The lease ends by the last write that
        /// counts, from its first try.
        fn end(self, writes: &[Written]) -> Duration {
            let mut end = None;
            for write in writes {
                let in_time = |at| end.is_none_or(|old_deadline| at < old_deadline);
                if write.acknowledged.is_some_and(in_time) {
                    end = Some(write.tried + self.lease);
                }
            }
            end.expect("the announcement counts")
        }

        /// Checks a lease against what happened, and continues with every next write. Returns the
        /// number of leases checked.
        fn walk(self, writes: &mut Vec<Written>, lease: Lease) -> usize {
            let end = self.end(writes);
            self.check(lease, end, writes);
            if writes.len() == WRITES {
                return 1;
            }
            let mut looked_at = 1;
            for next in self.next_writes(writes, lease, end) {
                writes.push(next);
                let renewed = next.acknowledged.and_then(|now| {
                    let renewed = lease.renewed(self.terms, next.tried, now);
                    assert_eq!(renewed.is_some(), now < end, "{writes:?}");
                    renewed
                });
                looked_at += self.walk(writes, renewed.unwrap_or(lease));
                writes.pop();
            }
            looked_at
        }

        fn check(self, lease: Lease, end: Duration, writes: &[Written]) {
            let tried = end - self.lease;
            assert_eq!(lease.deadline(), end, "{writes:?}");
            let valid = [end - MOMENT, end, end + MOMENT].map(|now| lease.is_valid(now));
            assert_eq!(valid, [true, false, false], "{writes:?}");
            assert_eq!(lease.at_risk_from(), tried + self.lease * 2 / 3, "{writes:?}");
            let due = (self.terms.ttl / 3).min(self.lease / 2);
            assert_eq!(lease.renewal_due(self.terms), tried + due, "{writes:?}");
        }

        /// The writes that may follow, one at a time: begun at once, when due, or about the end of
        /// the lease; acknowledged at once, about that end, or never.
        fn next_writes(self, writes: &[Written], lease: Lease, end: Duration) -> Vec<Written> {
            let last = writes.last().expect("there was an announcement");
            let now = last.acknowledged.unwrap_or(last.tried);
            let about_the_end = [end - MOMENT, end, end + MOMENT];
            let mut next = Vec::new();
            for tried in [now, lease.renewal_due(self.terms)].into_iter().chain(about_the_end) {
                let acknowledged = [tried, tried + self.lease].into_iter().chain(about_the_end);
                let acknowledged = acknowledged.filter(|at| *at >= tried).map(Some).chain([None]);
                let written = acknowledged.map(|acknowledged| Written { tried, acknowledged });
                next.extend(written.filter(|write| write.tried >= now));
            }
            next
        }
    }
}
