//! What the guard of a turn asks for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Slot;
use super::holders::Wanted;
use crate::core::bakery::{Assignment, ContenderInput, LeaseTerms};
use crate::core::object::io::{HolderRequest, Loss, Need, Now, Output, Reply, RequestId};
use crate::core::turns::{KeeperInput, TurnId};

/// Answers a request of a guard whose turn is over: the guard knows why.
pub(in crate::core::object) fn answer_over(
    request: &HolderRequest,
    outputs: &mut VecDeque<Output>,
) {
    let request = match request {
        HolderRequest::Return { request } => *request,
        HolderRequest::Confirm { request, .. }
        | HolderRequest::Revise { request, .. }
        | HolderRequest::Share { request }
        | HolderRequest::IssueToken { request } => Some(*request),
        HolderRequest::Lost | HolderRequest::RowsLost(_) | HolderRequest::Uncollected => None,
    };
    outputs.extend(request.map(|request| Output::Reply { request, reply: Reply::Over }));
}

impl Slot {
    /// Handles a request of a guard. If its turn is over, the guard knows why.
    pub(in crate::core::object) fn holder_request(
        &mut self,
        now: Now,
        turn: TurnId,
        request: HolderRequest,
    ) {
        match request {
            HolderRequest::Return { request } => self.return_turn(now, turn, request),
            HolderRequest::Lost => self.lost_by_time(now, turn),
            HolderRequest::RowsLost(loss) => {
                if self.holders.get(turn).is_some() {
                    self.place_is_lost(now, &Loss::Place(loss));
                }
            }
            HolderRequest::Uncollected => {
                // Its future may never be polled again, and others wait.
                self.lost_by_time(now, turn);
            }
            HolderRequest::Confirm { need, request } => self.confirm(now, turn, need, request),
            HolderRequest::Revise { terms, owner, request } => {
                self.revise(now, turn, (terms, owner), request);
            }
            HolderRequest::Share { request } => self.share(now, turn, request),
            HolderRequest::IssueToken { request } => self.issue_token(now, turn, request),
        }
        self.settle(now);
    }

    /// The turn is over. If another turn follows, or is being prepared, the lock is released as far
    /// as its caller is concerned; otherwise the rows are deleted first, or written once more.
    fn return_turn(&mut self, now: Now, turn: TurnId, request: Option<RequestId>) {
        let loss = self.holders.get(turn).map(|holder| holder.loss(now.elapsed));
        match loss {
            // Others must not have a place that is lost.
            Some(Some(loss)) => self.turn_is_lost(now, turn, loss),
            Some(None) => {
                self.end_turn(now, turn);
                self.settle(now);
                if let Some(request) = request {
                    if self.keeper.outlasts_turn() || self.keeper.is_releasing() {
                        self.releases.push(now.elapsed, request);
                    } else {
                        self.outputs.push_back(Output::Reply { request, reply: Reply::Returned });
                    }
                }
                return;
            }
            None => {}
        }
        if let Some(request) = request {
            self.outputs.push_back(Output::Reply { request, reply: Reply::Over });
        }
    }

    /// The guard knows that the turn is over, perhaps by a later look at the clock than the one
    /// that is handled here.
    fn lost_by_time(&mut self, now: Now, turn: TurnId) {
        if let Some(holder) = self.holders.get(turn) {
            let loss = holder.loss(now.elapsed).unwrap_or_else(|| holder.expiry.clone());
            self.turn_is_lost(now, turn, loss);
        }
    }

    /// Writes the rows of the place on longer terms, or with another text. Shorter terms count once
    /// the next caller has the place: a holder's lease never becomes shorter.
    fn revise(
        &mut self,
        now: Now,
        turn: TurnId,
        (terms, owner): (Option<LeaseTerms>, Option<Arc<str>>),
        request: RequestId,
    ) {
        let Some(renews) = self.holders.with(turn, |holder| holder.is_renewed()) else {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Over });
        };
        let is_own = self.remote_turns.sublease(turn).is_none();
        let Some(claim) = self.contender.held_claim().filter(|_| is_own && renews) else {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Unchangeable });
        };
        let shown = Arc::clone(&claim.owner);
        self.holders.with(turn, |holder| {
            holder.owner = owner.unwrap_or_else(|| Arc::clone(&holder.owner));
        });
        // Of several that share the place, others see the last one.
        let last = self.holders.last().filter(|last| last.turn == turn);
        let owner = last.map_or(shown, |last| Arc::clone(&last.owner));
        let held = self.contender.held_terms();
        let terms = terms.filter(|terms| terms.ttl() > held.ttl()).unwrap_or(held);
        let renew = self.holders.any_renews();
        self.reassign(now, Assignment { terms, renew, owner, shares: false, at_once: true });
        self.confirm(now, turn, Need::Lease(Duration::ZERO), request);
    }

    /// The holder shares the place from now on, also if its rows can't be written. Other callers
    /// join at once, other clients once they read that.
    fn share(&mut self, now: Now, turn: TurnId, request: RequestId) {
        let Some(renews) = self.holders.with(turn, |holder| holder.is_renewed()) else {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Over });
        };
        let can_share = renews && self.keeper.can_share(turn);
        let Some(claim) = self.contender.held_claim().filter(|_| can_share) else {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Unchangeable });
        };
        let (owner, terms) = (Arc::clone(&claim.owner), self.contender.held_terms());
        self.token_requests.refuse(&mut self.outputs);
        let renew = self.holders.any_renews();
        self.reassign(now, Assignment { terms, renew, owner, shares: true, at_once: true });
        self.confirm(now, turn, Need::Lease(Duration::ZERO), request);
        self.keeper.handle(now.of_turns(), KeeperInput::Shares { turn });
    }

    fn confirm(&mut self, now: Now, turn: TurnId, need: Need, request: RequestId) {
        let outputs = &mut self.outputs;
        let wanted =
            self.holders.with(turn, |holder| holder.confirm(now.elapsed, need, request, outputs));
        let Some(wanted) = wanted else {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Over });
        };
        match wanted {
            None => {}
            Some(_) if self.renew_sublease(now, turn) => {}
            Some(Wanted::Renewal) => {
                self.contender.handle(now.of_contender(), ContenderInput::Renew);
            }
            Some(Wanted::Read) => {
                self.contender.handle(now.of_contender(), ContenderInput::Confirm);
            }
        }
    }
}
