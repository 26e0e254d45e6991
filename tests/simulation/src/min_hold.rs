//! A lock stays taken for as long as its holder asked, whatever becomes of that one.

use std::time::Duration;

use bakery_lock::testing::WriteKind;

use super::acknowledged::sees_a_leftover;
use super::batch::{Invariant, assert_kept};
use super::log::{Hold, HoldEnd, Log, Uncollected};
use super::plan::{Deed, Disks, Plan};

/// A holder that was let in while the lock was to stay taken.
///
/// Like any other, a place that stays taken gives way to leftover rows of an earlier holder that
/// seem to be a later one's; whoever waits for its release is told.
///
/// A wall clock that is set ahead is to a client as if it had slept: `min_hold` ends earlier by as
/// much, and after hours its rows have expired.
pub(crate) fn check(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    if plan.has_wrong_clocks() {
        return None;
    }
    let set_ahead = plan.set_ahead();
    let of_object = || log.holds.iter().enumerate().filter(|(_, hold)| hold.object == object);
    for (number, hold) in of_object().filter(|(_, hold)| !hold.min_hold.is_zero()) {
        let until = hold.from + hold.min_hold.saturating_sub(set_ahead);
        let mut others = of_object().filter(|(other, _)| *other != number);
        let early = others.find(|(_, next)| {
            // One that began and ended at the same moment was before it.
            let was_before = next.until.as_ref().is_some_and(|(ended, _)| *ended <= hold.from);
            !was_before && next.from >= hold.from && next.from < until
        });
        if let Some((_, early)) = early
            && !is_taken_away(log, hold, until)
            && !sees_a_leftover(plan, log, hold.client, object, early.from)
        {
            return Some(format!("{early:?} although it was to stay taken: {hold:?}"));
        }
    }
    None
}

/// Whether a client that shuts down at this time leaves its rows behind, so that its place stays
/// taken.
pub(crate) fn stays_taken(log: &Log, client: usize, object: &str, asked: Duration) -> bool {
    let mut holds = log.holds.iter().filter(|h| h.client == client && h.object == object);
    let mut uncollected = log.uncollected.iter();
    holds.any(|hold| hold.from + hold.min_hold > asked)
        || uncollected.any(|it| it.client == client && it.object == object && it.until > asked)
}

/// Whether others made the holder leave, or removed it once it had died.
fn is_taken_away(log: &Log, hold: &Hold, until: Duration) -> bool {
    let mut requests = log.requests_to_leave(hold.client, &hold.object);
    requests.any(|request| request.sent < until)
        || log.removals(hold.client, &hold.object).any(|removal| removal.sent < until)
}

// Goal: rows may be left by a client that is shut down before a `min_hold` is over, also one whose
// caller did not get the lock that it was granted.
// Method: made-up histories.
#[test]
fn uncollected_grant_keeps_its_place() {
    let ms = Duration::from_millis;
    let holds = vec![Hold { min_hold: ms(500), ..Hold::exclusive(0, "a", ms(100)) }];
    let held = Log { holds, ..Log::default() };
    let uncollected = vec![Uncollected { client: 0, object: "a".to_owned(), until: ms(600) }];
    let granted = Log { uncollected, ..Log::default() };
    for log in [held, granted] {
        assert!(stays_taken(&log, 0, "a", ms(599)));
        assert!(!stays_taken(&log, 0, "a", ms(600)));
        assert!(!stays_taken(&log, 0, "b", ms(599)) && !stays_taken(&log, 1, "a", ms(599)));
    }
}

// Goal: nothing that goes wrong ends a lock before its `min_hold` is over.
// Method: the histories of all seeds.
#[test]
fn lock_stays_taken_for_min_hold() {
    assert_kept(Invariant::MinHold);
}

// Goal: the check finds a holder that comes too early, unless the one before was removed.
// Method: made-up histories.
#[test]
fn early_holder_is_found() {
    use bakery_lock::testing::WriteRecord;
    let ms = Duration::from_millis;
    let log = |next| {
        let min_hold = ms(500);
        let first = Hold { min_hold, ..Hold::exclusive(0, "a", ms(100)) };
        let holds = vec![first, Hold::exclusive(1, "a", ms(next))];
        Log { holds, ..Log::default() }
    };
    let mut plan = Plan::new(1, Disks::Synced);
    plan.deeds.clear();
    assert!(check(&plan, &log(599), "a").is_some());
    assert!(check(&plan, &log(600), "a").is_none());
    assert!(check(&plan, &log(99), "a").is_none(), "it was there before");
    assert!(check(&plan, &log(599), "b").is_none());
    let mut at_once = log(100);
    assert!(check(&plan, &at_once, "a").is_some());
    at_once.holds[1].until = Some((ms(100), HoldEnd::Released));
    assert!(check(&plan, &at_once, "a").is_none(), "it was there before");
    plan.machines[0].wall_error = 0;
    plan.deeds = [(300, 50_000), (350, 0), (400, 50_000)]
        .map(|(at, ahead)| (ms(at), Deed::Step { machine: 0, wall_error: ahead }))
        .to_vec();
    assert!(check(&plan, &log(499), "a").is_some());
    assert!(check(&plan, &log(500), "a").is_none(), "the clock was set ahead twice");
    let mut removed = log(599);
    let (object, kind) = ("a".to_owned(), WriteKind::Delete { of: 0 });
    let (sent, acknowledged) = (ms(300), None);
    removed.writes.push(WriteRecord {
        client: 1,
        object,
        slot: 0,
        stamp: 1,
        sent,
        acknowledged,
        kind,
    });
    assert!(check(&plan, &removed, "a").is_none());
}
