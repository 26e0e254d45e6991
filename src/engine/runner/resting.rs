//! A place that stays taken for a while after its release (`min_hold`).
//!
//! Its rows are written once more, with a TTL that ends then, so that it stays taken if the process
//! exits. To the keeper the turn lasts until then.

use std::sync::Arc;
use std::time::Duration;

use super::holder::Holder;
use super::{Runner, Step};
use crate::engine::grant::Grant;
use crate::error::LostReason;
use crate::peers::TurnId;
use crate::protocol::{Assignment, Input, Lease, LeaseTerms};

/// The rows live for this much longer, or the place would be lost before it is passed on.
const TIME_TO_PASS_ON: Duration = Duration::from_millis(500);

/// A turn that was released, and whose place stays taken.
pub(super) struct Resting {
    turn: TurnId,
    grant: Arc<Grant>,
    owner: String,
    /// Until when, by boot time: a wall clock that is set ahead must not end it.
    pub(super) until: Duration,
    /// The terms on which the rows live until then.
    terms: LeaseTerms,
    /// Whether they are written.
    is_written: bool,
}

impl Runner {
    /// Whether the place of this turn stays taken if the turn ends now.
    pub(super) fn stays(&self, turn: TurnId) -> bool {
        let now = self.shared.clock.since_boot();
        self.holders.get(turn).is_some_and(|holder| holder.stays_until > now)
    }

    /// Keeps the place of a turn that has ended. Those that wait for its release are answered once
    /// the rows are written.
    pub(super) fn rest(&mut self, turn: TurnId, holder: Holder) {
        let Holder { grant, owner, stays_until: until, .. } = holder;
        let left = until.saturating_sub(self.shared.clock.since_boot());
        let terms = LeaseTerms::that_last(
            left + TIME_TO_PASS_ON,
            self.contender.held_terms().max_clock_skew(),
        );
        self.resting = Some(Resting { turn, grant, owner, until, terms, is_written: false });
        self.assign_rest(true);
        self.steps.push_back(Step::Contender(Input::Renew));
        self.settle();
    }

    /// The rows were renewed. Once they live for as long as the place is to stay taken, they are
    /// left alone.
    pub(super) fn rest_is_written(&mut self, lease: Lease, terms: LeaseTerms) {
        let (now, boot) = (self.shared.clock.elapsed(), self.shared.clock.since_boot());
        let Some(resting) = self.resting.as_mut().filter(|resting| resting.terms == terms) else {
            return;
        };
        // One with the same TTL may have been under way before.
        if lease.deadline().saturating_sub(now) < resting.until.saturating_sub(boot) {
            return self.steps.push_back(Step::Contender(Input::Renew));
        }
        resting.is_written = true;
        self.assign_rest(false);
        self.releases.acknowledged();
    }

    fn assign_rest(&mut self, renew: bool) {
        if let Some(Resting { terms, owner, .. }) = &self.resting {
            let assignment = Assignment { terms: *terms, renew, owner: owner.clone() };
            self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
        }
    }

    /// Gives the place to the next one in the line, or back.
    pub(super) fn end_rest_in_time(&mut self) {
        let boot = self.shared.clock.since_boot();
        if let Some(resting) = self.resting.take_if(|resting| resting.until <= boot) {
            // Rows that were not written again are deleted now, as after any release.
            self.turn_is_over(resting.turn);
            if !self.keeper.is_releasing() {
                self.releases.acknowledged();
            }
        }
    }

    /// The place was lost meanwhile.
    pub(super) fn lose_rest(&mut self, reason: &LostReason) {
        if let Some(resting) = self.resting.take() {
            resting.grant.lose(reason.clone());
            self.releases.clear();
        }
    }

    /// Whether the client is shut down, and rows stay behind as they should.
    pub(super) fn outlives_client(&self) -> bool {
        self.is_closing && self.resting.as_ref().is_some_and(|resting| resting.is_written)
    }
}
