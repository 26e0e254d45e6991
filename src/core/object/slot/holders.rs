//! The holders of a place: one, or several that share it; and for each the requests that wait for
//! confirmation that it still holds.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::io::{Expiring, HolderEvent, Loss, Need, Output, Reply, RequestId};
use crate::core::bakery::Lease;
use crate::core::turns::{HoldLimit, TurnId};

/// The holders of a place, by their turns.
///
/// Thousands may share it, and each wake-up asks what is due, so that looks at none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holders {
    /// Mostly there is one, and a leaf of the map has room for eleven.
    holders: BTreeMap<TurnId, Box<Holder>>,
    /// When each must be looked at.
    due: BTreeSet<(Duration, TurnId)>,
    /// How many renew their leases.
    renewing: usize,
    /// How long requests wait for confirmation.
    patience: Duration,
}

impl Holders {
    pub(super) fn new(patience: Duration) -> Self {
        Holders { holders: BTreeMap::new(), due: BTreeSet::new(), renewing: 0, patience }
    }

    pub(super) fn insert(&mut self, holder: Holder) {
        self.due.insert((holder.due(self.patience), holder.turn));
        self.renewing += usize::from(holder.renews);
        self.holders.insert(holder.turn, Box::new(holder));
    }

    /// Takes out the holder with this turn, if it is there.
    pub(super) fn take(&mut self, turn: TurnId) -> Option<Holder> {
        let holder = *self.holders.remove(&turn)?;
        self.due.remove(&(holder.due(self.patience), turn));
        self.renewing -= usize::from(holder.renews);
        Some(holder)
    }

    /// Takes out all holders.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Holder> + use<> {
        self.due.clear();
        self.renewing = 0;
        std::mem::take(&mut self.holders).into_values().map(|holder| *holder)
    }

    pub(super) fn get(&self, turn: TurnId) -> Option<&Holder> {
        self.holders.get(&turn).map(Box::as_ref)
    }

    /// Changes the holder of this turn, if it is there.
    pub(super) fn with<T>(
        &mut self,
        turn: TurnId,
        change: impl FnOnce(&mut Holder) -> T,
    ) -> Option<T> {
        let holder = self.holders.get_mut(&turn)?;
        let due = holder.due(self.patience);
        let changed = change(holder);
        let due_now = holder.due(self.patience);
        if due_now != due {
            self.due.remove(&(due, turn));
            self.due.insert((due_now, turn));
        }
        Some(changed)
    }

    /// Changes each holder.
    pub(super) fn for_each(&mut self, mut change: impl FnMut(&mut Holder)) {
        self.holders.values_mut().for_each(|holder| change(holder));
        let due = self.holders.iter().map(|(turn, holder)| (holder.due(self.patience), *turn));
        self.due = due.collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// The holder that came last.
    pub(super) fn last(&self) -> Option<&Holder> {
        self.holders.last_key_value().map(|(_, holder)| holder.as_ref())
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

    /// When the next holder must be looked at.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The holders to look at by now.
    pub(super) fn due(&self, now: Duration) -> Vec<TurnId> {
        let due = self.due.iter().take_while(|(due, _)| *due <= now);
        due.map(|(_, turn)| *turn).collect()
    }
}

/// The holder of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) turn: TurnId,
    /// Its name, which others are shown.
    pub(super) owner: Arc<str>,
    pub(super) renews: bool,
    pub(super) lease: Lease,
    /// Why it is lost when its lease ends.
    pub(super) expiry: Loss,
    pub(super) limit: Option<HoldLimit>,
    /// Why it is to finish, if it is.
    pub(super) expiring: Option<Expiring>,
    /// Until when its caller must have collected the guard; `None` once it was asked.
    pub(super) uncollected_until: Option<Duration>,
    pub(super) clocks_differ: bool,
    /// A warning about the present risk was given.
    pub(super) warned: bool,
    /// In the order in which they asked.
    pub(super) confirming: Vec<Confirming>,
}

/// A request that waits for confirmation that the turn lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Confirming {
    asked: Duration,
    need: Need,
    /// How many acknowledged renewals were too short; the first may have been in progress.
    too_short: u32,
    request: RequestId,
}

/// What the place must do for a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Renew the lease now.
    Renewal,
    /// Read the rows.
    Read,
}

impl Holder {
    /// When to look at it: at the end of its lease or of its hold limit, when it becomes at risk or
    /// is to finish, when its guard must have been collected, or when a request has waited for long
    /// enough.
    fn due(&self, patience: Duration) -> Duration {
        let answer = self.confirming.first().map(|it| it.asked.saturating_add(patience));
        let waits = !self.warned && self.expiring.is_none() && self.renews;
        let at_risk = waits.then(|| self.lease.at_risk_from());
        let expiring = self.limit.filter(|_| self.expiring.is_none());
        let expiring = expiring.map(|limit| limit.expiring_from);
        let ends = self.limit.map(|limit| limit.ends);
        let others = [answer, at_risk, expiring, ends, self.uncollected_until];
        others.iter().flatten().copied().fold(self.lease.deadline(), Duration::min)
    }

    /// Why it has ended by time alone, if it has.
    pub(super) fn loss(&self, now: Duration) -> Option<Loss> {
        let asked = || self.expiring.as_ref().and_then(Expiring::loss);
        let lease_ends = self.lease.deadline();
        let lease_ended = (now >= lease_ends)
            .then(|| (lease_ends, asked().unwrap_or_else(|| self.expiry.clone())));
        let limit_ends = self.limit.map(|limit| limit.ends).filter(|ends| now >= *ends);
        let limit_ended = limit_ends.map(|ends| (ends, Loss::HoldLimit));
        let first = lease_ended.into_iter().chain(limit_ended).min_by_key(|(at, _)| *at);
        first.map(|(_, loss)| loss)
    }

    /// How long it lasts without renewal.
    fn remaining(&self, now: Duration) -> Duration {
        let lease_ends = self.lease.deadline();
        let ends = self.limit.map_or(lease_ends, |limit| limit.ends.min(lease_ends));
        ends.saturating_sub(now)
    }

    /// Whether its rows are written again and again.
    pub(super) fn is_renewed(&self) -> bool {
        self.renews && !self.is_lease_final()
    }

    /// Whether the lease is not renewed any more.
    fn is_lease_final(&self) -> bool {
        self.expiring.as_ref().is_some_and(|reason| reason.loss().is_some())
    }

    /// Records what a request needs confirmed. Returns what the place must do for it; `None` if
    /// the answer is known already.
    pub(super) fn confirm(
        &mut self,
        now: Duration,
        need: Need,
        request: RequestId,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Wanted> {
        let wanted = match need {
            Need::Rows => Wanted::Read,
            Need::Lease(_) if self.is_renewed() => Wanted::Renewal,
            Need::Lease(min) => {
                outputs.push_back(Output::Reply { request, reply: self.lasts(now, min) });
                return None;
            }
        };
        self.confirming.push(Confirming { asked: now, need, too_short: 0, request });
        Some(wanted)
    }

    /// The longest lease that a request waits for.
    pub(super) fn needed_lease(&self) -> Duration {
        let needs = self.confirming.iter().map(|it| match it.need {
            Need::Lease(min) => min,
            Need::Rows => Duration::ZERO,
        });
        needs.max().unwrap_or_default()
    }

    /// Whether the lease lasts so long without renewal.
    fn lasts(&self, now: Duration, min: Duration) -> Reply {
        let remaining = self.remaining(now);
        if min <= remaining { Reply::Held { remaining } } else { Reply::TooLong { min, remaining } }
    }

    /// The holder is to finish, for the first reason that it is given. Requests that wait for a
    /// renewal are answered: none comes.
    pub(super) fn expire(
        &mut self,
        now: Duration,
        reason: &Expiring,
        outputs: &mut VecDeque<Output>,
    ) {
        self.note_expiring(reason, outputs);
        for confirming in std::mem::take(&mut self.confirming) {
            match confirming.need {
                Need::Rows => self.confirming.push(confirming),
                Need::Lease(min) => {
                    let reply = self.lasts(now, min);
                    outputs.push_back(Output::Reply { request: confirming.request, reply });
                }
            }
        }
    }

    fn note_expiring(&mut self, reason: &Expiring, outputs: &mut VecDeque<Output>) {
        if self.expiring.is_none() {
            self.expiring = Some(reason.clone());
            let event = HolderEvent::Expiring(reason.clone());
            outputs.push_back(Output::Holder { turn: self.turn, event });
        }
    }

    /// Takes a renewed lease, unless the holder does without. Returns whether a request needs yet
    /// another renewal.
    pub(super) fn renew(
        &mut self,
        now: Duration,
        lease: Lease,
        outputs: &mut VecDeque<Output>,
    ) -> bool {
        // One that has ended is noticed by its time, or its guard's request is on its way.
        if !self.renews || self.loss(now).is_some() {
            return false;
        }
        self.lease = lease;
        outputs.push_back(Output::Holder { turn: self.turn, event: HolderEvent::Renewed(lease) });
        self.warn_if_at_risk(now, outputs);
        self.renewed(now, outputs)
    }

    /// Answers requests that need a lease of some length.
    fn renewed(&mut self, now: Duration, outputs: &mut VecDeque<Output>) -> bool {
        /// The first may have been in progress when the request came; the second is as long as any.
        const RENEWALS_MAX: u32 = 2;
        let mut renew_again = false;
        for mut confirming in std::mem::take(&mut self.confirming) {
            let Need::Lease(min) = confirming.need else {
                self.confirming.push(confirming);
                continue;
            };
            let reply = self.lasts(now, min);
            let is_long_enough = matches!(reply, Reply::Held { .. });
            confirming.too_short += u32::from(!is_long_enough);
            if is_long_enough || confirming.too_short >= RENEWALS_MAX {
                outputs.push_back(Output::Reply { request: confirming.request, reply });
            } else {
                renew_again = true;
                self.confirming.push(confirming);
            }
        }
        renew_again
    }

    /// Answers requests that came by then and ask whether the rows are there.
    pub(super) fn confirmed(
        &mut self,
        now: Duration,
        asked_by: Duration,
        outputs: &mut VecDeque<Output>,
    ) {
        let reply = Reply::Held { remaining: self.remaining(now) };
        let is_answered = |it: &mut Confirming| it.need == Need::Rows && it.asked <= asked_by;
        for Confirming { request, .. } in self.confirming.extract_if(.., is_answered) {
            outputs.push_back(Output::Reply { request, reply: reply.clone() });
        }
    }

    /// What is due by now: the end of the time in which the guard must have been collected, the
    /// hold limit, the risk, and requests that have waited for `patience`.
    pub(super) fn look(
        &mut self,
        now: Duration,
        patience: Duration,
        outputs: &mut VecDeque<Output>,
    ) {
        if self.uncollected_until.is_some_and(|until| until <= now) {
            self.uncollected_until = None;
            let event = HolderEvent::AskWhetherCollected;
            outputs.push_back(Output::Holder { turn: self.turn, event });
        }
        if self.limit.is_some_and(|limit| limit.expiring_from <= now) {
            self.note_expiring(&Expiring::HoldLimit, outputs);
        }
        self.warn_if_at_risk(now, outputs);
        for Confirming { asked, request, .. } in
            expired(&mut self.confirming, |it| it.asked, patience, now)
        {
            let reply = Reply::Unconfirmed { waited: now.saturating_sub(asked) };
            outputs.push_back(Output::Reply { request, reply });
        }
    }

    /// Warns that the turn is at risk, once each time it becomes so. One that is not renewed comes
    /// to its end as it should.
    pub(super) fn warn_if_at_risk(&mut self, now: Duration, outputs: &mut VecDeque<Output>) {
        if self.loss(now).is_some() {
            return;
        }
        let is_at_risk = self.clocks_differ || now >= self.lease.at_risk_from();
        let can_be = self.expiring.is_none() && (self.renews || self.clocks_differ);
        if is_at_risk && can_be && !self.warned {
            let event = HolderEvent::AtRisk { remaining: self.remaining(now) };
            outputs.push_back(Output::Holder { turn: self.turn, event });
        }
        self.warned = is_at_risk && (can_be || self.warned);
    }

    /// Ends the turn as lost. Requests that wait get no answer; the guard knows why.
    pub(super) fn lose(self, loss: Loss, outputs: &mut VecDeque<Output>) {
        outputs.push_back(Output::Holder { turn: self.turn, event: HolderEvent::Lost(loss) });
        self.end(outputs);
    }

    /// The turn has ended, and its guard knows how.
    pub(super) fn end(self, outputs: &mut VecDeque<Output>) {
        for Confirming { request, .. } in self.confirming {
            outputs.push_back(Output::Reply { request, reply: Reply::Over });
        }
    }
}

/// Takes out those that have waited for `limit`. They are in the order in which they asked. The
/// limit may be longer than any clock counts.
pub(super) fn expired<T>(
    waiting: &mut Vec<T>,
    asked: impl Fn(&T) -> Duration,
    limit: Duration,
    now: Duration,
) -> impl Iterator<Item = T> {
    let is_over = |it: &T| now.saturating_sub(asked(it)) >= limit;
    let expired = waiting.partition_point(is_over);
    waiting.drain(..expired)
}
