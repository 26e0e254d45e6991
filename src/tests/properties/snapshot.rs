//! Admission by any rows: who is there, who blocks whom, and who is let in.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::design;
use super::for_all;
use super::rows::{ME, claim, contender, mode, number, other_than, rows_of, table};
use crate::core::bakery::{
    Blockers, Claim, ContenderId, Mode, QueuePosition, Snapshot, Standing, row_name,
};

// Goal: rows say of each contender what the design's table says; what can't be understood is
// unreadable.
// Method: any rows, each contender compared with the table of the design.
#[test]
fn rows_say_what_the_design_says_of_them() {
    for_all(&table(), |rows| {
        let snapshot = Snapshot::of(&rows);
        for who in design::contenders(&rows) {
            prop_assert_eq!(snapshot.standing(who), design::standing(&rows, who), "{}", who);
        }
        Ok(())
    });
}

// Goal: the largest ticket is the largest that can be read, any contender's, and never negative.
// Method: any rows.
#[test]
fn largest_ticket_is_above_all_that_can_be_read() {
    for_all(&table(), |rows| {
        let understood = rows.iter().filter(|row| design::is_understood(row));
        let tickets = understood.filter(|row| row.row_name == row_name::ENTERING);
        let largest = tickets.filter_map(|row| row.ticket).max().unwrap_or(0);
        prop_assert_eq!(Snapshot::of(&rows).largest_ticket(), largest.max(0));
        Ok(())
    });
}

// Goal: the order in which rows come says nothing.
// Method: any rows, and the same from the last to the first.
#[test]
fn order_of_rows_does_not_matter() {
    for_all(&table(), |rows| {
        let forward = Snapshot::of(&rows);
        let backward = Snapshot::of(&rows.iter().rev().cloned().collect::<Vec<_>>());
        prop_assert_eq!(forward.largest_ticket(), backward.largest_ticket());
        for who in design::contenders(&rows) {
            prop_assert_eq!(forward.standing(who), backward.standing(who));
        }
        Ok(())
    });
}

// Goal: a contender blocks unless it is certain that it is absent, of a mode that goes together
// with mine, or behind me in the queue; and who blocks decides who is let in.
// Method: any rows, any mode, any ticket of mine.
#[test]
fn contender_not_known_to_be_harmless_blocks() {
    for_all(&(table(), mode(), number()), |(rows, mode, ticket)| {
        let snapshot = Snapshot::of(&rows);
        let mine = QueuePosition { ticket, contender: ME };
        let before_drawing = snapshot.blockers_before_ticket(ME, mode);
        let queued = snapshot.blockers_of(mine, mode);
        let mut in_the_way = [Vec::new(), Vec::new()];
        for who in design::contenders(&rows).into_iter().filter(|who| *who != ME) {
            let Some(standing) = design::standing(&rows, who) else {
                prop_assert!(before_drawing.standing(who).is_none(), "{who} is absent");
                continue;
            };
            let together = (mode, standing.mode()) == (Mode::Shared, Some(Mode::Shared));
            let behind = standing.ticket().is_some_and(|theirs| (theirs, who) > (ticket, ME));
            prop_assert_eq!(before_drawing.standing(who), (!together).then_some(standing));
            prop_assert_eq!(queued.standing(who), (!together && !behind).then_some(standing));
            in_the_way[0].push(standing.mode());
            in_the_way[1].extend((!behind).then_some(standing.mode()));
        }
        prop_assert!(before_drawing.standing(ME).is_none() && queued.standing(ME).is_none());
        prop_assert_eq!(before_drawing.admit(mode), design::let_in(mode, &in_the_way[0]));
        prop_assert_eq!(queued.admit(mode), design::let_in(mode, &in_the_way[1]));
        Ok(())
    });
}

// Goal: of two that see each other's tickets and conflict, exactly one waits for the other, so that
// neither both are let in nor both wait for ever.
// Method: any two contenders, any tickets.
#[test]
fn of_two_in_the_queue_exactly_one_is_before_the_other() {
    let queued = || (claim(), number()).prop_map(|(claim, ticket)| with_ticket(claim, ticket));
    for_all(&(queued(), queued()), |(one, other)| {
        let other = Claim { contender: other_than(one.contender, other.contender), ..other };
        let snapshot = Snapshot::of(&[rows_of(&one), rows_of(&other)].concat());
        let blocks = |blocker: &Claim, blocked: &Claim| {
            let blockers = snapshot.blockers_of(place(blocked), blocked.mode);
            blockers.standing(blocker.contender).is_some()
        };
        let conflict = (one.mode, other.mode) != (Mode::Shared, Mode::Shared);
        prop_assert_eq!(blocks(&one, &other) != blocks(&other, &one), conflict);
        Ok(())
    });
}

// Goal: all whom one table lets in may hold at once, be they in the queue or on the fast path; and
// where all have drawn, the first of them is let in.
// Method: contenders with or without tickets; limited ones agree on how many. Then any rows of
// others as well, which may only keep them out.
#[test]
fn whom_one_table_lets_in_may_hold_at_once() {
    let claims = btree_map(contender(), claim(), 1..6);
    for_all(&(claims, 1_i32..4, table()), |(claims, most, others)| {
        let claims: Vec<_> =
            claims.into_iter().map(|(who, claim)| agreed(claim, who, most)).collect();
        let rows: Vec<_> = claims.iter().flat_map(rows_of).collect();
        let inside = let_in(&claims, &Snapshot::of(&rows));
        prop_assert!(may_hold_at_once(&inside), "{inside:?} are all let in");
        if claims.iter().all(|claim| claim.ticket.is_some()) {
            let first = claims.iter().min_by_key(|claim| place(claim)).expect("there is one");
            prop_assert!(inside.contains(&first), "{first:?} waits for no contender");
        }
        let known: Vec<_> = claims.iter().map(|claim| claim.contender).collect();
        let others = others.into_iter().filter(|row| !known.contains(&row.contender));
        let beside_others =
            let_in(&claims, &Snapshot::of(&rows.into_iter().chain(others).collect::<Vec<_>>()));
        prop_assert!(beside_others.iter().all(|claim| inside.contains(claim)));
        Ok(())
    });
}

// Goal: blockers only leave, each by a look at itself or a whole read that shows that exactly that
// pair of contender and round is absent, on another round or behind me, or shares the object as I
// want to; none is added.
// Method: blockers of any table, then looks and whole reads that show any other tables.
#[test]
fn blockers_leave_only_when_they_are_seen_gone() {
    let looks = vec((proptest::option::of(contender()), table()), 1..5);
    for_all(&(table(), mode(), number(), looks), |(rows, mode, ticket, looks)| {
        let mine = QueuePosition { ticket, contender: ME };
        let mut blockers = Snapshot::of(&rows).blockers_of(mine, mode);
        for (asked, rows) in looks {
            let before = standings(&blockers);
            let snapshot = Snapshot::of(&rows);
            match asked {
                Some(who) => _ = blockers.look(who, &snapshot, mine, mode),
                None => _ = blockers.confirm(&snapshot, mine, mode),
            }
            let after = standings(&blockers);
            prop_assert!(after.keys().all(|who| before.contains_key(who)), "one was added");
            for (who, blocker) in before {
                let seen = asked.is_none_or(|asked| asked == who);
                let now = design::standing(&rows, who);
                let shares = mode == Mode::Shared && now.and_then(Standing::mode) == Some(mode);
                let gone = seen && (shares || is_gone(blocker, now, who, mine));
                prop_assert_eq!(after.contains_key(&who), !gone, "{} in {:?}", who, &rows);
            }
        }
        Ok(())
    });
}

fn is_gone(
    blocker: Standing,
    seen: Option<Standing>,
    who: ContenderId,
    mine: QueuePosition,
) -> bool {
    let Some(seen) = seen else {
        return true;
    };
    let behind =
        seen.ticket().is_some_and(|ticket| QueuePosition { ticket, contender: who } > mine);
    let rounds = blocker.round().zip(seen.round());
    behind || rounds.is_some_and(|(before, now)| before != now)
}

fn standings(blockers: &Blockers) -> BTreeMap<ContenderId, Standing> {
    blockers.iter().collect()
}

/// Of these, whom the table lets in.
fn let_in<'a>(claims: &'a [Claim], snapshot: &Snapshot) -> Vec<&'a Claim> {
    let is_let_in = |claim: &&Claim| {
        let blockers = match claim.ticket {
            Some(_) => snapshot.blockers_of(place(claim), claim.mode),
            None => snapshot.blockers_before_ticket(claim.contender, claim.mode),
        };
        blockers.admit(claim.mode)
    };
    claims.iter().filter(is_let_in).collect()
}

/// Told without a word of tickets: what exclusive, shared and limited mean.
fn may_hold_at_once(inside: &[&Claim]) -> bool {
    let modes: Vec<_> = inside.iter().map(|claim| claim.mode).collect();
    modes.len() <= 1
        || modes.iter().all(|mode| *mode == Mode::Shared)
        || modes.iter().all(|mode| match mode {
            Mode::Limited(most) => i32::try_from(modes.len()).is_ok_and(|inside| inside <= *most),
            Mode::Exclusive | Mode::Shared => false,
        })
}

fn agreed(claim: Claim, contender: ContenderId, most: i32) -> Claim {
    let mode = match claim.mode {
        Mode::Limited(_) => Mode::Limited(most),
        Mode::Exclusive | Mode::Shared => claim.mode,
    };
    Claim { contender, mode, ..claim }
}

fn with_ticket(claim: Claim, ticket: i64) -> Claim {
    Claim { ticket: Some(ticket), ..claim }
}

fn place(claim: &Claim) -> QueuePosition {
    let ticket = claim.ticket.expect("only those are asked that have a ticket");
    QueuePosition { ticket, contender: claim.contender }
}
