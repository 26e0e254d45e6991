//! Tries while a guest has the turn.
//!
//! The guest's `Return` may still be on its way when a caller that already knows of the release
//! tries. The keeper therefore sends `Check` and keeps the try in the line, alone, until the guest
//! answers. Messages of a guest arrive in order, so an earlier `Return` precedes `Confirm`.

use std::time::Duration;

use super::Keeper;
use super::io::KeeperOutput;
use super::line::LineUser;
use crate::core::turns::messages::{GuestId, Now, Response, TurnId};

/// How long the answer is awaited. A guest that tries waits for its keeper longer.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// A try that waits to hear whether the turn is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Try {
    user: LineUser,
    until: Duration,
}

impl Keeper {
    /// Whether only a guest can say if the object is taken.
    pub(super) fn may_check_guest(&self) -> bool {
        let is_staying = self.guest_turn().is_some_and(|guest_turn| !guest_turn.leaves);
        self.line.is_empty() && self.is_serving() && is_staying
    }

    /// Asks the guest whether it has the turn, for one that tries and stands in the line.
    pub(super) fn check_guest(&mut self, now: Now, user: LineUser) {
        if let Some(guest_turn) = self.guest_turn_mut() {
            guest_turn.checks += 1;
            guest_turn.tried = Some(Try { user, until: now.boot + ANSWER_MAX });
            let (turn, number) = (guest_turn.granted.turn, guest_turn.checks);
            let guest = guest_turn.guest;
            self.send(guest, Response::Check { turn, number });
        }
    }

    /// A guest has a turn.
    pub(super) fn confirmed(&mut self, guest: GuestId, turn: TurnId, number: u64) {
        let is_answer = self.guest_turn().is_some_and(|guest_turn| {
            guest_turn.guest == guest
                && guest_turn.granted.turn == turn
                && guest_turn.checks == number
        });
        if is_answer {
            self.refuse_try();
        }
    }

    /// When the answer is no longer awaited.
    pub(super) fn try_deadline(&self) -> Option<Duration> {
        Some(self.guest_turn()?.tried?.until)
    }

    pub(super) fn end_try_in_time(&mut self, now: Now) {
        if self.try_deadline().is_some_and(|until| until <= now.boot) {
            self.refuse_try();
        }
    }

    fn refuse_try(&mut self) {
        let tried = self.guest_turn_mut().and_then(|guest_turn| guest_turn.tried.take());
        match tried.map(|tried| tried.user) {
            Some(LineUser::Caller(caller, _)) if self.line.remove_caller(caller) => {
                self.outputs.push_back(KeeperOutput::Taken { caller });
            }
            Some(LineUser::Guest(guest)) => self.send_elsewhere(guest),
            // It has left.
            Some(LineUser::Caller(..)) | None => {}
        }
    }
}
