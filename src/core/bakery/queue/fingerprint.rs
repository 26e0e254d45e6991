//! The part of a queue that decides what can still follow.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::super::fingerprint::{Fingerprint, until};
use super::{FUTILE_MAX, Queue};

impl Fingerprint for Queue {
    fn feed(&self, now: Duration, hasher: &mut impl Hasher) {
        let Queue {
            mine,
            mode: _,
            front_max: _,
            blockers,
            presumed_gone,
            futile,
            stays: _,
            left: _,
            choosing,
            choosing_until,
            handoff: _,
            progress: _,
        } = self;
        (mine, presumed_gone, choosing, until(*choosing_until, now)).hash(hasher);
        for blocker in blockers.iter() {
            blocker.hash(hasher);
        }
        // It only decides whether to ask a blocker or to read whole.
        if self.company() > 0 {
            (*futile).min(FUTILE_MAX).hash(hasher);
        }
    }
}
