//! Fencing tokens, whatever stands in the fence and whatever the clocks say.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::for_all;
use super::rows::number;
use crate::core::bakery::{Poisoned, Right, SPACING};
use crate::fencing::{FenceGate, FencingToken};
use crate::options::MAX_CLOCK_SKEW_RANGE;

/// A clock of the year 290,000 leaves no room for tokens above it.
const LAST_CLOCK: i64 = i64::MAX - i64::MAX / 32;
/// Microseconds since the Unix epoch, some day.
const TODAY: i64 = 1_700_000_000_000_000;

// Goal: a fence that is further ahead than two clocks may be apart is refused, any other one is
// raised far enough for all the writes of the token before, or kept as it is.
// Method: any fence, any clock, any clock skew that settings allow.
#[test]
fn next_token_is_above_the_last_one_or_refused() {
    for_all(&(seen(), clock(), skew()), |(seen, now, skew)| {
        let apart = i128::try_from(skew.as_micros() * 2).expect("a skew is short");
        let ahead = i128::from(seen) - i128::from(now);
        for (right, least) in [(Right::Raise, i64::from(SPACING)), (Right::Keep, 0)] {
            match right.next(Some(seen), now, now, skew) {
                Err(Poisoned { .. }) => prop_assert!(ahead > apart),
                Ok(token) => {
                    prop_assert!(ahead <= apart, "poisoned, and drawn from");
                    prop_assert!(i128::from(token) >= i128::from(seen) + i128::from(least));
                    match right {
                        Right::Raise => prop_assert!(token >= now),
                        Right::Keep => prop_assert_eq!(token, seen),
                    }
                }
            }
            prop_assert_eq!(right.next(None, now, now, skew), Ok(now));
        }
        Ok(())
    });
}

// Goal: tokens grow from exclusive holder to holder by more than the writes of each take, whatever
// the clocks say within their bounds; shared holders stand between the exclusive ones before and
// after them; and none finds the fence poisoned.
// Method: holders one after the other, each with a clock of its own. What each draws is written: it
// is acknowledged and handed out, or comes late, or twice, or never. The fence keeps the largest.
#[test]
fn tokens_grow_whatever_the_clocks_say() {
    let holder =
        (any::<bool>(), 1_000_i64..3_000_000, -1_000_i64..=1_000, any::<bool>(), 0_usize..20);
    for_all(&(skew(), vec(holder, 1..20)), |(skew, holders)| {
        let bound = i64::try_from(skew.as_micros()).expect("a skew is short");
        let (mut now, mut fence, mut late) = (TODAY, None, Vec::new());
        let (mut above, mut exclusive_above) = (i64::MIN, i64::MIN);
        for (exclusive, passes, clock, acknowledged, arrives) in holders {
            now += passes;
            // A clock is off by a part of what it may be off.
            let clock = now + part(bound, clock);
            let right = if exclusive { Right::Raise } else { Right::Keep };
            let token = right.next(fence, clock, clock, skew);
            let token = token.map_err(|poisoned| TestCaseError::fail(format!("{poisoned:?}")))?;
            if acknowledged {
                fence = fence.max(Some(token));
                let least = if exclusive { above } else { exclusive_above };
                prop_assert!(token >= least, "{token} is not above those before, {least}");
                exclusive_above = if exclusive { token } else { exclusive_above };
                above = above.max(token.saturating_add(i64::from(SPACING)));
            }
            late.push(token);
            // Of all writes that were ever sent, any one arrives, be it for the first time.
            fence = late.get(arrives).copied().max(fence);
        }
        Ok(())
    });
}

// Goal: write timestamps of a token are below those of every later one, and there are as many as it
// says; no number makes them overflow.
// Method: any token, any n, a later token.
#[test]
fn write_timestamps_of_tokens_do_not_meet() {
    for_all(&(number(), any::<u16>(), any::<u16>()), |(value, n, m)| {
        let token = FencingToken::from_value(value);
        let stamp = token.write_timestamp(n);
        let fits = n < SPACING && value.checked_add(i64::from(n)).is_some();
        prop_assert_eq!(stamp.is_some(), fits);
        if let Some(later) = value.checked_add(i64::from(SPACING)).map(FencingToken::from_value)
            && let (Some(stamp), Some(theirs)) = (stamp, later.write_timestamp(m))
        {
            prop_assert!(value <= stamp && stamp < theirs);
        }
        Ok(())
    });
}

// Goal: a gate admits a token when, and only when, no larger one was there, and remembers the
// largest, over a restart as well.
// Method: any tokens in any order, with a restart after any of them.
#[test]
fn gate_never_goes_back() {
    for_all(&vec((number(), any::<bool>()), 0..12), |tokens| {
        let mut gate = FenceGate::default();
        let mut largest = None;
        for (value, restarts) in tokens {
            let admitted = gate.admit(FencingToken::from_value(value)).is_ok();
            prop_assert_eq!(admitted, largest.is_none_or(|largest| value >= largest));
            largest = largest.max(Some(value));
            prop_assert_eq!(gate.high_water().map(FencingToken::value), largest);
            if restarts {
                gate = FenceGate::new(gate.high_water());
            }
        }
        Ok(())
    });
}

fn seen() -> impl Strategy<Value = i64> {
    prop_oneof![3 => TODAY - 10_000_000..TODAY + 10_000_000, 1 => number()]
}

fn clock() -> impl Strategy<Value = i64> {
    let any_year = any::<i64>().prop_map(|clock| clock.clamp(0, LAST_CLOCK));
    prop_oneof![3 => TODAY - 10_000_000..TODAY + 10_000_000, 1 => any_year]
}

fn skew() -> impl Strategy<Value = Duration> {
    let millis = MAX_CLOCK_SKEW_RANGE.start().as_millis()..=MAX_CLOCK_SKEW_RANGE.end().as_millis();
    millis.prop_map(|millis| Duration::from_millis(u64::try_from(millis).expect("it is short")))
}

/// A part of a bound, from all of it to all of it in the other direction, in thousandths.
fn part(bound: i64, thousandths: i64) -> i64 {
    bound * thousandths / 1_000
}
