//! How long a turn lasts by both clocks (rules R1 and R2).

use std::time::Duration;

use super::messages::Now;
use crate::core::bakery::SeededBug;

/// The first sublease lasts this long at most; a guest that is still inside extends it.
pub(crate) const FIRST_LENGTH_MAX: Duration = Duration::from_secs(2);

/// Later ones last this long at most, unless the guest needs a longer one: a guest that died keeps
/// others out for so long.
pub(crate) const SUBLEASE_MAX: Duration = Duration::from_secs(10);

/// A sublease that a guest needs lasts this much longer, for the time in which the request and the
/// answer are on their way; a place is renewed for it within the same time.
const TIME_ON_THE_WAY: Duration = Duration::from_millis(500);

/// A guest that is still inside after this time extends its turn.
pub(crate) const FIRST_RENEWAL: Duration = Duration::from_millis(50);

/// For 100 units of the slower of two clocks, the faster one counts at most this many. Quartz
/// clocks differ by 0.01 %, and NTP slews by 0.05 %.
const DRIFT: u32 = 101;

/// A keeper's decision on a sublease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sublease {
    /// How long the guest has its turn, by its own clock.
    pub(crate) length: Duration,
    /// When it is certainly over, by the keeper's boot time.
    pub(crate) ends: Duration,
}

impl Sublease {
    /// The longest sublease of at most `wanted`, of a place that is held until `deadline`. It is
    /// over before the place is, however slow the guest's clock.
    pub(crate) fn until(deadline: Duration, wanted: Duration, now: Now) -> Self {
        let left = deadline.saturating_sub(now.elapsed);
        let length = if SeededBug::SubleaseBeyondPlace.is_planted() {
            wanted.min(left)
        } else {
            wanted.min(left * 100 / DRIFT)
        };
        let certain = if SeededBug::NoDriftAllowance.is_planted() {
            length
        } else {
            // Rounded up, so that the keeper does not end the turn a nanosecond early.
            length + drift(length)
        };
        Sublease { length, ends: clock_of_ends(now) + certain }
    }
}

/// The length of a sublease of which `least` is to be left when the guest learns of it. Zero: it
/// needs none of some length.
pub(super) fn needed_length(least: Duration) -> Duration {
    if least.is_zero() { least } else { least.saturating_add(TIME_ON_THE_WAY) }
}

/// How long a place must be held from now on for such a sublease.
pub(super) fn needed_of_place(least: Duration) -> Duration {
    let length = needed_length(least);
    length.saturating_add(drift(length))
}

/// Whether a place whose lease lasts so long after a renewal can give such a sublease.
pub(super) fn can_give(lease: Duration, least: Duration) -> bool {
    least.is_zero() || needed_of_place(least).saturating_add(TIME_ON_THE_WAY) <= lease
}

/// By how much a slower clock counts a time longer, rounded up.
fn drift(length: Duration) -> Duration {
    (length.saturating_mul(DRIFT - 100).saturating_add(Duration::from_nanos(99))) / 100
}

/// Whether a turn is certainly over that ends at `ends`.
pub(crate) fn is_over(ends: Duration, now: Now) -> bool {
    clock_of_ends(now) >= ends
}

fn clock_of_ends(now: Now) -> Duration {
    if SeededBug::SubleaseOnJumpingClock.is_planted() { now.elapsed } else { now.boot }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn sublease_ends_before_the_place_by_any_clock() {
        for left in [1, 2, 99, 100, 101, 10_000, 1_999_999_999, 57_123_456_789] {
            let left = Duration::from_nanos(left);
            let now = Now { elapsed: ms(5_000), boot: ms(1_000) };
            let Sublease { length, ends } = Sublease::until(now.elapsed + left, left, now);
            assert!(ends <= now.boot + left, "{left:?}: {ends:?}");
            assert!(length * DRIFT / 100 <= ends - now.boot, "{left:?}: {length:?}, {ends:?}");
            assert!(length * DRIFT / 100 + Duration::from_nanos(3) >= left, "{left:?}: {length:?}");
        }
    }

    #[test]
    fn sublease_is_no_longer_than_wanted() {
        let now = Now { elapsed: ms(5_000), boot: ms(1_000) };
        let sublease = Sublease::until(ms(60_000), ms(2_000), now);
        assert_eq!(sublease, Sublease { length: ms(2_000), ends: ms(3_020) });
        let over = |boot| is_over(sublease.ends, Now { boot: ms(boot), ..now });
        assert!(!over(3_019) && over(3_020));
    }

    #[test]
    fn place_that_is_over_gives_nothing() {
        let now = Now { elapsed: ms(5_000), boot: ms(1_000) };
        let sublease = Sublease::until(ms(4_000), ms(2_000), now);
        assert_eq!(sublease, Sublease { length: ms(0), ends: ms(1_000) });
    }
}
