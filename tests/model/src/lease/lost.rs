//! Rows that get lost although they were acknowledged, as when a quorum forgets them or a client
//! deletes them: for how long two may hold then.
//!
//! Requests are prompt: no second passes while one is due or under way. Only a contender that waits
//! may leave its question to those ahead for the next second, once in a second.

use std::sync::Arc;
use std::time::Duration;

use stateright::Model;

use super::{Action, Course, Expiry, Moment};
use crate::peer::{Errand, Peer, fingerprint};
use crate::sightings::Sight;
use crate::store::{ENTERING, KINDS};

/// How many requests of each it takes at most until all are served.
const PATIENCE: usize = 100;

/// What becomes of it that rows got lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Aftermath {
    /// For how long two may hold, once rows got lost.
    overlap_max: Option<u64>,
    /// Since when two contenders hold.
    since: Option<u64>,
    /// The contenders that have asked those ahead in this second. Each is a bit.
    asked: u8,
}

impl Aftermath {
    pub(super) fn happened(&self) -> bool {
        self.overlap_max.is_some()
    }

    /// A contender is answered. What it asked those ahead counts unless it asks something else
    /// afterwards.
    pub(super) fn answered(&mut self, contender: usize, asked_others: bool) {
        self.asked = self.asked & !(1 << contender) | u8::from(asked_others) << contender;
    }

    /// A second passes.
    pub(super) fn pass(&mut self) {
        self.asked = 0;
    }
}

impl Expiry {
    /// Whether nothing is left to do in this second.
    pub(super) fn may_pass(&self, moment: &Moment) -> bool {
        let now = Duration::from_secs(moment.now);
        let rests = |(i, peer): (usize, &Arc<Peer>)| {
            let has_asked = moment.loss.asked & (1 << i) != 0;
            let waits = peer.asks_others() && has_asked;
            waits || (peer.errand.is_none() && !peer.is_due(now))
        };
        self.course == Course::Late || moment.peers.iter().enumerate().all(rests)
    }

    pub(super) fn vanishings(&self, moment: &Moment, actions: &mut Vec<Action>) {
        if self.course == Course::Late || moment.loss.happened() {
            return;
        }
        let row = |contender: &usize| &moment.rows[contender * KINDS + ENTERING];
        let with_rows = (0..moment.peers.len()).filter(|contender| row(contender).cell.is_there());
        actions.extend(with_rows.map(|contender| Action::Vanish { contender }));
    }

    /// The row of a contender gets lost. If it is writing it again, which it does because it has
    /// read it before, two may hold for two thirds of the TTL, else for one.
    pub(super) fn vanish(&self, moment: &mut Moment, contender: usize) {
        moment.rows[contender * KINDS + ENTERING].cell.vanish();
        let errand = moment.peers[contender].errand;
        let writes = matches!(errand, Some(Errand::Write { write, .. }) if !write.is_release());
        if writes {
            self.sightings.note(Sight::VanishedBeforeWrite);
        }
        let thirds = if writes { 2 } else { 1 };
        moment.loss.overlap_max = Some(self.course.ttl() / 3 * thirds);
    }

    /// Notes since when two contenders hold.
    pub(super) fn watch(&self, moment: &mut Moment) {
        let before = moment.loss.since.filter(|_| moment.holders() > 1);
        if before.is_none() && moment.holders() > 1 {
            self.sightings.note(Sight::TwoHold);
            moment.loss.since = Some(moment.now);
        } else {
            moment.loss.since = before;
        }
    }

    /// Whether two contenders hold for no longer than they may.
    pub(super) fn is_short(&self, moment: &Moment) -> bool {
        let held = moment.loss.since.map_or(0, |since| moment.now - since);
        self.violations.allow(held <= moment.loss.overlap_max.unwrap_or_default())
    }

    /// Whether all are served if nothing goes wrong from now on.
    pub(super) fn is_going_on(&self, moment: &Moment) -> bool {
        let mut moment = moment.clone();
        let mut passed = Vec::new();
        for _ in 0..PATIENCE {
            let fingerprint = fingerprint(&moment);
            let known = self.served.lock().expect("no search panics").contains(&fingerprint);
            let stuck = passed.contains(&fingerprint);
            passed.push(fingerprint);
            if known || moment.peers.iter().all(|peer| peer.is_done()) {
                self.served.lock().expect("no search panics").extend(passed);
                return true;
            }
            if stuck {
                // Contenders wait for each other until one reads its rows to renew them.
                moment.pass(self.course);
            }
            for i in 0..moment.peers.len() {
                self.go_on_calmly(&mut moment, i);
            }
        }
        self.violations.allow(false)
    }

    /// A contender gets on by one request.
    fn go_on_calmly(&self, moment: &mut Moment, i: usize) {
        let mut actions = Vec::new();
        self.actions_of(moment, i, &mut actions);
        let next = actions.into_iter().next().and_then(|action| self.next_state(moment, action));
        if let Some(next) = next {
            *moment = next;
        }
    }
}
