//! The holder of the object, and the callers that wait for confirmation that it is still held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::take_expired;
use crate::engine::grant::{Grant, GuardRequest, GuardState, Need};
use crate::error::{EnsureError, LostReason};
use crate::peers::TurnId;
use crate::protocol::Input;
use crate::store::DatabaseError;

/// The holder of the object.
pub(super) struct Holder {
    pub(super) grant: Arc<Grant>,
    pub(super) turn: TurnId,
    requests: mpsc::UnboundedReceiver<GuardRequest>,
    renews: bool,
    /// A warning about the present risk was given.
    at_risk: bool,
    /// In the order in which they asked.
    confirming: Vec<Confirming>,
}

/// A caller that waits for confirmation that the lock is held.
struct Confirming {
    asked: Duration,
    need: Need,
    /// How many acknowledged renewals were too short; the first may have been in progress.
    too_short: u32,
    reply: oneshot::Sender<Result<Duration, EnsureError>>,
}

impl Holder {
    pub(super) fn new(
        grant: Arc<Grant>,
        requests: mpsc::UnboundedReceiver<GuardRequest>,
        turn: TurnId,
        renews: bool,
    ) -> Self {
        Holder { grant, turn, requests, renews, at_risk: false, confirming: Vec::new() }
    }

    /// Waits for the guard's next request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub(super) async fn request(&mut self) -> GuardRequest {
        // A guard that is gone has released the lock.
        self.requests.recv().await.unwrap_or(GuardRequest::Release { reply: None })
    }

    /// The guard's next request that has already arrived.
    pub(super) fn next_request(&mut self) -> Option<GuardRequest> {
        self.requests.try_recv().ok()
    }

    /// Records what a caller needs confirmed, and returns what the contender has to do for it;
    /// `None` if the answer is already known.
    pub(super) fn confirm(
        &mut self,
        need: Need,
        asked: Duration,
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    ) -> Option<Input> {
        let input = match need {
            Need::Rows => Input::Confirm,
            Need::Lease(_) if self.renews => Input::Renew,
            Need::Lease(min) => {
                let remaining = self.grant.state().remaining();
                // A caller that stopped waiting needs no answer, here and below.
                let _ = reply.send(Err(EnsureError::TooLong { min, remaining }));
                return None;
            }
        };
        self.confirming.push(Confirming { asked, need, too_short: 0, reply });
        Some(input)
    }

    /// Tells callers that need a lease of some length how long it is now. Returns what to do for
    /// callers for which it is too short.
    pub(super) fn renewed(&mut self) -> Option<Input> {
        /// The first may have been in progress when the caller asked; the second is as long as any.
        const RENEWALS_MAX: u32 = 2;
        let remaining = self.grant.state().remaining();
        let mut renew_again = false;
        for mut confirming in std::mem::take(&mut self.confirming) {
            let answer = match confirming.need {
                Need::Lease(min) if min <= remaining => Ok(remaining),
                Need::Lease(min) if confirming.too_short + 1 >= RENEWALS_MAX => {
                    Err(EnsureError::TooLong { min, remaining })
                }
                Need::Lease(_) | Need::Rows => {
                    let too_short = matches!(confirming.need, Need::Lease(_));
                    confirming.too_short += u32::from(too_short);
                    renew_again |= too_short;
                    self.confirming.push(confirming);
                    continue;
                }
            };
            let _ = confirming.reply.send(answer);
        }
        renew_again.then_some(Input::Renew)
    }

    /// Answers callers that asked by then whether the rows are there.
    pub(super) fn confirmed(&mut self, asked_by: Duration) {
        let remaining = self.grant.state().remaining();
        let is_answered = |c: &mut Confirming| c.need == Need::Rows && c.asked <= asked_by;
        for confirming in self.confirming.extract_if(.., is_answered) {
            let _ = confirming.reply.send(Ok(remaining));
        }
    }

    /// When the first caller that still waits asked.
    pub(super) fn first_asked(&self) -> Option<Duration> {
        self.confirming.first().map(|confirming| confirming.asked)
    }

    /// When the lock becomes at risk; `None` once a warning about the present risk was given.
    pub(super) fn at_risk_from(&self) -> Option<Duration> {
        (!self.at_risk).then(|| self.grant.at_risk_from())
    }

    /// Warns that the lock is at risk, once each time it becomes so.
    pub(super) fn warn_if_at_risk(&mut self) {
        match self.grant.state() {
            GuardState::AtRisk { remaining } if !self.at_risk => {
                self.at_risk = true;
                self.grant.warn_at_risk(remaining);
            }
            GuardState::Held { .. } | GuardState::Expiring { .. } => self.at_risk = false,
            GuardState::AtRisk { .. } | GuardState::Lost(_) | GuardState::Released => {}
        }
    }

    /// Dismisses callers that have waited for `limit`.
    pub(super) fn dismiss_expired(
        &mut self,
        now: Duration,
        limit: Duration,
        cause: Option<&DatabaseError>,
    ) {
        for (confirming, waited) in take_expired(&mut self.confirming, |c| c.asked, limit, now) {
            let unconfirmed = EnsureError::Unconfirmed { waited, cause: cause.cloned() };
            let _ = confirming.reply.send(Err(unconfirmed));
        }
    }

    /// Ends the grant. Callers that wait for confirmation get no answer and ask the guard, which
    /// knows.
    pub(super) fn lose(self, reason: LostReason) {
        self.grant.lose(reason);
    }
}
