//! A place that stays taken for a while although its turn was returned (`min_hold`).
//!
//! Its rows are written once more, on terms that end then, so that it stays taken if the process
//! exits. The turn lasts until then. Terms and deadline of the place change as before any other
//! turn: here, and before the rows are written.

use std::time::Duration;

use super::io::KeeperOutput;
use super::{Held, Keeper, Place, Turn};
use crate::core::bakery::{LeaseTerms, SeededBug};
use crate::core::turns::messages::{Now, TurnId};

/// The least time of a caller's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MinHold {
    /// When it is over, by boot time: a wall clock that is set ahead must not end it.
    ends: Duration,
    /// Since the turn was returned: the terms of the rows for the rest of that time.
    returned: Option<Rest>,
}

/// What is left of a turn that was returned early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Rest {
    terms: LeaseTerms,
    is_written: bool,
}

impl MinHold {
    /// Begins with the turn; `None` if there is no such time.
    pub(super) fn from(now: Now, min_hold: Duration) -> Option<Self> {
        (!min_hold.is_zero()).then(|| MinHold { ends: now.boot + min_hold, returned: None })
    }

    /// When the turn is over, if it was returned early.
    pub(super) fn ends_turn(&self) -> Option<Duration> {
        self.returned.map(|_| self.ends)
    }

    /// Whether the rows last as long as they must, although the process may exit.
    fn is_written(&self) -> bool {
        self.returned.is_some_and(|rest| rest.is_written)
    }
}

impl Keeper {
    /// Whether the place stays taken if a caller returns this turn now.
    pub(crate) fn outlasts_return(&self, turn: TurnId, boot: Duration) -> bool {
        let present = self.turn.as_ref().filter(|present| present.id == turn);
        let min_hold = present.and_then(|turn| turn.min_hold.as_ref());
        let stays = matches!(&self.place, Place::Held(held) if !held.is_expiring)
            && !SeededBug::MinHoldIgnored.is_planted();
        stays && min_hold.is_some_and(|it| it.returned.is_none() && boot < it.ends)
    }

    /// Whether a turn was returned early, and its place stays taken.
    pub(crate) fn outlasts_turn(&self) -> bool {
        self.min_hold().is_some_and(|min_hold| min_hold.returned.is_some())
    }

    /// Whether the place stays taken for as long as it must even if the process exits.
    pub(crate) fn outlasts_process(&self) -> bool {
        self.min_hold().is_some_and(MinHold::is_written)
    }

    /// The turn was returned early: the rows are to live as long as the place stays taken.
    pub(super) fn begin_rest(&mut self, now: Now) {
        let (Place::Held(held), Some(Turn { min_hold: Some(min_hold), .. })) =
            (&mut self.place, &mut self.turn)
        else {
            return;
        };
        let left = min_hold.ends.saturating_sub(now.boot);
        let terms = LeaseTerms::for_min_hold(left, held.terms.max_clock_skew());
        min_hold.returned = Some(Rest { terms, is_written: false });
        let renew = if SeededBug::RowsShortenedAfterReturn.is_planted() {
            KeeperOutput::Renew { terms }
        } else {
            held.renew_on(now, terms)
        };
        self.outputs.push_back(renew);
    }

    /// The rows were renewed on the terms that they are to have.
    pub(super) fn note_rest(&mut self, now: Now, terms: LeaseTerms, deadline: Duration) {
        let (Place::Held(held), Some(Turn { min_hold: Some(min_hold), .. })) =
            (&mut self.place, &mut self.turn)
        else {
            return;
        };
        let Some(rest) = min_hold.returned.as_mut().filter(|rest| rest.terms == terms) else {
            return;
        };
        // A renewal with the same TTL may have been under way before.
        let lasts = deadline.saturating_sub(now.elapsed) >= min_hold.ends.saturating_sub(now.boot);
        self.outputs.push_back(if lasts {
            rest.is_written = true;
            KeeperOutput::Returned
        } else {
            held.renew_on(now, terms)
        });
    }

    /// Ends a turn that was returned early, once its time is over.
    pub(super) fn end_rest_in_time(&mut self, now: Now) {
        let ends = self.min_hold().and_then(MinHold::ends_turn);
        if ends.is_some_and(|ends| ends <= now.boot) {
            self.end_rest(now);
        }
    }

    /// Ends a turn that was returned early.
    pub(super) fn end_rest(&mut self, now: Now) {
        if !self.outlasts_process() {
            self.outputs.push_back(KeeperOutput::Returned);
        }
        self.finish_turn(now);
    }

    pub(super) fn min_hold(&self) -> Option<&MinHold> {
        self.turn.as_ref()?.min_hold.as_ref()
    }
}

impl Held {
    /// Asks for a renewal on these terms. Whether or not it is ever acknowledged, the rows may last
    /// no longer from now on than it lets them (rule R5).
    pub(super) fn renew_on(&mut self, now: Now, terms: LeaseTerms) -> KeeperOutput {
        self.deadline = self.deadline.min(terms.deadline(now.elapsed));
        self.renewing = Some(terms);
        KeeperOutput::Renew { terms }
    }
}
