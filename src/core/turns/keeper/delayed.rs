//! Guests that return a turn and ask for the next one at once.
//!
//! Their next grant says all that was to be said, so answers before it are delayed for a moment, as
//! TCP delays acknowledgments: three messages for a turn instead of five. And they keep their
//! position: a request takes the time of a message, in which callers of the keeper's own process
//! could have several turns.

use std::collections::VecDeque;
use std::time::Duration;

use super::line::LineUser;
use super::{Keeper, Place, is_left_to_outsiders};
use crate::core::turns::messages::{GuestId, Now, Response, TurnId};

/// How long answers are delayed. A guest waits longer before it repeats itself, and for the answer
/// of a keeper that it knows.
const DELAY: Duration = Duration::from_millis(10);

/// A guest that came back within this time is expected to do so again, and callers wait for it as
/// long.
const COMES_BACK: Duration = Duration::from_millis(1);

/// The delayed answers, the first that is due first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Delayed(VecDeque<Owed>);

/// What is owed to a guest that returned a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owed {
    due: Duration,
    guest: GuestId,
    turn: TurnId,
    /// It has asked again, and is to hear that it stands in the line.
    is_asking: bool,
    /// Its position in the line, if it comes back by then.
    position: u64,
    back_by: Duration,
    /// Callers behind that position wait for it.
    is_expected: bool,
}

impl Delayed {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A guest has a turn: all before it is answered.
    pub(super) fn granted(&mut self, guest: GuestId) {
        self.0.retain(|owed| owed.guest != guest);
    }

    /// The guest that callers at this position wait for, if they do: until when.
    fn expected(&self, position: u64) -> Option<Duration> {
        let ahead = self.0.iter().filter(|owed| owed.is_expected && owed.position < position);
        ahead.map(|owed| owed.back_by).min()
    }
}

impl Keeper {
    /// When a delayed answer is due, or callers have waited for a guest for long enough.
    pub(super) fn delayed_deadline(&self) -> Option<Duration> {
        let due = self.delayed.0.front().map(|owed| owed.due);
        due.into_iter().chain(self.expects_guest_until()).min()
    }

    /// A guest has returned its turn.
    pub(super) fn delay_returned(&mut self, now: Now, guest: GuestId, turn: TurnId) {
        self.delayed.0.push_back(Owed {
            due: now.boot + DELAY,
            guest,
            turn,
            is_asking: false,
            position: self.line.reserve(),
            back_by: now.boot + COMES_BACK,
            is_expected: self.finished.get(&guest).is_some_and(|finished| finished.comes_back),
        });
    }

    /// A guest asks: its position, if it has returned a turn just before.
    pub(super) fn comes_back(&mut self, now: Now, guest: GuestId) -> Option<u64> {
        let owed = self.delayed.0.iter_mut().find(|owed| owed.guest == guest)?;
        owed.is_expected = false;
        if std::mem::replace(&mut owed.is_asking, true) {
            return None;
        }
        let position = (now.boot <= owed.back_by).then_some(owed.position);
        if let Some(finished) = self.finished.get_mut(&guest) {
            finished.comes_back = position.is_some();
        }
        position
    }

    /// Whether a guest hears later that it stands in the line.
    pub(super) fn is_answered_later(&self, guest: GuestId) -> bool {
        self.delayed.0.iter().any(|owed| owed.guest == guest)
    }

    /// Until when the first in the line waits for a guest that is about to come back.
    fn expects_guest_until(&self) -> Option<Duration> {
        let (position, first) = self.line.first_with_position()?;
        let is_free = self.turn.is_none() && self.shared_turns.is_empty();
        let is_caller = matches!(first, LineUser::Caller(..));
        self.delayed.expected(position).filter(|_| is_free && is_caller)
    }

    /// Whether the first in the line waits for a guest that is about to come back.
    pub(super) fn expects_guest(&self, now: Now) -> bool {
        let is_over = |held| is_left_to_outsiders(held, now) || held.is_expiring;
        let gives_turns = matches!(&self.place, Place::Held(held) if !is_over(held));
        gives_turns && !self.is_closing && self.expects_guest_until().is_some()
    }

    /// Guests that have not come back are no longer expected.
    pub(super) fn end_expectations(&mut self, now: Now) {
        for owed in self.delayed.0.iter_mut().filter(|owed| owed.back_by <= now.boot) {
            if std::mem::take(&mut owed.is_expected)
                && let Some(finished) = self.finished.get_mut(&owed.guest)
            {
                finished.comes_back = false;
            }
        }
    }

    /// Gives the answers that were delayed for long enough; all of them if no turn will follow.
    pub(super) fn answer_delayed(&mut self, now: Now) {
        let gives_turns = matches!(&self.place, Place::Held(held) if !held.is_expiring);
        while let Some(owed) = self.delayed.0.front()
            && (owed.due <= now.boot || !gives_turns || self.is_closing)
        {
            let Owed { guest, turn, is_asking, .. } = *owed;
            self.delayed.0.pop_front();
            self.send(guest, Response::Returned { turn });
            let waiting = self.line.guest(guest).filter(|_| is_asking);
            if let Some(request) = waiting.map(|waiting| waiting.request) {
                self.send_queued(guest, request);
            }
        }
    }

    /// Tells a guest that it stands in the line.
    pub(super) fn send_queued(&mut self, guest: GuestId, request: u64) {
        let ahead = self.line.ahead_of(guest);
        self.send(guest, Response::Queued { request, ahead });
    }
}
