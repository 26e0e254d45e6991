//! What must not hold of a cluster that breaks the assumptions is found not to hold: the checks can
//! fail, and the assumptions are needed.
//!
//! Here are those that a cluster can break, by the names of `docs/safety.md`: A1, A2, A3 and A6.
//! The others are about a client itself, whose clock and stamps are the shipped ones here: a slow
//! clock, stamps that go back, a copied process. Flaws of the protocol are planted in
//! `tests/simulation`.

use std::ops::Range;
use std::time::Duration;

use super::batch::{Invariant, run_seeds};
use super::plan::{Deed, Disks, MAX_CLOCK_SKEW, Plan, REPLICAS};

const SEEDS: Range<u64> = 0..100;

// Goal: replicas that forget what they acknowledged let two clients in, and that is found.
// Method: replicas crash often, and forget the last ten seconds.
#[test]
fn forgotten_writes_are_found() {
    let batch = run_seeds(SEEDS, |seed| Plan::new(seed, Disks::Forgetful));
    assert!(batch.violations(Invariant::MutualExclusion) > 0, "{batch}");
    assert!(batch.violations(Invariant::Acknowledged) > 0, "{batch}");
    println!("forgotten writes: {} in {SEEDS:?}", batch.summary());
}

// Goal: a table that is truncated lets two clients in, and that is found.
// Method: all replicas forget everything at once, again and again.
#[test]
fn truncated_table_is_found() {
    let batch = run_seeds(SEEDS, |seed| {
        let mut plan = Plan::new(seed, Disks::Synced);
        for second in 2..10 {
            let (at, forgets) = (Duration::from_secs(second), Duration::MAX);
            for replica in 0..REPLICAS {
                plan.deeds.push((at, Deed::Crash { replica, forgets }));
                plan.deeds.push((at, Deed::Start { replica }));
            }
        }
        plan
    });
    assert!(batch.violations(Invariant::MutualExclusion) > 0, "{batch}");
    assert!(batch.violations(Invariant::Acknowledged) > 0, "{batch}");
    println!("truncation: {} in {SEEDS:?}", batch.summary());
}

// Goal: a quorum of one replica is no quorum, and that is found.
// Method: one answer is enough for each request.
#[test]
fn quorum_of_one_is_found() {
    let batch = run_seeds(SEEDS, |seed| {
        let mut plan = Plan::new(seed, Disks::Synced);
        plan.replicas.quorum = 1;
        plan
    });
    assert!(batch.violations(Invariant::MutualExclusion) > 0, "{batch}");
    println!("a quorum of one: {} in {SEEDS:?}", batch.summary());
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
    println!("wrong clocks: {} in {SEEDS:?}", batch.summary());
}
