//! Lease arithmetic against what a node does with a TTL.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::for_all;
use crate::core::bakery::{Lease, LeaseTerms, TTL_MIN};
use crate::options::MAX_CLOCK_SKEW_RANGE;

/// How late a node may still apply a request, as the design has it.
const TIME_IN_FLIGHT: Duration = Duration::from_secs(15);

// Goal: as long as the lease lasts, every node shows the rows; once they must be gone, none does.
// Method: a write takes effect at any time on its way, by the clock of one node, and is looked for
// by the clock of another one. Nodes cut times to whole seconds.
#[test]
fn rows_outlive_the_lease_and_are_gone_when_they_must_be() {
    let cases = (terms(), time(), within(TIME_IN_FLIGHT), time(), clocks());
    for_all(&cases, |((ttl, skew), sent, way, later, (ahead, apart))| {
        let terms = LeaseTerms::new(ttl, skew);
        let (slow, quick) = (ahead, ahead + skew.mul_f64(apart));
        for (writer, reader) in [(slow, quick), (quick, slow)] {
            let takes_effect = sent + way;
            let expires = (takes_effect + writer).as_secs() + ttl.as_secs();
            let is_live = |at: Duration| (at + reader).as_secs() < expires;

            let lease = Lease::new(terms, sent);
            let last_moment = lease.deadline() - Duration::from_nanos(1);
            for at in [takes_effect, takes_effect.max(last_moment)] {
                prop_assert!(is_live(at) || !lease.is_valid(at), "not seen at {at:?}");
            }
            let gone_by = terms.gone_by(sent);
            for at in [gone_by, gone_by + later] {
                prop_assert!(!is_live(at), "still seen at {at:?}");
            }
        }
        Ok(())
    });
}

// Goal: a lease counts from the first try of the last write that was acknowledged in time; one that
// was over is never valid again, whatever is acknowledged later. Its renewal is due before it is at
// risk, and it is at risk before it is over.
// Method: any renewals, tried at any time and acknowledged in any order.
#[test]
fn lease_is_renewed_in_time_or_not_at_all() {
    let renewals = vec((time(), within(Duration::from_secs(700))), 0..8);
    for_all(&(terms(), time(), renewals), |((ttl, skew), sent, renewals)| {
        let terms = LeaseTerms::new(ttl, skew);
        let length = ttl - Duration::from_secs(1) - skew;
        let mut lease = Lease::new(terms, sent);
        let (mut counts_from, mut now) = (sent, sent);
        for (first_try, passes) in renewals {
            now += passes;
            let renewed = lease.renewed(terms, first_try, now);
            let in_time = now < counts_from + length && now < first_try + length;
            prop_assert_eq!(renewed.is_some(), in_time);
            if let Some(renewed) = renewed {
                (lease, counts_from) = (renewed, first_try);
            }
            prop_assert_eq!(lease.deadline(), counts_from + length);
            prop_assert_eq!(lease.is_valid(now), now < counts_from + length);
            let due = lease.renewal_due(terms);
            prop_assert!(counts_from < due && due < lease.at_risk_from());
            prop_assert!(lease.at_risk_from() < lease.deadline());
        }
        Ok(())
    });
}

/// A TTL that a table allows, and a clock skew that settings allow.
fn terms() -> impl Strategy<Value = (Duration, Duration)> {
    let seconds = TTL_MIN.as_secs()..=600;
    let skew = MAX_CLOCK_SKEW_RANGE.start().as_nanos()..=MAX_CLOCK_SKEW_RANGE.end().as_nanos();
    (seconds.prop_map(Duration::from_secs), skew.prop_map(from_nanos))
}

/// A moment in the life of a process.
fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), within(Duration::from_secs(1_000))]
}

/// How far a node's clock is ahead of elapsed time, and which part of the greatest skew another one
/// is ahead of it.
fn clocks() -> impl Strategy<Value = (Duration, f64)> {
    (within(Duration::from_secs(10)), prop_oneof![Just(0.0), Just(1.0), 0.0..1.0])
}

fn within(longest: Duration) -> impl Strategy<Value = Duration> {
    (0..=longest.as_nanos()).prop_map(from_nanos)
}

fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).expect("times of tests are short"))
}
