//! The holders of the object: one, or several that share it; and for each the callers that wait for
//! confirmation that it still holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::take_expired;
use crate::core::bakery::{Input, Lease};
use crate::core::turns::TurnId;
use crate::engine::grant::{Grant, GuardState, Need};
use crate::error::{EnsureError, ExpiringReason, LostReason};
use crate::store::DatabaseError;

/// The holders of the object, by their turns.
///
/// Thousands may share it, and the runner asks at each wake-up what is due, so that looks at none
/// of them.
pub(super) struct Holders {
    holders: BTreeMap<TurnId, Holder>,
    /// When each has to be looked at.
    due: BTreeSet<(Duration, TurnId)>,
    /// How many renew their leases.
    renewing: usize,
    /// How long callers wait for confirmation.
    patience: Duration,
}

impl Holders {
    pub(super) fn new(patience: Duration) -> Self {
        Holders { holders: BTreeMap::new(), due: BTreeSet::new(), renewing: 0, patience }
    }

    /// Adds a holder.
    pub(super) fn insert(&mut self, turn: TurnId, holder: Holder) {
        self.due.insert((holder.due(self.patience), turn));
        self.renewing += usize::from(holder.renews);
        self.holders.insert(turn, holder);
    }

    /// Takes out the holder with this turn, if it is there.
    pub(super) fn take(&mut self, turn: TurnId) -> Option<Holder> {
        let holder = self.holders.remove(&turn)?;
        self.due.remove(&(holder.due(self.patience), turn));
        self.renewing -= usize::from(holder.renews);
        Some(holder)
    }

    /// Takes out all holders.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Holder> + use<> {
        self.due.clear();
        self.renewing = 0;
        std::mem::take(&mut self.holders).into_values()
    }

    /// Does something with the holder of this turn, if it is there.
    pub(super) fn with<T>(
        &mut self,
        turn: TurnId,
        act: impl FnOnce(&mut Holder) -> T,
    ) -> Option<T> {
        let holder = self.holders.get_mut(&turn)?;
        let due = holder.due(self.patience);
        let done = act(holder);
        let due_now = holder.due(self.patience);
        if due_now != due {
            self.due.remove(&(due, turn));
            self.due.insert((due_now, turn));
        }
        Some(done)
    }

    /// Does something with each holder.
    pub(super) fn for_each(&mut self, mut act: impl FnMut(&mut Holder)) {
        self.holders.values_mut().for_each(&mut act);
        let due = self.holders.iter().map(|(turn, holder)| (holder.due(self.patience), *turn));
        self.due = due.collect();
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// The holder that came last.
    pub(super) fn last(&self) -> Option<&Holder> {
        self.holders.last_key_value().map(|(_, holder)| holder)
    }

    /// The turn of the only holder; `None` if there are several, or none.
    pub(super) fn only(&self) -> Option<TurnId> {
        let mut turns = self.holders.keys();
        turns.next().copied().filter(|_| turns.next().is_none())
    }

    /// Whether one of them renews its lease.
    pub(super) fn any_renews(&self) -> bool {
        self.renewing > 0
    }

    /// When the next holder has to be looked at.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The holders to look at by now.
    pub(super) fn due(&self, now: Duration) -> Vec<TurnId> {
        let due = self.due.iter().take_while(|(due, _)| *due <= now);
        due.map(|(_, turn)| *turn).collect()
    }
}

/// A holder of the object.
pub(super) struct Holder {
    pub(super) grant: Arc<Grant>,
    /// Its name, which others are shown.
    pub(super) owner: String,
    renews: bool,
    /// Until when its caller must have collected the guard; `None` once it has.
    uncollected_until: Option<Duration>,
    /// A warning about the present risk was given.
    at_risk: bool,
    /// The runner knows that the holder is to finish.
    is_expiring: bool,
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
    pub(super) fn new(grant: Arc<Grant>, owner: String, renews: bool) -> Self {
        let uncollected_until = Some(grant.lease_ends());
        let confirming = Vec::new();
        let (at_risk, is_expiring) = (false, false);
        Holder { grant, owner, renews, uncollected_until, at_risk, is_expiring, confirming }
    }

    /// When to look at it: at the end of its lease or of its hold limit, when it becomes at risk or
    /// is to finish, when its guard must have been collected, or when a caller has waited for long
    /// enough. Only the runner changes what decides that.
    fn due(&self, patience: Duration) -> Duration {
        let answer = self.confirming.first().map(|c| c.asked.saturating_add(patience));
        let waits = !self.at_risk && !self.is_expiring && self.renews;
        let at_risk = waits.then(|| self.grant.at_risk_from());
        let expiring = self.grant.expiring_from().filter(|_| !self.is_expiring);
        let ends = self.grant.hold_ends();
        let others = [answer, at_risk, expiring, ends, self.uncollected_until];
        others.into_iter().flatten().fold(self.grant.lease_ends(), Duration::min)
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
            Need::Lease(_) if self.renews && !self.grant.is_lease_final() => Input::Renew,
            Need::Lease(min) => {
                // A caller that stopped waiting needs no answer, here and below.
                let _ = reply.send(self.lasts(min));
                return None;
            }
        };
        self.confirming.push(Confirming { asked, need, too_short: 0, reply });
        Some(input)
    }

    /// Whether the lease lasts so long without renewal.
    fn lasts(&self, min: Duration) -> Result<Duration, EnsureError> {
        let remaining = self.grant.state().remaining();
        if min <= remaining { Ok(remaining) } else { Err(EnsureError::TooLong { min, remaining }) }
    }

    /// The holder is to finish, and its lease is not renewed any more.
    pub(super) fn expire(&mut self, reason: &ExpiringReason) {
        self.grant.expire(reason);
        self.is_expiring = true;
        let needs_lease = |c: &mut Confirming| matches!(c.need, Need::Lease(_));
        let confirming: Vec<_> = self.confirming.extract_if(.., needs_lease).collect();
        for Confirming { need, reply, .. } in confirming {
            if let Need::Lease(min) = need {
                let _ = reply.send(self.lasts(min));
            }
        }
    }

    /// Installs a renewed lease, unless the holder does without. Returns what to do for callers for
    /// which it is too short.
    pub(super) fn renew(&mut self, lease: Lease) -> Option<Input> {
        // A grant that has ended is noticed by its clock, or its guard's request is on its way.
        if self.renews && self.grant.renew(lease).is_ok() {
            self.warn_if_at_risk();
            self.renewed()
        } else {
            None
        }
    }

    /// Tells callers that need a lease of some length how long it is now. Returns what to do for
    /// callers for which it is too short.
    fn renewed(&mut self) -> Option<Input> {
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

    /// Ends the grant if its caller has not collected the guard within the first lease: its future
    /// may never be polled again, and others wait.
    pub(super) fn lose_uncollected(&mut self, now: Duration) {
        if self.grant.is_collected() {
            self.uncollected_until = None;
        } else if self.uncollected_until.is_some_and(|until| until <= now) {
            self.lose(LostReason::Expired);
        }
    }

    /// Notices that the hold limit is reached.
    pub(super) fn look_at_hold_limit(&mut self) {
        self.grant.look_at_hold_limit();
        self.is_expiring = self.grant.expiring().is_some();
    }

    /// One that is not renewed comes to its end as it should.
    fn can_be_at_risk(&self) -> bool {
        self.renews || self.grant.clocks_differ()
    }

    /// Warns that the lock is at risk, once each time it becomes so.
    pub(super) fn warn_if_at_risk(&mut self) {
        match self.grant.state() {
            GuardState::AtRisk { remaining } if !self.at_risk && self.can_be_at_risk() => {
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
    pub(super) fn lose(&mut self, reason: LostReason) {
        self.confirming.clear();
        self.grant.lose(reason);
    }
}
