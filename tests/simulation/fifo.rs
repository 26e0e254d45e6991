//! A client that has drawn a ticket is let in before every client that announces itself later, or
//! gives up. Callers of one client are let in in the order in which they asked.

use std::collections::BTreeMap;
use std::time::Duration;

use super::batch::{Invariant, assert_kept};
use super::log::{Hold, Log};
use support::history::overtaking;

/// A client that was overtaken, and the one that overtook it.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    let rounds = overtaking(&log.rounds(object));
    let rounds = rounds.map(|two| format!("overtaken at {object}: {two:?}"));
    rounds.or_else(|| overtaken_in_line(log, object))
}

/// A caller that was overtaken by one of the same client that asked later.
fn overtaken_in_line(log: &Log, object: &str) -> Option<String> {
    let mut latest = BTreeMap::<usize, &Hold>::new();
    // A client notes its holds in the order of their grants.
    let mut holds = log.holds.iter().filter(|hold| hold.object == object);
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
            client: *client,
            object: "a".to_owned(),
            ttl: ms(5_000),
            renews: true,
            asked: ms(*asked),
            from: ms(from),
            until: None,
        });
        overtaken_in_line(&Log { holds: holds.collect(), ..Log::default() }, "a").is_some()
    };
    assert!(!found(&[(1, 5), (1, 6), (1, 6), (1, 9)]));
    assert!(!found(&[(1, 5), (2, 3), (1, 6), (2, 4)]), "clients have lines of their own");
    assert!(found(&[(1, 5), (2, 3), (1, 4)]));
    assert!(found(&[(1, 9), (1, 12), (1, 10), (1, 13)]));
}
