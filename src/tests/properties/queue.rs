//! Whom a waiting contender asks, whatever it is shown.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::for_all;
use super::rows::{ME, mode, number, table};
use crate::core::bakery::{ContenderId, Question, Queue, QueuePosition, Read, Snapshot};

// Goal: a contender that is asked for is one of the blockers and can be asked by key; once none
// is in the way, all rows are read; and no pause is longer than 1.25 s or next to none.
// Method: the queue ahead in any table, then answers that show any other tables, at any pace.
#[test]
fn questions_are_to_the_point_and_pauses_are_bounded() {
    let looks = vec((time(), 0.0..1.0, table()), 1..5);
    let cases = (table(), mode(), number(), time(), looks);
    for_all(&cases, |(rows, mode, ticket, doorway, looks)| {
        let mine = QueuePosition { ticket, contender: ME };
        let mut now = Duration::from_secs(1_000);
        let mut queue = Queue::new(mine, mode, &Snapshot::of(&rows), now, doorway);
        for (round_trip, jitter, rows) in looks {
            let snapshot = Snapshot::of(&rows);
            now += round_trip;
            match queue.question() {
                Question::All => _ = queue.confirmed(&snapshot, now),
                Question::Front => {
                    let blockers = queue.blockers().iter().map(|(contender, _)| contender);
                    let Some(Read::Front { own: ME, ahead }) = queue.front() else {
                        return Err(TestCaseError::fail("it asks for other rows"));
                    };
                    let ahead = ahead.into_iter().flatten();
                    prop_assert!(ahead.clone().eq(blockers), "it asks for all blockers");
                    for who in ahead {
                        prop_assert!(can_be_asked_by_key(&queue, who));
                    }
                    queue.confirmed(&snapshot, now);
                }
                Question::Present(who) => {
                    prop_assert!(!queue.admits(), "a look at {who} lets no contender in");
                    prop_assert!(can_be_asked_by_key(&queue, who));
                    queue.answered(who, &snapshot, now);
                }
            }
            let longest = Duration::from_millis(1_250);
            prop_assert!(queue.first_pause(now, jitter) <= longest);
            let pause = queue.pause(now, round_trip, jitter);
            prop_assert!(pause >= Duration::from_micros(750) && pause <= longest, "{pause:?}");
        }
        Ok(())
    });
}

// Goal: when all have left, few questions find it out: never more than there were contenders, and
// one.
// Method: the queue ahead in any table, then answers that show no contender.
#[test]
fn line_that_all_left_is_soon_over() {
    for_all(&(table(), mode(), number()), |(rows, mode, ticket)| {
        let mine = QueuePosition { ticket, contender: ME };
        let snapshot = Snapshot::of(&rows);
        let mut queue = Queue::new(mine, mode, &snapshot, Duration::ZERO, Duration::ZERO);
        let most = queue.blockers().iter().count() + 1;
        let mut questions = 0;
        while !queue.admits() {
            match queue.question() {
                Question::Front | Question::All => {
                    queue.confirmed(&Snapshot::default(), Duration::ZERO);
                }
                Question::Present(who) => {
                    prop_assert!(queue.answered(who, &Snapshot::default(), Duration::ZERO));
                }
            }
            questions += 1;
            prop_assert!(questions <= most, "{questions} questions");
        }
        Ok(())
    });
}

/// Whether all rows of a blocker have names that are known.
fn can_be_asked_by_key(queue: &Queue, who: ContenderId) -> bool {
    let standing = queue.blockers().standing(who);
    standing.is_some_and(|standing| standing.round().is_some())
}

fn time() -> impl Strategy<Value = Duration> {
    let millis = [0, 1, 20, 500, 30_000, 3_600_000];
    select(millis.to_vec()).prop_map(Duration::from_millis)
}
