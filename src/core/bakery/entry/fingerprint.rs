//! The part of a contender's own rows that decides what can still follow.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::Duration;

use super::super::fingerprint::{Fingerprint, until};
use super::{Attempt, Entry, Pace, Renewal, Stage};

impl Fingerprint for Entry {
    fn feed(&self, now: Duration, hasher: &mut impl Hasher) {
        // The request never changes in a model. The time of the announcement sets the length of
        // pauses, and so does what the last release reported.
        let Entry { claim, lease, renewal, revoked, rests, .. } = self;
        (revoked.is_some(), rests).hash(hasher);
        let renewal_due = until(lease.renewal_due(self.acquire.terms), now);
        (claim.round, claim.ticket, claim.held_since, until(lease.deadline(), now), renewal_due)
            .hash(hasher);
        let Renewal { stage, pace, asked } = renewal;
        discriminant(stage).hash(hasher);
        match stage {
            Stage::Resting | Stage::Checking | Stage::Verifying => {}
            Stage::Writing(attempt) => attempt.feed(now, hasher),
        }
        asked.hash(hasher);
        pace.feed(now, hasher);
    }
}

impl Fingerprint for Attempt {
    fn feed(&self, now: Duration, hasher: &mut impl Hasher) {
        let Attempt { write, first_try } = self;
        // The age of the try decides when its lease ends.
        (write.stamp, now.saturating_sub(*first_try)).hash(hasher);
    }
}

impl Fingerprint for Pace {
    fn feed(&self, now: Duration, hasher: &mut impl Hasher) {
        // Failures lengthen pauses, and matter for refused statements, which the model lacks.
        let Pace { not_before, failures: _ } = self;
        until(*not_before, now).hash(hasher);
    }
}
