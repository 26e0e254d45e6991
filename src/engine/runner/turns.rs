//! What the keeper asks for: turns for callers, and a place in the table for all of them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{Instrument, debug};

use super::holder::Holder;
use super::{Runner, Step, operations};
use crate::engine::drawing::Fence;
use crate::engine::grant::Grant;
use crate::engine::guard::LockGuard;
use crate::engine::waiters::Caller;
use crate::error::LostReason;
use crate::peers::{KeeperInput, KeeperOutput, TurnId};
use crate::protocol::{Assignment, Input, LeaseTerms};

impl Runner {
    /// Does what the keeper asks for.
    pub(super) fn keeper_asks(&mut self, output: KeeperOutput) {
        match output {
            KeeperOutput::Acquire { caller } => self.acquire_for(caller),
            KeeperOutput::Taken { caller } => {
                if let Some(caller) = self.callers.take(caller) {
                    caller.answer(Ok(None));
                }
            }
            KeeperOutput::Grant { caller, turn } => self.grant(caller, turn),
            KeeperOutput::Renew { terms } => self.renew_on(terms),
            KeeperOutput::Glance => self.start_glance(),
            KeeperOutput::Token { .. }
            | KeeperOutput::DrawBlock { .. }
            | KeeperOutput::Send { .. } => {
                unreachable!("there are no guests, and callers draw tokens by themselves")
            }
            KeeperOutput::Release => self.steps.push_back(Step::Contender(Input::Release)),
        }
    }

    fn acquire_for(&mut self, caller: Option<u64>) {
        let caller = caller.and_then(|number| self.callers.get(number));
        let acquire = caller.expect("a place is acquired for a caller that waits").acquire.clone();
        self.steps.push_back(Step::Contender(Input::Acquire(acquire)));
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
        let assignment = Assignment { terms, renew: acquire.renew, owner: acquire.owner };
        self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
        let lease = self.contender.held_lease().expect("turns are given of a held place");
        let (name, clock) = (Arc::clone(&self.object), Arc::clone(&self.shared.clock));
        let grant = Arc::new(Grant::new(name, span.clone(), clock, lease, hold_terms));
        let claim = self.contender.held_claim().expect("turns are given of a held place").clone();
        let fence =
            Fence::new(Arc::clone(&self.shared), Arc::clone(&grant), claim, terms.max_clock_skew());
        let (requests, receiver) = mpsc::unbounded_channel();
        let guard = LockGuard::new(Arc::clone(&grant), fence, requests);
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
        let keeps_place = reason == LostReason::HoldLimit;
        let returned = KeeperInput::Returned { turn: holder.turn };
        let input = if keeps_place { returned } else { KeeperInput::Lost };
        holder.lose(reason);
        self.tell_keeper(input);
    }
}
