//! A client that has drawn a ticket is let in before every client that announces itself later, or
//! gives up. Callers of one client are let in in the order in which they asked. Who has the place
//! ahead gives turns for 100 ms more once it knows that another one waits in the table.

use std::collections::BTreeMap;
use std::time::Duration;

use bakery_lock::LockMode;
use bakery_lock::testing::{LineKind, LineRecord, WriteKind, WriteRecord};

use super::batch::{Invariant, assert_kept};
use super::log::{Hold, Log, RoundOf, conflict, nanos};
use super::plan::{Disks, Plan};
use support::history::{Round, overtaking_of};

/// A client that was overtaken, and the one that overtook it.
pub(crate) fn check(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    let rounds = overtaken_in_table(log, object);
    let rounds = rounds.or_else(|| overtaken_in_line(log, object));
    rounds.or_else(|| overtaken_by_turns(plan, log, object))
}

/// A client that one overtook that came to the table later. Those that may hold together may be let
/// in in any order: each finds out by itself that those ahead have left.
fn overtaken_in_table(log: &Log, object: &str) -> Option<String> {
    let rounds = log.rounds(object);
    let exclusive = LockMode::Exclusive;
    let modes = rounds.iter().map(|of| of.mode).filter(|mode| *mode != exclusive);
    let mut modes: Vec<_> = modes.collect();
    modes.dedup();
    modes.push(exclusive);
    modes.into_iter().find_map(|mode| {
        let rounds = |counts: &dyn Fn(LockMode) -> bool| -> Vec<Round> {
            rounds.iter().filter(|of| counts(of.mode)).map(|of| of.round).collect()
        };
        let waiting = rounds(&|other| conflict(mode, other));
        let two = overtaking_of(&waiting, &rounds(&|other| other == mode))?;
        Some(format!("overtaken at {object}: {two:?}"))
    })
}

/// A waiter in the table that was overtaken by turns for too long, while messages flow.
///
/// A keeper looks whether others wait as it gives a turn, if it has held its place for 50 ms and
/// its last look began 50 ms ago, so of the turns that begin once the waiter's ticket is on all
/// replicas, the first one that is given 50 ms after another begins with a look, or after one; a
/// guest's turn was given a message before it begins. The answer comes within a request; then turns
/// are given for another 100 ms, and the last one goes to its guest. A turn may last for any time.
/// Waiters that take turns of others are left out: who stands in the keeper's line overtakes
/// itself.
fn overtaken_by_turns(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    if !plan.lets_messages_flow() {
        return None;
    }
    let takes_turns = |client| log.lines.iter().any(|line| line.guest == client);
    // A limited place is used once.
    let is_turn = |hold: &&Hold| !matches!(hold.mode, LockMode::Limited { .. });
    let turns = log.holds.iter().filter(|hold| hold.object == object).filter(is_turn);
    let mut turns: Vec<_> = turns.collect();
    turns.sort_by_key(|turn| turn.from);
    let rounds = log.rounds(object).into_iter().filter(|of| !takes_turns(of.client));
    rounds.into_iter().find_map(|waiter| {
        let last = last_turn_beside(plan, &turns, waiter)?;
        Some(format!("overtaken at {object} by turns: {waiter:?}, {last:?}"))
    })
}

/// A turn of another client that should have been left to this waiter.
fn last_turn_beside<'a>(plan: &Plan, turns: &[&'a Hold], waiter: RoundOf) -> Option<&'a Hold> {
    let RoundOf { client, mode, round } = waiter;
    let known = Duration::from_nanos(round.drawn?) + plan.round_trip();
    let beside = turns.iter().filter(|turn| turn.keeper != client && known <= turn.from);
    let beside = beside.filter(|turn| conflict(turn.mode, mode));
    let beside = beside.filter(|turn| nanos(turn.from) < round.end.time());
    let mut first = BTreeMap::<usize, Duration>::new();
    let mut ends = BTreeMap::<usize, Duration>::new();
    let way = plan.way_between_clients();
    let after = plan.round_trip() + BESIDE + way + ROUNDING;
    beside.copied().find(|turn| {
        let first = first.entry(turn.keeper).or_insert(turn.from);
        turn.from >= *first + LOOKS_EVERY + way
            && turn.from > *ends.entry(turn.keeper).or_insert(turn.from + after)
    })
}

/// How often a keeper looks whether others wait in the table, and for how long it gives turns once
/// it knows.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
const BESIDE: Duration = Duration::from_millis(100);

/// Whole milliseconds are all that a timer knows.
const ROUNDING: Duration = Duration::from_millis(10);

/// A caller that was overtaken by one of the same client that asked later.
fn overtaken_in_line(log: &Log, object: &str) -> Option<String> {
    let mut latest = BTreeMap::<usize, &Hold>::new();
    // A client notes its holds in the order of their grants.
    let stands_in_line =
        |hold: &&Hold| hold.asked.is_some() && !matches!(hold.mode, LockMode::Limited { .. });
    let mut holds = log.holds.iter().filter(|hold| hold.object == object).filter(stands_in_line);
    holds.find_map(|hold| {
        let before = latest.get(&hold.client).copied();
        if before.is_none_or(|before| before.asked < hold.asked) {
            latest.insert(hold.client, hold);
        }
        let before = before.filter(|before| hold.asked < before.asked)?;
        Some(format!("overtaken in the line of {object}: {before:?}, {hold:?}"))
    })
}

// Goal: no client is overtaken by one that came after its ticket was acknowledged, and no caller by
// one of its client that asked later.
// Method: the histories of all seeds.
#[test]
fn no_client_is_overtaken() {
    assert_kept(Invariant::Fifo);
}

// Goal: the check finds a caller that another one of its client overtook, and no other.
// Method: made-up grants of two clients.
#[test]
fn callers_that_were_overtaken_are_found() {
    let ms = Duration::from_millis;
    let found = |grants: &[(usize, u64)]| {
        let holds = grants.iter().zip(100..).map(|((client, asked), from)| Hold {
            asked: Some(ms(*asked)),
            ..Hold::exclusive(*client, "a", ms(from))
        });
        overtaken_in_line(&Log { holds: holds.collect(), ..Log::default() }, "a").is_some()
    };
    assert!(!found(&[(1, 5), (1, 6), (1, 6), (1, 9)]));
    assert!(!found(&[(1, 5), (2, 3), (1, 6), (2, 4)]), "clients have lines of their own");
    assert!(found(&[(1, 5), (2, 3), (1, 4)]));
    assert!(found(&[(1, 9), (1, 12), (1, 10), (1, 13)]));
}

// Goal: the check finds a waiter in the table that turns overtake for too long, and leaves the turn
// alone that is under way, and waiters in the line.
// Method: made-up writes of the waiter, and made-up turns of another client. A request takes 10 ms,
// a message 6.
#[test]
fn turns_beside_a_waiter_are_found() {
    let ms = Duration::from_millis;
    let mut plan = Plan::new(1, Disks::Synced);
    plan.deeds.clear();
    (plan.conditions.latency, plan.weather.latency) = (5, 1);
    plan.let_messages_flow();
    let found = |turns: &[u64], lines: &[LineRecord]| {
        let hold = |client: usize, from: u64| Hold::exclusive(client, "a", ms(from));
        let mut holds: Vec<_> = turns.iter().map(|from| hold(0, *from)).collect();
        holds.push(hold(1, 20_000));
        let mode = LockMode::Exclusive;
        let kind = WriteKind::Put { round: 1, mode, ticket: Some(2), ttl: ms(60_000) };
        let acknowledged = Some(ms(1_000));
        let drawn = WriteRecord {
            client: 1,
            object: "a".to_owned(),
            slot: 0,
            stamp: 1,
            sent: ms(990),
            acknowledged,
            kind,
        };
        let lines = lines.to_vec();
        overtaken_by_turns(&plan, &Log { holds, lines, writes: vec![drawn], ..Log::default() }, "a")
            .is_some()
    };
    // On all replicas from 1,010 ms on. From the second turn then, 126 ms are allowed.
    assert!(!found(&[900, 1_009, 1_010, 1_066, 1_192], &[]));
    assert!(found(&[900, 1_009, 1_010, 1_066, 1_193], &[]));
    assert!(found(&[900, 1_010, 1_065, 1_100, 1_227], &[]));
    assert!(!found(&[900, 1_010, 1_065, 9_000], &[]), "given 50 ms after another, or 49");
    assert!(!found(&[900, 5_000, 9_000, 9_126], &[]), "turns last long");
    let asks = LineRecord {
        keeper: 0,
        guest: 1,
        object: "a".to_owned(),
        request: 1,
        at: ms(1_100),
        kind: LineKind::Asks,
    };
    assert!(!found(&[1_100, 1_200, 1_327], &[asks]), "it stands in the line");
}
