//! What the keeper asks for: turns for callers, and a place in the table for all of them.

use std::sync::Arc;

use tokio::runtime::Handle;
use tracing::{Instrument, debug};

use super::holder::Holder;
use super::{Runner, Step, operations};
use crate::core::bakery::{Acquire, Assignment, Input, LeaseTerms, Mode, Patience};
use crate::core::turns::{GuestId, KeeperInput, KeeperOutput, Response, TurnId};
use crate::engine::drawing::Fence;
use crate::engine::grant::{Grant, Requests};
use crate::engine::guard::{LockGuard, Tokens};
use crate::engine::tally::Origin;
use crate::engine::waiters::Caller;
use crate::error::{ExpiringReason, LostReason};

impl Runner {
    /// Does what the keeper asks for.
    pub(super) fn keeper_asks(&mut self, output: KeeperOutput) {
        match output {
            KeeperOutput::Acquire { .. } => self.acquire_place(),
            KeeperOutput::Taken { caller } => {
                if let Some(caller) = self.callers.take(caller) {
                    caller.answer(Ok(None));
                }
            }
            KeeperOutput::Grant { caller, turn } => self.grant(caller, turn),
            KeeperOutput::Renew { terms } => self.renew_on(terms),
            KeeperOutput::Returned => self.returned(),
            KeeperOutput::Glance => self.start_glance(),
            KeeperOutput::Token { turn, value, .. } => self.token_drawn(turn, value),
            KeeperOutput::DrawBlock { round } => self.draw_block(round),
            KeeperOutput::Send { guest, response } => self.answer(guest, response),
            KeeperOutput::Release => {
                self.stop_borrowing();
                self.steps.push_back(Step::Contender(Input::Release));
            }
        }
    }

    /// Acquires a place through the table, for the first in the line.
    pub(super) fn acquire_in_table(&mut self) {
        self.note_wanted();
        let wanted = self.wanted.clone().expect("a caller began the line");
        self.steps.push_back(Step::Contender(Input::Acquire(wanted)));
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

    /// Answers a guest. While it has its turn the place is renewed, whatever the caller before it
    /// wanted, and others see its name.
    fn answer(&mut self, guest: GuestId, response: Response) {
        let Some(network) = &self.network else {
            return;
        };
        if let Response::Granted(granted) = response
            && self.lent.replace(granted.turn) != Some(granted.turn)
        {
            self.shared.tally.lent();
            self.shared.tally.passed_on(self.keeper.line().len());
        }
        if let (Response::Granted(_), Some(claim)) = (response, self.contender.held_claim()) {
            let owner = network.owner(guest).unwrap_or_else(|| claim.owner.clone());
            let assignment = Assignment { terms: self.contender.held_terms(), renew: true, owner };
            self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
        }
        let user = if let Response::Queued { .. } = response { self.user() } else { None };
        network.answer(guest, network.key(&self.object), response, user);
    }

    /// Gives a turn to a caller. If it has left, the turn is over.
    fn grant(&mut self, caller: u64, turn: TurnId) {
        let granted = self.callers.take(caller).is_some_and(|caller| self.granted(caller, turn));
        if !granted {
            self.steps.push_back(Step::Keeper(KeeperInput::Returned { turn }));
        }
    }

    fn granted(&mut self, caller: Caller, turn: TurnId) -> bool {
        let Caller { acquire, hold_terms, asked, reply, span, .. } = caller;
        let Acquire { mode, terms, renew, owner, .. } = acquire;
        let lease = match self.borrowing.sublease(turn) {
            Some(sublease) => (sublease, LostReason::KeeperUnreachable),
            None => {
                let lease = self.contender.held_lease();
                (lease.expect("turns are given of a held place"), LostReason::Expired)
            }
        };
        let (name, clock) = (Arc::clone(&self.object), Arc::clone(&self.shared.clock));
        let tally = Arc::clone(&self.shared.tally);
        let waited = self.shared.clock.elapsed().saturating_sub(asked);
        tally.granted(self.origin(turn), waited);
        tally.passed_on(self.keeper.line().len());
        let grant = Arc::new(Grant::new(name, span.clone(), clock, lease, hold_terms, tally));
        let tokens = match self.contender.held_claim() {
            Some(claim) if self.network.is_none() || mode != Mode::Exclusive => {
                let (shared, skew) = (Arc::clone(&self.shared), terms.max_clock_skew());
                Tokens::Own(Fence::new(shared, Arc::clone(&grant), claim.clone(), skew))
            }
            // Guests draw tokens of the same place, and theirs and ours have to grow together.
            Some(_) | None => {
                let (limit, runtime) = (self.shared.acquire_timeout, Handle::current());
                Tokens::OfKeeper { limit, runtime }
            }
        };
        let requests = Requests::of(turn, self.requests_sender.clone());
        let guard = LockGuard::new(Arc::clone(&grant), tokens, requests);
        debug!(parent: &span, turn = turn.number, ?waited, "held");
        // A guard that finds no caller is dropped.
        let is_taken = reply.send(Ok(Some(guard))).is_ok();
        if is_taken {
            self.holders.insert(turn, Holder::new(grant, owner.clone(), renew));
            if self.borrowing.sublease(turn).is_some() {
                let user = self.own(owner);
                self.borrowing.note_own(user);
            } else if mode == Mode::Shared {
                self.assign_to_sharers();
            } else {
                let assignment = Assignment { terms, renew, owner };
                self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
            }
        }
        is_taken
    }

    /// Where a turn came from.
    fn origin(&self, turn: TurnId) -> Origin {
        if self.borrowing.sublease(turn).is_some() {
            Origin::Keeper
        } else if turn.number == 1 {
            Origin::Table
        } else {
            Origin::Turn
        }
    }

    /// The place is kept as long as one of those that share it renews it, and others see the name
    /// of the last one.
    fn assign_to_sharers(&mut self) {
        if let Some(last) = self.holders.last() {
            let (terms, owner) = (self.contender.held_terms(), last.owner.clone());
            let assignment = Assignment { terms, renew: self.holders.any_renews(), owner };
            self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
        }
    }

    /// Renews the place before the next turn, whether or not the last one was renewed.
    fn renew_on(&mut self, terms: LeaseTerms) {
        let owner = self.contender.held_claim().map(|claim| claim.owner.clone());
        let owner = owner.expect("a place is renewed while it is held");
        let assignment = Assignment { terms, renew: true, owner };
        self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
        self.steps.push_back(Step::Contender(Input::Renew));
    }

    fn start_glance(&mut self) {
        let claim = self.contender.held_claim().expect("a keeper looks while it has a place");
        let place = (claim.contender, claim.mode);
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let glance = operations::glance(shared, object, place).instrument(self.span().clone());
        self.glance = Some(Box::pin(glance));
    }

    /// Returns a turn to the keeper; its holder is no longer among the holders.
    pub(super) fn end_turn(&mut self, turn: TurnId) {
        self.draws.clear();
        if let Some(holder) = self.holders.take(turn) {
            if self.keeper.outlasts_return(turn, self.shared.clock.since_boot()) {
                self.returned_early = Some(holder.grant);
            }
            self.assign_to_sharers();
            self.tell_keeper(KeeperInput::Returned { turn });
        }
    }

    /// Ends a turn as lost, but not its place.
    pub(super) fn lose_turn(&mut self, turn: TurnId, reason: LostReason) {
        self.holders.with(turn, |holder| holder.lose(reason));
        self.end_turn(turn);
    }

    /// A turn has ended as lost. By its hold limit, or its lease while others renew the place, it
    /// leaves the place to them and to the next ones.
    pub(super) fn turn_is_lost(&mut self, turn: TurnId, reason: LostReason) {
        let now = self.shared.clock.elapsed();
        let is_kept = self.contender.held_lease().is_some_and(|lease| lease.is_valid(now));
        let leaves_place =
            reason == LostReason::HoldLimit || (reason == LostReason::Expired && is_kept);
        if !leaves_place {
            return self.place_is_lost(&reason);
        }
        self.lose_turn(turn, reason);
    }

    /// The place is lost, and with it all turns.
    pub(super) fn place_is_lost(&mut self, reason: &LostReason) {
        if !self.holders.is_empty() {
            self.lose_all(reason);
            self.tell_keeper(KeeperInput::Lost);
        }
    }

    /// All holders are to finish: their leases are not renewed any more.
    pub(super) fn expire_all(&mut self, reason: &ExpiringReason) {
        self.holders.for_each(|holder| holder.expire(reason));
    }

    /// Tells all guards that their turns are lost.
    pub(super) fn lose_all(&mut self, reason: &LostReason) {
        self.draws.clear();
        self.lose_returned(reason);
        for mut holder in self.holders.take_all() {
            holder.lose(reason.clone());
        }
    }
}
