//! What was acknowledged is there as long as it must be, so no client is told that it is not,
//! unless it was lost or removed on purpose.

use std::time::Duration;

use bakery_lock::testing::{LossRecord, WriteKind, WriteRecord};

use super::batch::{Invariant, assert_kept};
use super::log::{Failure, Hold, HoldEnd, Log};
use super::plan::{Breach, Deed, Disks, MAX_CLOCK_SKEW, Plan};

/// A client that was told what can't be while replicas keep what they acknowledged and clocks are
/// within their bound.
pub(crate) fn check(plan: &Plan, log: &Log) -> Option<String> {
    let has = |words: &[&str], why: &str| words.iter().any(|word| why.contains(word));
    let is_impossible = |client: usize, object: &str, at: Duration, why: &str| {
        let breaks = |client| log.breaks(client, object).iter().any(|broken| *broken <= at);
        if has(&["not shown"], why) {
            // A guest looks for the rows of its keeper.
            let mut own = log.holds.iter().filter(|h| h.client == client && h.object == object);
            !breaks(client) && !own.any(|hold| hold.from <= at && breaks(hold.keeper))
        } else if has(&["RowMissing"], why) {
            !breaks(client)
        } else if why.contains("Conflict") {
            // It holds together with another client, of which one has lost its rows.
            let is_broken = log.holds.iter().any(|h| h.object == object && breaks(h.keeper));
            (plan.breach == Breach::None || !is_broken)
                && !sees_a_leftover(plan, log, client, object, at)
        } else {
            // To a clock that is hours behind, a fence is hours ahead.
            let may_be_poisoned = plan.has_wrong_clocks() || plan.has_fence_ahead(object);
            has(&["Poisoned"], why) && !may_be_poisoned
                || has(&["Refused", "NoTicketLeft", "MarkOutOfReach"], why)
        }
    };
    let mut told = log.told();
    let (client, _, at, why) = told.find(|told| is_impossible(told.0, told.1, told.2, told.3))?;
    Some(format!("client {client} was told at {at:?}: {why}"))
}

/// Whether a holder may have seen rows of an earlier holder, of which the delete was not
/// acknowledged. The read that let it in showed them deleted, but replicas that never repair what
/// they are asked for may show them again. They conflict if they seem to be the later holder's,
/// whose clock is ahead by more than lies between the two grants. Wrong clocks say nothing of the
/// time, nor do stamps that are raised above the mark of one.
pub(crate) fn sees_a_leftover(
    plan: &Plan,
    log: &Log,
    client: usize,
    object: &str,
    at: Duration,
) -> bool {
    let says_nothing = plan.has_marks_ahead() || plan.has_wrong_clocks();
    let may_be_ahead = |by| by <= 2 * MAX_CLOCK_SKEW || says_nothing;
    let holds = || log.holds.iter().filter(|hold| hold.object == object);
    let mut mine = holds().filter(|hold| hold.keeper == client && hold.from <= at);
    let Some(mine) = mine.next_back() else { return false };
    // One that was let in as it was shut down held the object without a caller that knows.
    let mut closed = log.failures.iter().filter(|failure| failure.why == "Closed");
    let is_of_closed = closed.any(|other| {
        let deleted = log.writes.iter().any(|write| {
            let is_delete = matches!(write.kind, WriteKind::Delete { of } if of == other.client);
            let is_acknowledged = write.acknowledged.is_some_and(|at| at <= mine.from);
            is_delete && write.object == object && write.sent >= other.at && is_acknowledged
        });
        other.client != client && other.object == object && other.at <= mine.from && !deleted
    });
    is_of_closed
        || holds().any(|other| {
            let ended = other.until.as_ref().is_some_and(|(until, _)| *until <= mine.from);
            let deleted = log.writes.iter().any(|write| {
                let is_delete =
                    matches!(write.kind, WriteKind::Delete { of } if of == other.keeper);
                is_delete
                    && (write.slot, write.object.as_str()) == (other.slot, object)
                    && write.sent >= other.from
                    && write.acknowledged.is_some_and(|acknowledged| acknowledged <= mine.from)
            });
            other.keeper != client
                && ended
                && !deleted
                && may_be_ahead(mine.from.saturating_sub(other.from))
        })
}

/// A caller that was told that its rows are missing although it had its place in the queue: it only
/// must queue again.
///
/// A loss is in the way of contenders that are choosing, and they find it within the four requests
/// of the doorway. A waiter finds it later.
pub(crate) fn check_waiters(plan: &Plan, log: &Log) -> Option<String> {
    if plan.breach != Breach::LostRows || !plan.lets_messages_flow() {
        return None;
    }
    let told = log.failures.iter().find(|told| {
        let since = told.at.saturating_sub(plan.round_trip() * 4);
        let mut breaks = log.breaks(told.client, &told.object).into_iter();
        told.why == "RowMissing" && !breaks.any(|broken| (since..=told.at).contains(&broken))
    });
    told.map(|Failure { client, at, .. }| {
        format!("client {client} was told at {at:?} that its rows are missing, and waits no longer")
    })
}

// Goal: no row that was acknowledged is missing, and no token is refused as poisoned.
// Method: what callers and holders were told, in all seeds.
#[test]
fn nothing_acknowledged_is_missing() {
    assert_kept(Invariant::Acknowledged);
}

// Goal: a holder may be told of an earlier holder only if the rows of that holder may be left.
// Method: made-up histories, in which the delete is acknowledged, or the earlier holder held long
// ago.
#[test]
fn conflicts_with_leftovers_are_no_violation() {
    let s = Duration::from_secs;
    let mut plan = Plan::new(1, Disks::Synced);
    plan.deeds.clear();
    let found = |plan: &Plan, first_from, acknowledged| {
        let hold = |client, from, until, end| Hold {
            until: Some((until, end)),
            ..Hold::exclusive(client, "a", from)
        };
        let holds = vec![
            hold(0, s(first_from), s(11), HoldEnd::Released),
            hold(1, s(12), s(15), HoldEnd::Lost("Conflict".to_owned())),
        ];
        let delete = WriteRecord {
            client: 0,
            object: "a".to_owned(),
            slot: 0,
            stamp: 11_000_000,
            sent: s(11),
            acknowledged,
            kind: WriteKind::Delete { of: 0 },
        };
        let log = Log { holds, writes: vec![delete], ..Log::default() };
        check(plan, &log).is_some()
    };
    assert!(!found(&plan, 10, None) && !found(&plan, 10, Some(s(13))));
    assert!(found(&plan, 10, Some(s(12))), "a read after that shows the delete");
    assert!(found(&plan, 9, None), "clocks do not differ by so much");
    for wrong in
        [Deed::Mark { object: 0, off_by: 1 }, Deed::Step { machine: 0, wall_error: -3_000_000 }]
    {
        plan.deeds = vec![(s(5), wrong)];
        assert!(!found(&plan, 9, None), "its stamps may be far ahead");
        assert!(found(&plan, 9, Some(s(12))), "a read after that shows the delete");
    }
}

// Goal: the check finds a waiter that is sent away because of lost rows, and leaves contenders in
// the doorway alone.
// Method: made-up histories. A request takes 10 ms.
#[test]
fn waiters_that_are_sent_away_are_found() {
    let ms = Duration::from_millis;
    let mut plan = Plan::with_breach(1, Breach::LostRows);
    plan.deeds.clear();
    plan.conditions.latency = 5;
    plan.let_messages_flow();
    let found = |client, lost| {
        let (object, row_name) = ("a".to_owned(), "entering::".to_owned());
        let losses = vec![LossRecord { client, object, row_name, at: ms(lost) }];
        let (object, why) = ("a".to_owned(), "RowMissing".to_owned());
        let failures = vec![Failure { client: 0, object, at: ms(100), why }];
        check_waiters(&plan, &Log { losses, failures, ..Log::default() }).is_some()
    };
    assert!(!found(0, 60) && !found(0, 100));
    assert!(found(0, 59) && found(0, 101) && found(1, 60));
}
