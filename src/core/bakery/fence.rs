//! The fence of an object: a register that only grows, from which fencing tokens are issued (design
//! section 6).
//!
//! Each value is its own write timestamp, so the larger of two values wins, in whatever order they
//! arrive and however often they are repeated: a late write of a former holder changes nothing.

use std::time::Duration;

use super::row::Mode;

/// The minimum distance between the tokens of two exclusive holders: the number of write timestamps
/// that a token has room for.
pub(crate) const SPACING: u16 = 1000;

/// The TTL of a value, in seconds: 30 days. Tokens grow as long as the value lives, and by the
/// clock after that. It is far above the table's longest TTL, so each write must bind it.
pub(crate) const FENCE_TTL_SECONDS: i32 = 30 * 24 * 60 * 60;

/// What a holder may do with the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Raise it: an exclusive holder's token is above all earlier ones.
    Raise,
    /// Keep it: shared holders have the same token, above those of the exclusive holders before
    /// them and below those after them.
    Keep,
}

/// The fence is ahead of the clock by more than clocks may differ: a client with a wrong clock
/// wrote it, or our clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poisoned {
    /// How far ahead it is.
    pub(crate) ahead: Duration,
}

impl Right {
    /// The right of a holder; `None` for limited holders, which hold together but keep others out,
    /// so that no order among them is meaningful.
    pub(crate) fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Exclusive => Some(Right::Raise),
            Mode::Shared => Some(Right::Keep),
            Mode::Limited(_) => None,
        }
    }

    /// The value to write, given that a read begun after the grant saw `seen` and the wall clock
    /// shows `now_micros`. It is the token once the write is acknowledged.
    ///
    /// Shared holders write back the value that they read: it may be on one replica only, and the
    /// next reader must see it. If there is none, theirs is the first value.
    ///
    /// A clock set ahead by mistake would have the tokens of all others refused until their clocks
    /// catch up, so no value exceeds `at_most`, the most that the clock can show, except as far as
    /// the fence itself does.
    ///
    /// A client's clock may differ from the nodes' clocks by `max_clock_skew`, so the clocks of two
    /// clients may differ by twice that; a value further ahead is poisoned.
    pub(crate) fn next(
        self,
        seen: Option<i64>,
        now_micros: i64,
        at_most: i64,
        max_clock_skew: Duration,
    ) -> Result<i64, Poisoned> {
        let believed = now_micros.min(at_most);
        let Some(seen) = seen else {
            return Ok(believed);
        };
        let ahead = u64::try_from(seen.saturating_sub(now_micros)).unwrap_or(0);
        let ahead = Duration::from_micros(ahead);
        if ahead > max_clock_skew * 2 {
            return Err(Poisoned { ahead });
        }
        Ok(match self {
            Right::Raise => believed.max(seen.saturating_add(i64::from(SPACING))),
            Right::Keep => seen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000_000;
    const SKEW: Duration = Duration::from_millis(500);
    const APART: i64 = 1_000_000;
    const GAP: i64 = 1_000;

    fn poisoned(ahead_micros: u64) -> Result<i64, Poisoned> {
        Err(Poisoned { ahead: Duration::from_micros(ahead_micros) })
    }

    #[test]
    fn exclusive_holders_raise_the_fence() {
        let cases = [
            (None, Ok(NOW)),
            (Some(0), Ok(NOW)),
            (Some(NOW - 5_000), Ok(NOW)),
            // Two grants within a millisecond still have room for their writes.
            (Some(NOW - GAP), Ok(NOW)),
            (Some(NOW - GAP + 1), Ok(NOW + 1)),
            (Some(NOW), Ok(NOW + GAP)),
            // The previous holder's clock is ahead of ours by as much as is allowed.
            (Some(NOW + APART), Ok(NOW + APART + GAP)),
            (Some(NOW + APART + 1), poisoned(1_000_001)),
            (Some(NOW + 3_600_000_000), poisoned(3_600_000_000)),
            (Some(i64::MAX), poisoned((i64::MAX - NOW).unsigned_abs())),
            (Some(i64::MIN), Ok(NOW)),
        ];
        for (seen, expected) in cases {
            assert_eq!(Right::Raise.next(seen, NOW, NOW, SKEW), expected, "seen {seen:?}");
        }
    }

    #[test]
    fn shared_holders_keep_the_fence() {
        let cases = [
            (None, Ok(NOW)),
            (Some(NOW - 5_000), Ok(NOW - 5_000)),
            (Some(NOW + APART), Ok(NOW + APART)),
            (Some(NOW + APART + 1), poisoned(1_000_001)),
        ];
        for (seen, expected) in cases {
            assert_eq!(Right::Keep.next(seen, NOW, NOW, SKEW), expected, "seen {seen:?}");
        }
    }

    #[test]
    fn clock_ahead_does_not_raise_the_fence() {
        const HOUR: i64 = 3_600_000_000;
        for (seen, expected) in [
            (None, Ok(NOW)),
            (Some(NOW - 5_000), Ok(NOW)),
            (Some(NOW), Ok(NOW + GAP)),
            // Values of others are judged by the clock itself: it may be right.
            (Some(NOW + HOUR), Ok(NOW + HOUR + GAP)),
            (Some(NOW + HOUR + APART + 1), poisoned(1_000_001)),
        ] {
            assert_eq!(Right::Raise.next(seen, NOW + HOUR, NOW, SKEW), expected, "seen {seen:?}");
        }
        assert_eq!(Right::Keep.next(None, NOW + HOUR, NOW, SKEW), Ok(NOW));
        assert_eq!(Right::Raise.next(None, NOW, NOW + HOUR, SKEW), Ok(NOW), "it is only a bound");
    }

    #[test]
    fn fence_lives_for_thirty_days() {
        assert_eq!(FENCE_TTL_SECONDS, 2_592_000);
    }

    #[test]
    fn mode_decides_who_gets_a_token() {
        assert_eq!(Right::of(Mode::Exclusive), Some(Right::Raise));
        assert_eq!(Right::of(Mode::Shared), Some(Right::Keep));
        assert_eq!(Right::of(Mode::Limited(3)), None);
    }

    /// Successive holders, each with another clock. Each write may arrive late, more than once, or
    /// never if it was not acknowledged; the register keeps the larger value.
    #[test]
    fn tokens_grow_whatever_the_clocks_say() {
        let clocks = [0, 400_000, -500_000, 499_999, -1, 500_000, -499_000];
        let mut register = None;
        let mut late = Vec::new();
        let mut handed_out = Vec::<i64>::new();
        for holder in 0..700_i64 {
            let clock = clocks[usize::try_from(holder % 7).expect("a remainder is small")];
            let now = NOW + holder * 1_500 + clock;
            let value =
                Right::Raise.next(register, now, now, SKEW).expect("clocks are within bounds");
            if holder % 3 == 0 {
                // Never acknowledged: not handed out, and applied after the next holder's.
                late.push(value);
                continue;
            }
            register = register.max(Some(value));
            handed_out.push(value);
            register = register.max(late.pop());
        }
        assert!(handed_out.windows(2).all(|pair| pair[1] - pair[0] >= GAP), "{handed_out:?}");
    }
}
