//! What the keeper asks for: turns for callers, and a place in the table for all of them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{Instrument, debug};
use uuid::Uuid;

use super::holder::Holder;
use super::{Runner, Step, operations};
use crate::engine::drawing::Fence;
use crate::engine::grant::Grant;
use crate::engine::guard::{LockGuard, Tokens};
use crate::engine::waiters::Caller;
use crate::error::LostReason;
use crate::peers::{GuestId, KeeperInput, KeeperOutput, Response, TurnId};
use crate::protocol::{Acquire, Assignment, Input, LeaseTerms, Mode, Patience};

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

    /// Acquires a place through the table, for the first in the line. For a guest on the terms of
    /// the last caller: guests join a line that a caller began.
    pub(super) fn acquire_in_table(&mut self) {
        let first = self.first().map(|caller| caller.acquire.clone());
        // A guest waits and holds alone, whatever the caller before it wanted.
        let for_guest = |acquired| Acquire {
            mode: Mode::Exclusive,
            patience: Patience::Wait,
            renew: true,
            ..acquired
        };
        self.acquired = first.or_else(|| self.acquired.take().map(for_guest));
        let acquire = self.acquired.clone().expect("a caller has acquired before");
        self.steps.push_back(Step::Contender(Input::Acquire(acquire)));
    }

    /// Answers a guest. While it has its turn the place is renewed, whatever the caller before it
    /// wanted, and others see its name.
    fn answer(&mut self, guest: GuestId, response: Response) {
        let Some(network) = &self.network else {
            return;
        };
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
        let terms = acquire.terms;
        let lease = match self.borrowing.sublease(turn) {
            Some(sublease) => {
                let user = self.own(acquire.owner);
                self.borrowing.note_own(user);
                (sublease, LostReason::KeeperUnreachable)
            }
            None => {
                let assignment = Assignment { terms, renew: acquire.renew, owner: acquire.owner };
                self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
                let lease = self.contender.held_lease();
                (lease.expect("turns are given of a held place"), LostReason::Expired)
            }
        };
        let (name, clock) = (Arc::clone(&self.object), Arc::clone(&self.shared.clock));
        let grant = Arc::new(Grant::new(name, span.clone(), clock, lease, hold_terms));
        let tokens = match self.contender.held_claim() {
            Some(claim) if self.network.is_none() => {
                let (shared, skew) = (Arc::clone(&self.shared), terms.max_clock_skew());
                Tokens::Own(Fence::new(shared, Arc::clone(&grant), claim.clone(), skew))
            }
            // Guests draw tokens of the same place, and theirs and ours have to grow together.
            Some(_) | None => Tokens::OfKeeper { limit: self.shared.acquire_timeout },
        };
        let (requests, receiver) = mpsc::unbounded_channel();
        let keeper = Uuid::from_u128(turn.place.client);
        let guard = LockGuard::new(Arc::clone(&grant), tokens, requests, keeper);
        let waited = self.shared.clock.elapsed().saturating_sub(asked);
        debug!(parent: &span, turn = turn.number, ?waited, "held");
        // A guard that finds no caller is dropped.
        let is_taken = reply.send(Ok(Some(guard))).is_ok();
        if is_taken {
            self.holder = Some(Holder::new(grant, receiver, turn, acquire.renew));
        }
        is_taken
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
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let glance = operations::glance(shared, object).instrument(self.span().clone());
        self.glance = Some(Box::pin(glance));
    }

    /// Ends the turn as lost. What ends it by its hold limit leaves the place to the next one.
    pub(super) fn end_turn(&mut self, reason: LostReason) {
        let Some(holder) = self.holder.take() else {
            return;
        };
        self.draws.clear();
        let keeps_place = reason == LostReason::HoldLimit;
        let returned = KeeperInput::Returned { turn: holder.turn };
        let input = if keeps_place { returned } else { KeeperInput::Lost };
        holder.lose(reason);
        self.tell_keeper(input);
    }
}
