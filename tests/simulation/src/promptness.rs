//! A lock that is free goes soon to one that waits for it.

use std::time::Duration;

use bakery_lock::LockMode;

use super::batch::{Invariant, assert_kept};
use super::log::{Hold, HoldEnd, Log};
use super::plan::{Breach, Plan};

/// How long a waiter pauses at most (`docs/safety.md`).
const PAUSE_MAX: Duration = Duration::from_millis(3_300);

/// What a release and an acquisition take, with the requests of others between them.
const OPERATIONS: Duration = Duration::from_millis(700);

/// A caller that waited for too long while the lock was free, once nothing that went wrong matters
/// any more.
///
/// Only those are looked at that want the lock for themselves, and got it: others are in the way of
/// those that share. The lock is free from the end of the last hold on, whoever waited for it then.
pub(crate) fn check(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    if plan.breach != Breach::None {
        return None;
    }
    let mut holds: Vec<_> = log.holds.iter().filter(|hold| hold.object == object).collect();
    holds.sort_by_key(|hold| hold.from);
    let mut free_since = plan.settled();
    for hold in holds {
        let waits_since = hold.asked.unwrap_or(hold.from).max(free_since);
        let waited = hold.from.saturating_sub(waits_since);
        if hold.mode == LockMode::Exclusive && waited > PAUSE_MAX + OPERATIONS {
            return Some(format!(
                "{object} was free, and this one waited for {waited:?}: {hold:?}"
            ));
        }
        let end = hold.until.as_ref().map_or(Duration::MAX, |(until, _)| *until);
        free_since = free_since.max(end);
    }
    None
}

// Goal: a lock that is free goes to one that waits within the longest pause of a waiter, whatever
// went wrong before, whoever gave up ahead of it, and whatever releases said.
// Method: in all seeds each task takes locks once all is settled; some give up.
#[test]
fn free_lock_goes_to_a_waiter_soon() {
    assert_kept(Invariant::Promptness);
}

// Goal: the check finds a caller that waited too long while the lock was free, and no other.
// Method: made-up holds.
#[test]
fn slow_grants_are_found() {
    let plan = Plan::new(1, super::plan::Disks::Synced);
    let ms = |ms| plan.settled() + Duration::from_millis(ms);
    let found = |holds: &[(u64, u64, u64)]| {
        let holds = holds.iter().map(|(asked, from, until)| Hold {
            asked: Some(ms(*asked)),
            until: Some((ms(*until), HoldEnd::Released)),
            ..Hold::exclusive(0, "a", ms(*from))
        });
        check(&plan, &Log { holds: holds.collect(), ..Log::default() }, "a").is_some()
    };
    assert!(!found(&[(0, 4_000, 5_000), (0, 9_000, 9_001)]));
    assert!(found(&[(0, 4_001, 5_000)]));
    assert!(found(&[(0, 10, 5_000), (0, 9_001, 9_002)]));
    assert!(!found(&[(0, 10, 9_000), (8_000, 9_001, 9_002)]), "it was held");
    assert!(!found(&[(0, 10, 20), (9_000, 9_001, 9_002)]), "nobody wanted it");
}
