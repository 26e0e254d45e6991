//! What must not hold of a cluster that breaks the assumptions is found not to hold: the checks can
//! fail, and the assumptions are needed.

use std::ops::Range;

use super::batch::{Invariant, run_seeds};
use super::plan::{Disks, MAX_CLOCK_SKEW, Plan};

const SEEDS: Range<u64> = 0..100;

// Goal: replicas that forget what they acknowledged let two in, and that is found.
// Method: replicas crash often, and forget the last ten seconds.
#[test]
fn forgotten_writes_are_found() {
    let batch = run_seeds(SEEDS, |seed| Plan::new(seed, Disks::Forgetful));
    assert!(batch.violations(Invariant::MutualExclusion) > 0, "{batch}");
    assert!(batch.violations(Invariant::Acknowledged) > 0, "{batch}");
}

// Goal: a quorum of one replica is no quorum, and that is found.
// Method: one answer is enough for each request.
#[test]
fn a_quorum_of_one_is_found() {
    let batch = run_seeds(SEEDS, |seed| {
        let mut plan = Plan::new(seed, Disks::Synced);
        plan.replicas.quorum = 1;
        plan
    });
    assert!(batch.violations(Invariant::MutualExclusion) > 0, "{batch}");
}

// Goal: clocks of nodes that differ by more than the bound let rows expire too early, and that is
// found.
// Method: the clock of one replica is ahead by four times the bound.
#[test]
fn wrong_clocks_are_found() {
    let batch = run_seeds(SEEDS, |seed| {
        let mut plan = Plan::new(seed, Disks::Synced);
        plan.replicas.ahead[0] = MAX_CLOCK_SKEW * 4;
        plan
    });
    assert!(batch.violations(Invariant::Acknowledged) > 0, "{batch}");
}
