//! Fencing tokens of an object grow.

use std::time::Duration;

use bakery_lock::LockMode;

use super::batch::{Invariant, assert_kept};
use super::log::{Hold, Log, Token, nanos};
use super::plan::{Breach, Plan};
use support::history::{Drawn, disorder};

/// A token that was requested after another one was given, and is not above it.
pub(crate) fn check(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    let of_object = log.tokens.iter().filter(|token| token.object == object);
    // A keeper reserves tokens, and hands them out without asking the database again. When it was
    // removed they are below all that its successors reserve, which the order of holders shows, but
    // may be given later. And where rows were lost, one that holds beside it may draw larger ones.
    let is_left_over = |token: &&Token| {
        let keeper = log.holds[token.hold].keeper;
        let mut lost = log.losses.iter().filter(|loss| loss.object == object);
        let mut breaks = log.breaks(keeper, object).into_iter();
        let is_broken = match plan.breach {
            Breach::None => false,
            Breach::LostRows => lost.any(|loss| loss.at <= token.given),
            Breach::Force => breaks.any(|broken| broken <= token.given),
        };
        log.lenders.contains(&keeper) && is_broken
    };
    let of_object = of_object.filter(|token| !is_left_over(token));
    let drawn = of_object.map(|token| {
        // One of a block is given at once; by the clock of the simulation that takes no time, and
        // it would seem to be asked for after itself.
        let (asked, given) = (nanos(token.asked), nanos(token.given).max(nanos(token.asked) + 1));
        // Those that share have the value of the last one before them, so they count as above it by
        // less than the next one is.
        let value = token.value * 2 + i64::from(is_shared(log, token));
        (is_shared(log, token), Drawn { asked, given, value })
    });
    let (shared, drawn): (Vec<_>, Vec<_>) = drawn.partition(|(is_shared, _)| *is_shared);
    let drawn: Vec<_> = drawn.into_iter().map(|(_, drawn)| drawn).collect();
    let found = disorder(&drawn).or_else(|| {
        // Each by itself among those that hold alone; those that share may have the same.
        shared.into_iter().find_map(|(_, one)| disorder(&[&drawn[..], &[one]].concat()))
    });
    found.map(|found| format!("tokens do not grow: {found:?}"))
}

fn is_shared(log: &Log, token: &Token) -> bool {
    log.holds[token.hold].mode == LockMode::Shared
}

/// A token of a holder that is not below each one of a holder that was granted after it, whenever
/// the two were drawn.
pub(crate) fn check_order(log: &Log, object: &str) -> Option<String> {
    let mut drawn: Vec<_> = log.tokens.iter().filter(|token| token.object == object).collect();
    // A keeper that was removed and does not know yet gives turns, and hands out what it had
    // reserved: these turns count as of its removal.
    let granted = |token: &Token| {
        let hold = &log.holds[token.hold];
        let removed = log.removed(hold, hold.from).filter(|_| log.lenders.contains(&hold.keeper));
        removed.unwrap_or(hold.from)
    };
    drawn.sort_by_key(|token| (granted(token), token.value));
    // Those that hold together may draw in any order, and those that share have the same value as
    // the last one before them that held alone.
    let is_wrong =
        |before: &&Token, next: &Token| match (is_shared(log, before), is_shared(log, next)) {
            (true, true) => false,
            (false, true) => before.value > next.value,
            (true | false, false) => before.value >= next.value,
        };
    let mut largest_before = [None::<&Token>; 2];
    for tokens in drawn.chunk_by(|one, other| granted(one) == granted(other)) {
        for next in tokens {
            let before = largest_before.into_iter().flatten();
            if let Some(before) = before.into_iter().find(|before| is_wrong(before, next)) {
                let (first, second) = (granted(before), granted(next));
                return Some(format!(
                    "granted at {first:?}, it has {before:?}; granted at {second:?}, it has \
                     {next:?}"
                ));
            }
        }
        for next in tokens {
            let largest = &mut largest_before[usize::from(is_shared(log, next))];
            *largest = largest.filter(|before| before.value > next.value).or(Some(next));
        }
    }
    None
}

// Goal: a token is above all that were given before it was asked for.
// Method: the histories of all seeds.
#[test]
fn tokens_grow() {
    assert_kept(Invariant::Tokens);
}

// Goal: tokens grow from holder to holder, whenever they are drawn.
// Method: the histories of all seeds.
#[test]
fn tokens_grow_from_holder_to_holder() {
    assert_kept(Invariant::TokenOrder);
}

// Goal: the check finds a token of an earlier holder above one of a later holder, whenever they
// were drawn, and minds none of the same holder or of holders of other objects.
// Method: made-up holds and tokens.
#[test]
fn tokens_out_of_order_are_found() {
    let ms = Duration::from_millis;
    let found = |tokens: &[(usize, i64)]| {
        let mut log = Log::default();
        for (client, object, from) in [(0, "a", 10), (1, "a", 20), (2, "b", 15)] {
            log.holds.push(Hold::exclusive(client, object, ms(from)));
        }
        for (hold, value) in tokens {
            let Hold { client, object, from, .. } = log.holds[*hold].clone();
            let (asked, given) = (from + ms(1), from + ms(100));
            log.tokens.push(Token { hold: *hold, client, object, asked, given, value: *value });
        }
        check_order(&log, "a").is_some()
    };
    assert!(!found(&[(0, 5), (0, 6), (1, 7), (1, 9), (1, 8)]));
    assert!(found(&[(0, 5), (0, 7), (1, 7)]));
    assert!(found(&[(1, 7), (0, 8)]));
    assert!(!found(&[(0, 5), (1, 7), (2, 6)]));
}
