//! What each event of the contender means for callers, holders and keeper.

use super::Slot;
use crate::core::bakery::{
    ContenderEvent, ContenderInput, Failure, Lease, LeaseTerms, Loss, SeededBug,
};
use crate::core::object::io::{self, CheckReason, Expiring, Now, Output, Refusal, Reply, Report};
use crate::core::turns::KeeperInput;

impl Slot {
    pub(super) fn event(&mut self, now: Now, event: ContenderEvent) {
        match event {
            ContenderEvent::Held { lease, terms } => self.held(now, lease, terms),
            ContenderEvent::Renewed { lease, terms } => self.renewed(now, lease, terms),
            ContenderEvent::Taken => {
                if !self.try_as_guest() {
                    self.not_acquired(now, Refusal::Taken);
                }
            }
            ContenderEvent::Failed(failure) => self.failed(now, failure),
            ContenderEvent::Confirmed => {
                // It answers all: one that asked during the read made it begin again.
                let (at, outputs) = (now.elapsed, &mut self.outputs);
                self.holders.for_each(|holder| holder.confirmed(at, at, outputs));
            }
            ContenderEvent::Expiring(revocation) => {
                self.expire_all(now, &Expiring::Revoked(revocation));
                self.keeper.handle(now.of_turns(), KeeperInput::Expiring);
            }
            ContenderEvent::Lost(loss) => {
                if matches!(loss, Loss::RowMissing | Loss::Conflict { .. }) {
                    self.check(CheckReason::RowMissing);
                }
                self.lose_all(&io::Loss::Place(loss));
                self.keeper.handle(now.of_turns(), KeeperInput::Lost);
            }
            ContenderEvent::Released => {
                self.releases.answer(&Reply::Returned, &mut self.outputs);
                if self.keeper.is_releasing() {
                    self.keeper.handle(now.of_turns(), KeeperInput::Released);
                } else if !SeededBug::NoWayBackWhileLeaving.is_planted() {
                    // It left the table to wait at a keeper.
                    self.go_on_in_table(now);
                }
            }
        }
    }

    fn held(&mut self, now: Now, lease: Lease, terms: LeaseTerms) {
        // Let in by both ways, it takes this one (rule R6).
        self.leave_keeper(now);
        self.competing_keepers.next_round();
        self.outputs.push_back(Output::Report(Report::Held));
        let claim = self.contender.held_claim().expect("it has just been held");
        let (place, round, deadline) = (claim.contender, claim.round, lease.deadline());
        let held = KeeperInput::Held { place, round, terms, deadline };
        self.keeper.handle(now.of_turns(), held);
    }

    fn renewed(&mut self, now: Now, lease: Lease, terms: LeaseTerms) {
        if self.renew_all(now, lease) {
            self.contender.handle(now.of_contender(), ContenderInput::Renew);
        }
        self.check(CheckReason::Renewal);
        let deadline = lease.deadline();
        self.keeper.handle(now.of_turns(), KeeperInput::Renewed { terms, deadline });
    }

    fn failed(&mut self, now: Now, failure: Failure) {
        if failure == Failure::RowMissing {
            self.check(CheckReason::RowMissing);
        }
        let asked = self.first().map_or(now.elapsed, |first| first.asked);
        let waited = now.elapsed.saturating_sub(asked);
        self.not_acquired(now, Refusal::Failed { failure, waited });
    }

    pub(super) fn not_acquired(&mut self, now: Now, refusal: Refusal) {
        self.leave_keeper(now);
        let first = self.keeper.first_caller().and_then(|number| self.callers.take(number));
        if let Some(caller) = first {
            self.refuse(caller.number, refusal);
        }
        self.keeper.handle(now.of_turns(), KeeperInput::Failed);
    }
}
