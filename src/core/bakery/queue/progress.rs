//! How far a queue has come, as releases report.
//!
//! The release of a contender that had waited says who left, and all reads show the last one, so a
//! waiter that asks its predecessor, and finds it present, still learns how many are ahead. That
//! sets when it looks again, and never that it may enter.

use std::time::Duration;

use super::super::admission::{Blockers, QueuePosition, Standing};
use super::super::row::{LastRelease, Mode};
use super::NO_TICKET;

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

    /// How long a handoff took for the contender that left last.
    pub(super) fn handoff(&self) -> Option<Duration> {
        self.last.map(|last| last.handoff)
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
