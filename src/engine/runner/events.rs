//! What each event of the contender means for callers and the holder.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::Runner;
use super::holder::Holder;
use crate::engine::drawing::Fence;
use crate::engine::grant::{End, Grant};
use crate::engine::guard::LockGuard;
use crate::engine::health::CheckReason;
use crate::engine::waiters::{Caller, Reply};
use crate::error::{LockError, LostReason};
use crate::protocol::{Event, Failure, Input, Lease, Loss, Revocation};

impl Runner {
    /// Handles an event; returns the contender's next input.
    pub(super) fn event(&mut self, event: &Event) -> Option<Input> {
        match event {
            Event::Held { lease, .. } => return self.grant(*lease),
            Event::Renewed { lease } => return self.renewed(*lease),
            Event::Taken => self.answer_first(Ok(None)),
            Event::Failed(failure) => {
                let error = self.lock_error(failure);
                if let (Failure::Revoked(_), Some(first)) = (failure, self.callers.first()) {
                    let waited = self.shared.clock.elapsed().saturating_sub(first.asked);
                    warn!(parent: &first.span, %error, ?waited, "not obtained");
                }
                self.answer_first(Err(error));
                if *failure == Failure::RowMissing {
                    self.check_health(CheckReason::RowMissing);
                }
            }
            Event::Confirmed => {
                if let Some(holder) = &mut self.holder {
                    holder.confirmed();
                }
            }
            Event::Lost(loss) => {
                self.drop_holder(loss.clone().into());
                if matches!(loss, Loss::RowMissing | Loss::Conflict { .. }) {
                    self.check_health(CheckReason::RowMissing);
                }
            }
            Event::Released => self.releases.acknowledged(),
        }
        None
    }

    /// Grants the object to the first caller that still wants it; releases it if there is none.
    fn grant(&mut self, lease: Lease) -> Option<Input> {
        let acquired = self.acquiring.take().expect("what is held was asked for");
        while let Some(first) = self.callers.first() {
            if first.acquire != acquired {
                break;
            }
            let Caller { acquire, hold_terms, asked, reply, span, .. } = self.callers.pop()?;
            let (name, clock) = (Arc::clone(&self.object), Arc::clone(&self.shared.clock));
            let grant = Arc::new(Grant::new(name, span.clone(), clock, lease, hold_terms));
            let fence = Fence::new(
                Arc::clone(&self.shared),
                Arc::clone(&grant),
                self.contender.held_claim().expect("what is granted is held").clone(),
                acquire.terms.max_clock_skew(),
            );
            let (requests, receiver) = mpsc::unbounded_channel();
            let guard = LockGuard::new(Arc::clone(&grant), fence, requests);
            let waited = self.shared.clock.elapsed().saturating_sub(asked);
            debug!(parent: &span, ?waited, "held");
            if reply.send(Ok(Some(guard))).is_ok() {
                self.holder = Some(Holder::new(grant, receiver, acquire.renew));
                return None;
            }
            // The caller left, and its guard is dropped.
        }
        Some(Input::Release)
    }

    fn renewed(&mut self, lease: Lease) -> Option<Input> {
        let renewed = self.holder.as_ref()?.grant.renew(lease);
        match renewed {
            Ok(()) => {
                self.check_health(CheckReason::Renewal);
                self.holder.as_mut()?.renewed()
            }
            // Released: the guard's request is on its way.
            Err(End::Released) => None,
            // The guard saw the lease end before we saw it renewed, and a lost lock stays lost.
            Err(End::Lost(reason)) => {
                self.drop_holder(reason);
                Some(Input::Release)
            }
        }
    }

    fn answer_first(&mut self, answer: Reply) {
        self.acquiring = None;
        if let Some(caller) = self.callers.pop() {
            caller.answer(answer);
        }
    }

    fn lock_error(&self, failure: &Failure) -> LockError {
        let name = self.object.to_string();
        match failure {
            Failure::RowMissing => LockError::RowMissing { name },
            Failure::Revoked(Revocation { by, why, .. }) => {
                LockError::Revoked { name, by: by.clone(), why: why.clone() }
            }
            Failure::NoTicketLeft => LockError::NoTicketLeft { name },
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
            Loss::Revoked(Revocation { by, why, .. }) => LostReason::Revoked { by, why },
            Loss::Conflict { holder } => LostReason::Conflict { holder },
        }
    }
}
