//! Tokens that a keeper reserves for the turns of one round (rule R7).

use std::time::Duration;

use crate::core::bakery::{SPACING, SeededBug};

/// A block's last token is at most this part of the clock skew ahead of the clock: far enough from
/// a fence that counts as poisoned. It also limits the tokens of an object to a thousand a second.
const AHEAD_OF_CLOCK: u32 = 4;

/// Tokens up to the fence. Write its [`last`](Self::last) value as the fence, wait until that is
/// acknowledged, and read the own rows; only then give it to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenBlock {
    next: i64,
    last: i64,
}

impl TokenBlock {
    /// The block that begins with `first`, the next value of the fence, while the wall clock shows
    /// `now_micros` at most. `Err` says how long to wait: the fence is too far ahead.
    pub(crate) fn from(
        first: i64,
        now_micros: i64,
        max_clock_skew: Duration,
    ) -> Result<Self, Duration> {
        let ahead = i64::try_from((max_clock_skew / AHEAD_OF_CLOCK).as_micros());
        let most = now_micros.saturating_add(ahead.unwrap_or(i64::MAX));
        if first > most {
            return Err(Duration::from_micros(most.abs_diff(first)));
        }
        let more = (most - first) / i64::from(SPACING);
        Ok(TokenBlock { next: first, last: first + more * i64::from(SPACING) })
    }

    /// The value of the fence that reserves the block.
    pub(crate) fn last(&self) -> i64 {
        self.last
    }

    /// The next token; each is handed out once.
    pub(crate) fn take(&mut self) -> Option<i64> {
        let token = self.next;
        (token <= self.last).then(|| {
            self.next += i64::from(SPACING);
            token
        })
    }

    /// What is left of a block when the next round begins: nothing. It may be below the tokens of
    /// those that held the object in between.
    pub(crate) fn in_next_round(block: Option<Self>) -> Option<Self> {
        block.filter(|_| SeededBug::BlockCarriedOver.is_planted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000_000;
    const SKEW: Duration = Duration::from_secs(1);
    const AHEAD: i64 = 250_000;

    fn block(first: i64) -> Result<TokenBlock, Duration> {
        TokenBlock::from(first, NOW, SKEW)
    }

    #[test]
    fn block_ends_a_quarter_of_the_skew_ahead_of_the_clock() {
        for (first, last) in [
            (NOW, NOW + AHEAD),
            (NOW + 1, NOW + 1 + AHEAD - 1_000),
            (NOW + AHEAD - 999, NOW + AHEAD - 999),
            (NOW + AHEAD, NOW + AHEAD),
        ] {
            assert_eq!(block(first).map(|block| block.last()), Ok(last));
        }
    }

    #[test]
    fn fence_that_is_further_ahead_is_waited_for() {
        assert_eq!(block(NOW + AHEAD + 1), Err(Duration::from_micros(1)));
        assert_eq!(block(NOW + AHEAD + 70_000), Err(Duration::from_millis(70)));
    }

    #[test]
    fn tokens_are_spaced_and_end_with_the_fence() {
        let mut block = block(NOW + AHEAD - 2_500).expect("it is near the clock");
        let tokens: Vec<_> = std::iter::from_fn(|| block.take()).collect();
        let first = NOW + AHEAD - 2_500;
        assert_eq!(tokens, [first, first + 1_000, first + 2_000]);
        assert_eq!(tokens.last(), Some(&block.last()));
        assert_eq!(block.take(), None);
    }
}
