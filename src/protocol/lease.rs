//! Lease arithmetic (design section 5). Times are elapsed since an origin that the clock chose.

use std::time::Duration;

/// The shortest TTL: below it the rounding of TTLs and the renewals leave no time to work.
pub(crate) const TTL_MIN: Duration = Duration::from_secs(5);

/// Cassandra stores the expiry in whole seconds, so up to one second of a TTL is lost.
const TTL_ROUNDING: Duration = Duration::from_secs(1);

/// How late a request that was sent may still be coordinated: the server drops what waited for 12 s
/// (`native_transport_timeout`), a little more for the way there.
pub(crate) const TIME_IN_FLIGHT: Duration = Duration::from_secs(15);

/// Renewals are due this many times in a TTL.
const RENEWALS_PER_TTL: u32 = 3;

/// The terms on which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    ttl: Duration,
    max_clock_skew: Duration,
}

impl LeaseTerms {
    /// Terms for a TTL in whole seconds.
    ///
    /// # Panics
    ///
    /// When the TTL is shorter than [`TTL_MIN`], has a fraction of a second or leaves no lease;
    /// options are checked before.
    pub(crate) fn new(ttl: Duration, max_clock_skew: Duration) -> Self {
        assert!(ttl >= TTL_MIN, "a ttl below the minimum was let through");
        assert!(ttl.subsec_nanos() == 0, "the database would cut the fraction off the ttl");
        assert!(ttl > (TTL_ROUNDING + max_clock_skew) * 2, "clock skew eats the lease");
        LeaseTerms { ttl, max_clock_skew }
    }

    /// How far the clocks of two nodes may differ.
    pub(crate) fn max_clock_skew(self) -> Duration {
        self.max_clock_skew
    }

    /// The TTL that is bound to each write, in seconds.
    pub(crate) fn ttl_seconds(self) -> i32 {
        ttl_seconds(self.ttl)
    }

    /// Until when a row whose acknowledged write was first tried at `first_try` is certainly seen.
    pub(crate) fn deadline(self, first_try: Duration) -> Duration {
        first_try + self.ttl - TTL_ROUNDING - self.max_clock_skew
    }

    /// When the row should be written again.
    pub(crate) fn renewal_due(self, first_try: Duration) -> Duration {
        first_try + self.ttl / RENEWALS_PER_TTL
    }

    /// When a row that was last sent at `last_sent` is certainly gone, whatever became of the
    /// request.
    pub(crate) fn gone_by(self, last_sent: Duration) -> Duration {
        last_sent + self.ttl + self.max_clock_skew + TIME_IN_FLIGHT
    }
}

/// A TTL as it is bound to a write, in seconds.
///
/// # Panics
///
/// When it is longer than 68 years; a table allows ten minutes at most.
pub(crate) fn ttl_seconds(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_secs()).expect("a ttl is at most ten minutes")
}

/// How long a contender's rows count: each until its own deadline, the lease until the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    entering: RowLease,
    ticket: Option<RowLease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowLease {
    first_try: Duration,
    deadline: Duration,
}

impl Lease {
    /// The lease after an acknowledged write of the `entering::` row alone.
    pub(crate) fn announced(terms: LeaseTerms, first_try: Duration) -> Self {
        let entering = RowLease { first_try, deadline: terms.deadline(first_try) };
        Lease { entering, ticket: None }
    }

    /// The lease after an acknowledged write that was first tried at `first_try`: of the
    /// `entering::` row, and with it of the `tickets::` row where there is one.
    ///
    /// `None` when the acknowledgement came only after the old deadline: then the rows may have
    /// been gone in between, and it does not count.
    #[must_use]
    pub(crate) fn renewed(
        self,
        terms: LeaseTerms,
        first_try: Duration,
        with_ticket: bool,
        now: Duration,
    ) -> Option<Self> {
        assert!(with_ticket || self.ticket.is_none(), "a drawn ticket is always written along");
        let entering = RowLease { first_try, deadline: terms.deadline(first_try) };
        let renewed = Lease { entering, ticket: with_ticket.then_some(entering) };
        (self.is_valid(now) && renewed.is_valid(now)).then_some(renewed)
    }

    /// Until when the rows count.
    pub(crate) fn deadline(self) -> Duration {
        self.ticket.map_or(self.entering.deadline, |t| t.deadline.min(self.entering.deadline))
    }

    /// Whether the rows count at `now`.
    pub(crate) fn is_valid(self, now: Duration) -> bool {
        now < self.deadline()
    }

    /// From when on the lease is at risk: two thirds of it passed without an acknowledged renewal.
    pub(crate) fn at_risk_from(self) -> Duration {
        let first_try = self.first_try();
        first_try + (self.deadline() - first_try) * 2 / 3
    }

    /// When the rows should be written again.
    pub(crate) fn renewal_due(self, terms: LeaseTerms) -> Duration {
        terms.renewal_due(self.first_try())
    }

    fn first_try(self) -> Duration {
        self.ticket.map_or(self.entering.first_try, |t| t.first_try.min(self.entering.first_try))
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
    fn a_lease_counts_from_the_first_try() {
        let lease = Lease::announced(terms(), s(100));
        assert_eq!(lease.deadline(), s(158), "ttl less the rounding less the skew");
        assert!(lease.is_valid(s(157)) && !lease.is_valid(s(158)));
        assert_eq!(lease.renewal_due(terms()), s(120));
        assert_eq!(
            lease.at_risk_from(),
            Duration::from_millis(138_666) + Duration::from_nanos(666_666)
        );
        assert_eq!(terms().gone_by(s(100)), s(176));
    }

    #[test]
    fn renewals_in_every_order() {
        // first try and acknowledgement of a renewal of a lease that ends at 158: new deadline.
        let cases = [
            (s(120), s(121), Some(s(178))),
            (s(120), s(157), Some(s(178))),
            (s(157), Duration::from_millis(157_999), Some(s(215))),
            (s(157), s(158), None),
            (s(120), s(158), None),
            (s(120), s(300), None),
        ];
        for (first_try, acknowledged, expected) in cases {
            for with_ticket in [false, true] {
                let lease = Lease::announced(terms(), s(100));
                let renewed = lease.renewed(terms(), first_try, with_ticket, acknowledged);
                assert_eq!(
                    renewed.map(Lease::deadline),
                    expected,
                    "tried {first_try:?}, acknowledged {acknowledged:?}"
                );
            }
        }
    }

    #[test]
    fn the_earlier_row_ends_the_lease() {
        let row = |first_try| RowLease { first_try, deadline: terms().deadline(first_try) };
        let lease = Lease { entering: row(s(100)), ticket: Some(row(s(130))) };
        assert_eq!(lease.deadline(), s(158));
        assert_eq!(lease.renewal_due(terms()), s(120));
        let lease = Lease { entering: row(s(130)), ticket: Some(row(s(100))) };
        assert_eq!(lease.deadline(), s(158));
    }
}
