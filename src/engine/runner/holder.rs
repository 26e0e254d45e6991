//! The holder of the object, and the callers that want to be sure that it is still held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::is_over;
use crate::engine::grant::{Grant, GuardRequest, GuardState, Need};
use crate::error::{EnsureError, LostReason};
use crate::protocol::Input;
use crate::store::DatabaseError;

/// The holder of the object.
pub(super) struct Holder {
    pub(super) grant: Arc<Grant>,
    requests: mpsc::UnboundedReceiver<GuardRequest>,
    renews: bool,
    /// That the lock is at risk was told.
    at_risk: bool,
    /// In the order in which they asked.
    confirming: Vec<Confirming>,
}

/// A caller that waits to be sure that the lock is held.
struct Confirming {
    asked: Duration,
    need: Need,
    /// How many acknowledged renewals were too short; the first one may have been under way.
    too_short: u32,
    reply: oneshot::Sender<Result<Duration, EnsureError>>,
}

impl Holder {
    pub(super) fn new(
        grant: Arc<Grant>,
        requests: mpsc::UnboundedReceiver<GuardRequest>,
        renews: bool,
    ) -> Self {
        Holder { grant, requests, renews, at_risk: false, confirming: Vec::new() }
    }

    /// Waits until the guard asks for something.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub(super) async fn request(&mut self) -> GuardRequest {
        // A guard that is gone has given the lock back.
        self.requests.recv().await.unwrap_or(GuardRequest::Release { reply: None })
    }

    /// What the guard has asked for already.
    pub(super) fn next_request(&mut self) -> Option<GuardRequest> {
        self.requests.try_recv().ok()
    }

    /// Notes what a caller wants to be sure of, and returns what the contender has to do for it;
    /// nothing when that is known already.
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
                // Who stopped waiting doesn't mind, here and below.
                let _ = reply.send(Err(EnsureError::TooLong { min, remaining }));
                return None;
            }
        };
        self.confirming.push(Confirming { asked, need, too_short: 0, reply });
        Some(input)
    }

    /// Tells those who need a lease of some length how long it is now. Returns what is to be done
    /// for those for whom it is too short.
    pub(super) fn renewed(&mut self) -> Option<Input> {
        /// One may have been under way when it was asked for, and the next one is as long as any.
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

    /// Tells those who need to know that the rows are there.
    pub(super) fn confirmed(&mut self) {
        let remaining = self.grant.state().remaining();
        for confirming in self.confirming.extract_if(.., |c| c.need == Need::Rows) {
            let _ = confirming.reply.send(Ok(remaining));
        }
    }

    /// When the first of those asked who still wait.
    pub(super) fn first_asked(&self) -> Option<Duration> {
        self.confirming.first().map(|confirming| confirming.asked)
    }

    /// When the lock comes to be at risk; `None` while that was told.
    pub(super) fn at_risk_from(&self) -> Option<Duration> {
        (!self.at_risk).then(|| self.grant.at_risk_from())
    }

    /// Warns that the lock is at risk, once for each time that it comes to be.
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

    /// Sends away those who have waited for `limit`.
    pub(super) fn dismiss_expired(
        &mut self,
        now: Duration,
        limit: Duration,
        cause: Option<&DatabaseError>,
    ) {
        let expired = self.confirming.partition_point(|c| is_over(c.asked, limit, now));
        for confirming in self.confirming.drain(..expired) {
            let waited = now.saturating_sub(confirming.asked);
            let unconfirmed = EnsureError::Unconfirmed { waited, cause: cause.cloned() };
            let _ = confirming.reply.send(Err(unconfirmed));
        }
    }

    /// Ends the grant. Callers that wait to be sure get no answer and ask the guard, which knows.
    pub(super) fn lose(self, reason: LostReason) {
        self.grant.lose(reason);
    }
}
