//! What each event of the contender means for callers and the holder.

use tracing::warn;

use super::{Runner, Step};
use crate::core::bakery::{Event, Failure, Lease, LeaseTerms, Loss, Revocation};
use crate::core::turns::KeeperInput;
use crate::engine::health::CheckReason;
use crate::engine::waiters::Reply;
use crate::error::{ExpiringReason, LockError, LostReason};
use crate::owner::printable;

impl Runner {
    /// Handles an event. The keeper learns of it at once, before any step that waits: it must not
    /// take a place for held that is lost.
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Held { lease, terms } => self.held(lease, terms),
            Event::Renewed { lease, terms } => self.renewed(lease, terms),
            Event::Taken => self.not_acquired(Ok(None)),
            Event::Failed(failure) => self.failed(&failure),
            Event::Confirmed => {
                // It answers all: one that asked during the read made it begin anew.
                let now = self.shared.clock.elapsed();
                self.holders.for_each(|holder| holder.confirmed(now));
            }
            Event::Expiring(revocation) => {
                let (by, why) = for_people(revocation);
                self.expire_all(&ExpiringReason::Revoked { by, why });
                self.feed_keeper(KeeperInput::Expiring);
            }
            Event::Lost(loss) => {
                if matches!(loss, Loss::RowMissing | Loss::Conflict { .. }) {
                    self.check_health(CheckReason::RowMissing);
                }
                self.lose_all(&loss.into());
                self.feed_keeper(KeeperInput::Lost);
            }
            Event::Released => {
                self.releases.acknowledged();
                if self.keeper.is_releasing() {
                    self.feed_keeper(KeeperInput::Released);
                } else {
                    // It left the table to wait at a keeper.
                    self.go_on_in_table();
                }
            }
        }
    }

    fn held(&mut self, lease: Lease, terms: LeaseTerms) {
        // Let in by both ways, it takes this one (rule R6).
        self.stop_borrowing();
        self.rivals.next_round();
        let claim = self.contender.held_claim().expect("it has just been held");
        let (place, round) = (claim.contender, claim.round);
        let held = KeeperInput::Held { place, round, terms, deadline: lease.deadline() };
        self.feed_keeper(held);
    }

    fn renewed(&mut self, lease: Lease, terms: LeaseTerms) {
        let mut renew_again = None;
        self.holders.for_each(|holder| renew_again = holder.renew(lease).or(renew_again.take()));
        self.steps.extend(renew_again.map(Step::Contender));
        self.check_health(CheckReason::Renewal);
        self.feed_keeper(KeeperInput::Renewed { terms, deadline: lease.deadline() });
    }

    fn failed(&mut self, failure: &Failure) {
        let error = self.lock_error(failure);
        if let (Failure::Revoked(_), Some(first)) = (failure, self.first()) {
            let waited = self.shared.clock.elapsed().saturating_sub(first.asked);
            warn!(parent: &first.span, %error, ?waited, "not obtained");
        }
        self.not_acquired(Err(error));
        if *failure == Failure::RowMissing {
            self.check_health(CheckReason::RowMissing);
        }
    }

    fn not_acquired(&mut self, answer: Reply) {
        self.stop_borrowing();
        let first = self.keeper.first_caller().and_then(|number| self.callers.take(number));
        if let Some(caller) = first {
            caller.answer(answer);
        }
        self.feed_keeper(KeeperInput::Failed);
    }

    fn lock_error(&self, failure: &Failure) -> LockError {
        let name = self.object.to_string();
        match failure {
            Failure::RowMissing => LockError::RowMissing { name },
            Failure::Revoked(revocation) => {
                let (by, why) = for_people(revocation.clone());
                LockError::Revoked { name, by, why }
            }
            Failure::NoTicketLeft => LockError::NoTicketLeft { name },
            Failure::MarkOutOfReach { ahead } => LockError::MarkOutOfReach { name, ahead: *ahead },
            Failure::Rejected => {
                let cause = self.setback.clone();
                let cause = cause.expect("a refused request leaves its error");
                LockError::Refused { name, cause }
            }
        }
    }
}

impl From<Loss> for LostReason {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Expired => LostReason::Expired,
            Loss::RowMissing => LostReason::RowMissing,
            Loss::Revoked(revocation) => {
                let (by, why) = for_people(revocation);
                LostReason::Revoked { by, why }
            }
            Loss::Conflict { holder } => LostReason::Conflict { holder: printable(holder) },
        }
    }
}

/// Who asked for a revocation, and why.
fn for_people(Revocation { by, why, .. }: Revocation) -> (String, String) {
    (printable(by), printable(why))
}
