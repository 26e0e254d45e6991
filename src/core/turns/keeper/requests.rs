//! What guests ask of a keeper.

use std::time::Duration;

use super::line::{LineUser, Waiter};
use super::{Keeper, Place, Turn};
use crate::core::bakery::SeededBug;
use crate::core::turns::messages::{
    Extended, GuestId, Now, Request, Response, TimedRequest, TurnId,
};
use crate::core::turns::sublease::{
    SUBLEASE_MAX, Sublease, can_give, needed_length, needed_of_place,
};

impl Keeper {
    pub(super) fn request(&mut self, now: Now, guest: GuestId, request: TimedRequest) {
        let TimedRequest { sent, request } = request;
        match request {
            Request::Ask { request, ttl, is_try, least } => {
                let waiting = Waiter { request, ttl, least, sent, heard: now.boot };
                self.ask(now, guest, waiting, is_try);
            }
            Request::Withdraw { request } => self.withdraw(now, guest, request),
            Request::Renew { turn, least } => self.renew(now, guest, sent, (turn, least)),
            Request::IssueToken { turn, number } => self.issue_token(Some(guest), turn, number),
            Request::Return { turn } => {
                if self.end_turn(now, turn, Some(guest)) {
                    self.delay_returned(now, guest, turn);
                } else {
                    // The answer to the first one may be lost.
                    self.send(guest, Response::Returned { turn });
                }
            }
            Request::Confirm { turn, number } => self.confirmed(guest, turn, number),
        }
    }

    fn ask(&mut self, now: Now, guest: GuestId, asking: Waiter, is_try: bool) {
        let Waiter { request, least, sent, heard, .. } = asking;
        let is_late = self.finished.get(&guest).is_some_and(|last| request <= last.request);
        if is_late && !SeededBug::FinishedRequestsCount.is_planted() {
            return;
        }
        if let Some(guest_turn) = self.guest_turn()
            && guest_turn.guest == guest
            && guest_turn.granted.request >= request
        {
            // Its answer may be lost. An older request is over.
            return self.grant_again(guest, sent, request);
        }
        if let Some(waiting) = self.line.guest(guest) {
            if waiting.request > request {
                return;
            }
            waiting.sent = waiting.sent.max(sent);
            waiting.heard = heard;
            if waiting.request < request {
                // The guest withdrew the earlier one.
                self.line.remove_guest(guest);
            }
        }
        let is_taken = is_try && !(self.is_kept() || self.line.has_guest(guest));
        let checks_guest = is_taken && self.may_check_guest();
        let is_in_vain = is_taken && !checks_guest;
        if is_in_vain || !self.is_serving() || !self.can_give(least) {
            self.line.remove_guest(guest);
            return self.send(guest, Response::Elsewhere { request });
        }
        if self.line.guest(guest).is_none() {
            let position = self.comes_back(now, guest);
            self.line.push_guest(guest, asking, position);
        }
        if checks_guest {
            self.check_guest(now, LineUser::Guest(guest));
        } else if !is_try && !self.is_answered_later(guest) {
            self.send_queued(guest, request);
        }
    }

    fn grant_again(&mut self, guest: GuestId, sent: Duration, request: u64) {
        if let Some(Turn { guest_turn: Some(guest_turn), .. }) = &mut self.turn
            && guest_turn.granted.request == request
        {
            if SeededBug::EchoRefreshed.is_planted() {
                guest_turn.granted.echo = guest_turn.granted.echo.max(sent);
            }
            let granted = guest_turn.granted;
            self.send(guest, Response::Granted(granted));
        }
    }

    fn withdraw(&mut self, now: Now, guest: GuestId, request: u64) {
        if self.line.guest(guest).is_some_and(|waiting| waiting.request <= request) {
            self.line.remove_guest(guest);
        }
        let granted = self.guest_turn().filter(|guest_turn| guest_turn.guest == guest);
        if granted.is_some_and(|guest_turn| guest_turn.granted.request == request) {
            self.finish_turn(now);
        }
        self.finish_request(guest, request);
    }

    fn renew(
        &mut self,
        now: Now,
        guest: GuestId,
        sent: Duration,
        (turn, least): (TurnId, Duration),
    ) {
        let held = match &mut self.place {
            Place::Held(held) => Some(held),
            Place::None
            | Place::Wanted(_)
            | Place::GuestTurn { .. }
            | Place::Lost
            | Place::Releasing => None,
        };
        let Some(Turn { guest_turn: Some(guest_turn), .. }) = self
            .turn
            .as_mut()
            .filter(|present| present.id == turn && present.guest() == Some(guest))
        else {
            // Of an earlier keeper at this address, or one that is over.
            return self.send(guest, Response::Lost { turn });
        };
        guest_turn.repeat = None;
        let Some(held) = held else {
            return self.send(guest, Response::Lost { turn });
        };
        if guest_turn.leaves {
            return self.send(guest, Response::Leave { turn });
        }
        let extended = match guest_turn.extended {
            Some(extended) if extended.echo > sent => return,
            Some(extended) if extended.echo == sent => extended,
            Some(_) | None => {
                let is_short = held.deadline < now.elapsed + needed_of_place(least);
                if is_short && !held.is_expiring && can_give(held.terms.lease(), least) {
                    if held.renewing.is_some() {
                        // What there was, it had before.
                        guest_turn.owed = Some((sent, least));
                        return;
                    }
                    self.outputs.push_back(held.renew_on(now, held.terms));
                }
                let usual = guest_turn.ttl.min(SUBLEASE_MAX);
                let wanted = usual.max(needed_length(least));
                let Sublease { length, ends } = Sublease::until(held.deadline, wanted, now);
                guest_turn.ends = guest_turn.ends.max(ends);
                Extended { turn, echo: sent, length }
            }
        };
        guest_turn.extended = Some(extended);
        self.send(guest, Response::Extended(extended));
    }

    /// The place was renewed: extends the turn of a guest that waits for that.
    pub(super) fn renew_owed(&mut self, now: Now) {
        if let Some(Turn { id, guest_turn: Some(guest_turn), .. }) = &mut self.turn
            && let Some((sent, least)) = guest_turn.owed.take()
        {
            let (turn, guest) = (*id, guest_turn.guest);
            self.renew(now, guest, sent, (turn, least));
        }
    }

    /// Whether the place can give a guest a sublease of some length, if there is one.
    pub(super) fn can_give(&self, least: Duration) -> bool {
        match &self.place {
            Place::Held(held) => can_give(held.usual_terms.lease(), least),
            Place::None
            | Place::Wanted(_)
            | Place::GuestTurn { .. }
            | Place::Lost
            | Place::Releasing => true,
        }
    }

    /// Whether guests may join the line: a place is there, or comes back for the line.
    pub(super) fn is_serving(&self) -> bool {
        !self.is_closing
            && match &self.place {
                Place::Held(held) => !held.is_expiring,
                Place::Wanted(wanted) => !wanted.is_asking && !self.line.is_empty(),
                Place::Releasing => !self.line.is_empty(),
                Place::None | Place::GuestTurn { .. } | Place::Lost => false,
            }
    }
}
