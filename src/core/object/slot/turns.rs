//! What the keeper asks for: turns for callers and guests, and a place in the table for all of
//! them.

use std::sync::Arc;

use super::Slot;
use super::holders::Holder;
use crate::core::bakery::{
    Acquire, Assignment, ContenderInput, LeaseTerms, Loss as PlaceLoss, Mode, Patience,
};
use crate::core::object::io::{
    Caller, CallerId, Granted, HolderEvent, Loss, Now, Origin, Output, Refusal, Reply, Report,
};
use crate::core::turns::{GuestId, GuestLoss, KeeperInput, KeeperOutput, Response, TurnId};

impl Slot {
    pub(super) fn keeper_asks(&mut self, now: Now, output: KeeperOutput) {
        match output {
            KeeperOutput::Acquire { .. } => self.acquire_place(now),
            KeeperOutput::Taken { caller } => {
                if self.callers.take(caller).is_some() {
                    self.refuse(caller, Refusal::Taken);
                }
            }
            KeeperOutput::Grant { caller, turn } => self.grant(now, caller, turn),
            KeeperOutput::Renew { terms } => self.renew_on(now, terms),
            KeeperOutput::Returned => self.stays_taken(now),
            KeeperOutput::Look => {
                self.outputs.push_back(Output::ReadOneReplica { slot: self.id.slot });
            }
            KeeperOutput::Token { turn, value, .. } => self.token_issued(now, turn, value),
            KeeperOutput::IssueBlock { .. } => self.issue_block(),
            KeeperOutput::Send { guest, response } => self.answer(now, guest, response),
            KeeperOutput::Keep => {
                self.outputs.push_back(Output::Report(Report::Kept));
                self.contender.handle(now.of_contender(), ContenderInput::Rest);
            }
            KeeperOutput::KeptEnds(end) => {
                self.outputs.push_back(Output::Report(Report::KeptEnds(end)));
            }
            KeeperOutput::Release => {
                self.leave_keeper(now);
                self.contender.handle(now.of_contender(), ContenderInput::Release);
            }
        }
    }

    // A place.

    /// Acquires a place through the table, for the first in the line.
    pub(super) fn acquire_in_table(&mut self, now: Now) {
        self.note_wanted();
        self.remote_turns.note_announced(now);
        let wanted = self.wanted.clone().expect("a caller began the line");
        self.contender.handle(now.of_contender(), ContenderInput::Acquire(wanted));
    }

    /// Notes how the first in the line wants the place. A guest takes it on the terms of the last
    /// caller: guests join a line that a caller began, and that one may have left since.
    pub(super) fn note_wanted(&mut self) {
        let first = self.first().map(|caller| caller.acquire.clone());
        // A guest waits and holds alone, whatever the caller before it wanted.
        let for_guest = |wanted| Acquire {
            mode: Mode::Exclusive,
            patience: Patience::Wait,
            renew: true,
            gives_up: None,
            ..wanted
        };
        self.wanted = first.or_else(|| self.wanted.take().map(for_guest));
    }

    /// Renews the place before the next turn, whether or not the last one was renewed.
    fn renew_on(&mut self, now: Now, terms: LeaseTerms) {
        if let Some(owner) = self.contender.held_claim().map(|claim| claim.owner.clone()) {
            self.reassign(
                now,
                Assignment { terms, renew: true, owner, shares: false, at_once: false },
            );
            self.contender.handle(now.of_contender(), ContenderInput::Renew);
        }
    }

    pub(super) fn reassign(&mut self, now: Now, assignment: Assignment) {
        self.contender.handle(now.of_contender(), ContenderInput::Reassign(assignment));
    }

    /// The place needs no more writes until its `min_hold` is over, or that is over. Without the
    /// write, the release counts like any other: at once if another turn follows, otherwise once
    /// the rows are deleted.
    fn stays_taken(&mut self, now: Now) {
        if self.keeper.outlasts_process()
            && let Some(claim) = self.contender.held_claim()
        {
            let (terms, owner) = (self.contender.held_terms(), claim.owner.clone());
            self.reassign(
                now,
                Assignment { terms, renew: false, owner, shares: false, at_once: false },
            );
        }
        if !self.keeper.is_releasing() {
            self.releases.answer(&Reply::Returned, &mut self.outputs);
        }
    }

    // Turns of callers.

    /// Gives a turn to a caller. If it has left, the turn is over.
    fn grant(&mut self, now: Now, caller: CallerId, turn: TurnId) {
        match self.callers.take(caller) {
            Some(caller) => self.granted(now, &caller, turn),
            None => self.keeper.handle(now.of_turns(), KeeperInput::Returned { turn }),
        }
    }

    fn granted(&mut self, now: Now, caller: &Caller, turn: TurnId) {
        let Caller { number, hold_terms, asked, .. } = *caller;
        let Acquire { mode, terms, renew, .. } = caller.acquire;
        let owner = &caller.acquire.owner;
        let sublease = self.remote_turns.sublease(turn);
        let (lease, expiry) = match sublease {
            Some(sublease) => (sublease, Loss::Guest(GuestLoss::KeeperUnreachable)),
            None => {
                let lease = self.contender.held_lease();
                let lease = lease.expect("turns are given of a held place");
                (lease, Loss::Place(PlaceLoss::Expired))
            }
        };
        let limit = hold_terms.map(|terms| terms.limit(now.elapsed));
        self.outputs.push_back(Output::Granted(Box::new(Granted {
            caller: number,
            turn,
            granted: now.elapsed,
            lease,
            limit,
            origin: self.origin(turn),
            claim: self.contender.held_claim().cloned(),
            waited: now.elapsed.saturating_sub(asked),
            waiting: self.keeper.line().len(),
        })));
        self.holders.insert(Holder {
            turn,
            owner: Arc::clone(owner),
            renews: renew,
            lease,
            expiry,
            limit,
            expiring: None,
            uncollected_until: Some(lease.deadline()),
            clocks_differ: self.clocks_differ,
            warned: false,
            confirming: Vec::new(),
        });
        if sublease.is_some() {
            return;
        }
        if mode == Mode::Shared {
            self.assign_to_sharers(now);
        } else {
            let owner = Arc::clone(owner);
            self.reassign(now, Assignment { terms, renew, owner, shares: false, at_once: false });
        }
    }

    /// Where a turn came from.
    fn origin(&self, turn: TurnId) -> Origin {
        if self.remote_turns.sublease(turn).is_some() {
            Origin::Keeper
        } else if turn.number == 1 {
            Origin::Table
        } else {
            Origin::Turn
        }
    }

    /// The place is kept as long as one of those that share it renews it, and others see the name
    /// of the last one.
    fn assign_to_sharers(&mut self, now: Now) {
        if self.contender.held_claim().is_none() {
            return;
        }
        if let Some(last) = self.holders.last() {
            let (terms, owner) = (self.contender.held_terms(), last.owner.clone());
            let renew = self.holders.any_renews();
            self.reassign(now, Assignment { terms, renew, owner, shares: false, at_once: false });
        }
    }

    // Turns of guests.

    /// Answers a guest. While it has its turn the place is renewed, whatever the caller before it
    /// wanted, and others see its name.
    fn answer(&mut self, now: Now, guest: GuestId, response: Response) {
        if let Response::Granted(granted) = response
            && self.counted_sublease.replace(granted.turn) != Some(granted.turn)
        {
            let waiting = self.keeper.line().len();
            self.outputs.push_back(Output::Report(Report::Lent { waiting }));
            if let Some(claim) = self.contender.held_claim() {
                let name = self.names.of(guest);
                let owner = name.unwrap_or_else(|| Arc::clone(&claim.owner));
                let terms = self.contender.held_terms();
                self.reassign(
                    now,
                    Assignment { terms, renew: true, owner, shares: false, at_once: false },
                );
            }
        }
        let is_queued = matches!(response, Response::Queued { .. });
        let user = if is_queued { self.user() } else { None };
        self.outputs.push_back(Output::Answer { guest, response, user });
    }

    // The end of turns.

    /// Returns a turn to the keeper, if its holder is still among the holders.
    pub(super) fn end_turn(&mut self, now: Now, turn: TurnId) {
        if let Some(holder) = self.holders.take(turn) {
            self.token_requests.clear(&mut self.outputs);
            holder.end(&mut self.outputs);
            self.assign_to_sharers(now);
            self.keeper.handle(now.of_turns(), KeeperInput::Returned { turn });
        }
    }

    /// Ends a turn as lost, but not its place.
    pub(super) fn lose_turn(&mut self, now: Now, turn: TurnId, loss: Loss) {
        let event = HolderEvent::Lost(loss);
        self.outputs.push_back(Output::Holder { turn, event });
        self.end_turn(now, turn);
    }

    /// A turn has ended as lost. By its hold limit, or its lease while others renew the place, it
    /// leaves the place to them and to the next ones.
    pub(super) fn turn_is_lost(&mut self, now: Now, turn: TurnId, loss: Loss) {
        let is_kept = self.contender.held_lease().is_some_and(|it| it.is_valid(now.elapsed));
        let is_expired = loss == Loss::Place(PlaceLoss::Expired);
        if loss == Loss::HoldLimit || (is_expired && is_kept) {
            self.lose_turn(now, turn, loss);
        } else {
            self.place_is_lost(now, &loss);
        }
    }

    /// The place is lost, and with it all turns.
    pub(super) fn place_is_lost(&mut self, now: Now, loss: &Loss) {
        if !self.holders.is_empty() {
            self.lose_all(loss);
            self.keeper.handle(now.of_turns(), KeeperInput::Lost);
        }
    }

    /// All turns of the place are lost.
    pub(super) fn lose_all(&mut self, loss: &Loss) {
        self.token_requests.clear(&mut self.outputs);
        if self.keeper.outlasts_turn() {
            self.releases.answer(&Reply::Lost(loss.clone()), &mut self.outputs);
        }
        for holder in self.holders.take_all() {
            holder.lose(loss.clone(), &mut self.outputs);
        }
    }
}
