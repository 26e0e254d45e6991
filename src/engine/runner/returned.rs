//! A lock that was released before its `min_hold` was over: the keeper keeps its place for the rest
//! of that time.

use super::{Runner, Step};
use crate::core::bakery::{Assignment, Input};
use crate::error::LostReason;

impl Runner {
    /// The place needs no more writes until its `min_hold` is over, or that is over. Without the
    /// write, the release counts like any other: at once if another turn follows, otherwise once
    /// the rows are deleted.
    pub(super) fn returned(&mut self) {
        if self.keeper.outlasts_process()
            && let Some(claim) = self.contender.held_claim()
        {
            let (terms, owner) = (self.contender.held_terms(), claim.owner.clone());
            let assignment = Assignment { terms, renew: false, owner };
            self.steps.push_back(Step::Contender(Input::Reassign(assignment)));
        }
        if !self.keeper.is_releasing() {
            self.releases.acknowledged();
        }
    }

    /// The place was lost before its `min_hold` was over.
    pub(super) fn lose_returned(&mut self, reason: &LostReason) {
        if self.keeper.outlasts_turn()
            && let Some(grant) = self.returned_early.take()
        {
            grant.lose(reason.clone());
            self.releases.clear();
        }
    }

    /// Whether the client is shut down, and rows stay behind as they should.
    pub(super) fn outlives_client(&self) -> bool {
        self.is_closing && self.keeper.outlasts_process()
    }
}
