//! How far a queue has come, as releases report.
//!
//! The release of a contender that had waited says who left, and all reads show the last one, so a
//! waiter that asks its predecessor, and finds it present, still learns how many are ahead. That
//! sets when it looks again, and never that it may enter.

use std::time::Duration;

use super::super::admission::{Blockers, QueuePosition, Standing};
use super::super::row::{LastRelease, Mode};
use super::NO_TICKET;

/// The handoffs before weigh this many times as much as the latest one in what is reported.
const STEADINESS: u32 = 7;
/// What was reported before counts as this at most: no waiter paces itself by more, and a wrong
/// report is soon forgotten.
const REPORT_MAX: Duration = Duration::from_millis(500);

/// The line as it was in the beginning, and how many have left it.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Who was ahead, in order. Empty if others than exclusive contenders were: those leave in any
    /// order.
    line: Vec<Ahead>,
    /// How many of them have left, at least.
    left: usize,
    last: Option<LastRelease>,
}

#[derive(Clone, Copy, Debug)]
struct Ahead {
    place: QueuePosition,
    round: i64,
}

impl Progress {
    /// No contender has left yet.
    pub(super) fn new(blockers: &Blockers, last: Option<LastRelease>) -> Self {
        let ahead = blockers.iter().map(|(contender, standing)| match standing {
            Standing::Queued { round, mode: Mode::Exclusive, ticket } => {
                Some(Ahead { place: QueuePosition { ticket, contender }, round })
            }
            Standing::Choosing { round, mode: Mode::Exclusive } => {
                Some(Ahead { place: QueuePosition { ticket: NO_TICKET, contender }, round })
            }
            Standing::Queued { .. } | Standing::Choosing { .. } | Standing::Unreadable => None,
        });
        let mut line: Vec<_> = ahead.collect::<Option<_>>().unwrap_or_default();
        line.sort_unstable_by_key(|ahead: &Ahead| ahead.place);
        Progress { line, left: 0, last }
    }

    /// Whether releases report how far the queue has come.
    pub(super) fn is_told(&self) -> bool {
        self.last.is_some() && !self.line.is_empty()
    }

    /// The last release that was seen.
    pub(super) fn last_release(&self) -> Option<LastRelease> {
        self.last
    }

    /// Notes the last release that a read shows. Returns the place of the contender that left, if
    /// the queue has moved.
    pub(super) fn note(&mut self, last: Option<LastRelease>) -> Option<QueuePosition> {
        let last = last?;
        self.last = Some(last);
        let rest = self.line.get(self.left..)?;
        let is_it = |ahead: &Ahead| {
            (ahead.place.contender.client, ahead.round) == (last.client, last.round)
        };
        let moved = rest.iter().position(is_it)? + 1;
        self.left += moved;
        Some(rest[moved - 1].place)
    }
}

/// How a contender that had waited is let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Succession {
    /// When the one before it left, as it would know if it had asked all the time.
    pub(super) began: Duration,
    /// The last release that it saw.
    pub(super) before: Option<LastRelease>,
}

impl Succession {
    /// How long a handoff takes: its own, up to the release at `now`, and those before. The time by
    /// which a waiter looks too late is not part of one, or all behind it would look later still.
    /// When a crowd has come and its whole reads are over, handoffs are many times as fast as
    /// reported, so those that are much faster count at once.
    pub(crate) fn handoff(self, now: Duration) -> Duration {
        let own = now - self.began;
        match self.before.map(|before| before.handoff.min(REPORT_MAX)) {
            Some(before) if own < before / 2 => (before + own) / 2,
            Some(before) => (before * STEADINESS + own) / (STEADINESS + 1),
            None => own,
        }
    }

    /// The least stamp of its release: above that of the one before, it is the last one on a slow
    /// clock too.
    pub(crate) fn stamp_after(self) -> i64 {
        self.before.map_or(i64::MIN, |before| before.stamp.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_drop_fast_and_rise_slowly() {
        let ms = Duration::from_millis;
        let reported = |before: Option<u64>, own: u64| {
            let last = |before| LastRelease { client: 1, round: 1, handoff: ms(before), stamp: 1 };
            let succession = Succession { began: ms(100), before: before.map(last) };
            succession.handoff(ms(100 + own))
        };
        assert_eq!(reported(None, 10), ms(10));
        assert_eq!(reported(Some(100), 10), ms(55));
        assert_eq!(reported(Some(16), 8), ms(15));
        assert_eq!(reported(Some(10), 90), ms(20));
        assert_eq!(reported(Some(1_000_000), 10), ms(255), "a wrong one");
    }
}
