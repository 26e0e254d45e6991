//! At most one guard of a lock is valid, by its own clock, at any moment, unless a promise is
//! broken on purpose: see [`overlap`](super::overlap).

use std::collections::BTreeMap;
use std::time::Duration;

use bakery_lock::LockMode;

use super::batch::{Invariant, assert_kept};
use super::log::{Hold, HoldEnd, Log, nanos};
use super::overlap::overlaps;
use support::history::{Moment, inside};

/// Two clients that held an object at the same time and must not, or more of a limited number than
/// that.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    let first = overlaps(log, object).into_iter().next();
    let two = first.map(|two| format!("two clients hold {object} together: {two:?}"));
    two.or_else(|| too_many(log, object))
}

/// That more held than the limit allows.
fn too_many(log: &Log, object: &str) -> Option<String> {
    let mut limited = BTreeMap::<u32, Vec<Moment>>::new();
    for hold in log.holds.iter().filter(|hold| hold.object == object) {
        if let LockMode::Limited { max_holders } = hold.mode {
            let (until, _) = hold.until.as_ref().expect("a hold has an end when the run has");
            let held = Moment::Held { from: nanos(hold.from), until: nanos(*until) };
            limited.entry(max_holders).or_default().push(held);
        }
    }
    limited.into_iter().find_map(|(limit, held)| {
        let (most, _) = inside(&held, u64::MAX);
        (most > limit as usize).then(|| format!("{most} hold {object} at once, limited to {limit}"))
    })
}

// Goal: no two clients hold a lock together, whatever goes wrong.
// Method: the histories of all seeds.
#[test]
fn no_two_clients_hold_together() {
    assert_kept(Invariant::MutualExclusion);
}

// Goal: the check finds two that must not hold together, and one above the limit, and leaves those
// alone that share.
// Method: made-up histories.
#[test]
fn conflicting_holds_are_found() {
    use LockMode::{Exclusive, Shared};
    let found = |holds: &[(LockMode, u64, u64)]| {
        let ms = Duration::from_millis;
        let holds = holds.iter().zip(0..).map(|((mode, from, until), client)| Hold {
            mode: *mode,
            until: Some((ms(*until), HoldEnd::Released)),
            ..Hold::exclusive(client, "a", ms(*from))
        });
        check(&Log { holds: holds.collect(), ..Log::default() }, "a").is_some()
    };
    let limited = LockMode::Limited { max_holders: 2 };
    assert!(!found(&[(Exclusive, 0, 5), (Exclusive, 5, 9)]));
    assert!(found(&[(Exclusive, 0, 6), (Exclusive, 5, 9)]));
    assert!(!found(&[(Shared, 0, 6), (Shared, 5, 9), (Shared, 5, 9)]));
    assert!(found(&[(Shared, 0, 6), (Exclusive, 5, 9)]));
    assert!(found(&[(Shared, 0, 6), (limited, 5, 9)]));
    assert!(!found(&[(limited, 0, 6), (limited, 5, 9), (limited, 6, 9)]));
    assert!(found(&[(limited, 0, 6), (limited, 5, 9), (limited, 5, 9)]));
    assert!(found(&[(limited, 0, 6), (LockMode::Limited { max_holders: 3 }, 5, 9)]));
}
