//! A contender in each of its states, shown any rows.

mod trial;

use std::cell::RefCell;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use self::trial::{Answer, Own, Trial, Turn};
use super::for_all;
use super::rows::{ME, any_row, claim, mode, number, other_than, rows_of, table};
use crate::core::bakery::{
    Acquire, Claim, ContenderInput, LeaseTerms, Patience, ReadFailure, StoredRow, WriteOutcome,
};

// Goal: whatever rows it is shown, in whatever state and however late, a contender does not panic
// and keeps its contract; and it is let in only by a whole read that shows its own rows of this
// round, no request to leave, and no blocker that was not seen to leave it.
// Method: a `Trial` holds each output against what the design says of the rows that were shown.
#[test]
fn unknown_rows_block_rather_than_admit() {
    for_all(&story(), |story| tell(&story).map(drop));
}

// Goal: the stories of the test above are not dull: each way in and each way out is taken.
// Method: tell some, always the same, and count.
#[test]
fn stories_take_every_turn() {
    let turns = RefCell::new(Vec::new());
    let config = ProptestConfig { cases: 2_000, failure_persistence: None, ..<_>::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let told = TestRunner::new_with_rng(config, rng).run(&story(), |story| {
        turns.borrow_mut().extend(tell(&story)?);
        Ok(())
    });
    told.expect("what goes wrong is the business of the test above");
    let turns = turns.into_inner();
    let count = |turn: Turn| turns.iter().filter(|taken| **taken == turn).count();
    let counts: Vec<_> = Turn::ALL.into_iter().map(|turn| (turn, count(turn))).collect();
    assert!(counts.iter().all(|(_, count)| *count >= 5), "{counts:?}");
}

// Goal: when the largest number there is has been drawn, no number is drawn any more, and the
// acquisition says so unless no contender is in its way.
// Method: any rows in addition to that ticket, any contender's, whether that one is there or not.
#[test]
fn after_the_largest_number_there_is_no_ticket_left() {
    let largest = claim().prop_map(|claim| {
        let contender = other_than(ME, claim.contender);
        Claim { contender, ticket: Some(i64::MAX), ..claim }
    });
    for_all(
        &(acquire(), any::<bool>(), table(), largest),
        |(acquire, exchanges, rows, largest)| {
            let rows = rows.into_iter().filter(|row| row.contender != largest.contender);
            let rows = rows
                .chain([StoredRow::entering(&largest)])
                .filter(|row| row.contender != ME)
                .collect();
            let acquire = Acquire { patience: Patience::Wait, ..acquire };
            let mut trial = Trial::new(acquire, exchanges)?;
            if !exchanges {
                trial.answer(Answer::honest(Vec::new()))?;
            }
            trial.answer(Answer::honest(rows))?;
            let turns = trial.turns();
            let is_expected = matches!(turns, [Turn::HeldAtOnce] | [Turn::NoTicketLeft]);
            prop_assert!(is_expected, "{turns:?}");
            Ok(())
        },
    );
}

/// What becomes of one contender.
#[derive(Clone, Debug)]
struct Story {
    acquire: Acquire,
    /// The store writes and reads in one round trip.
    exchanges: bool,
    /// Who is there while all goes well.
    crowd: Vec<StoredRow>,
    /// For how many answers it does: each number leads to another state.
    going_well: usize,
    steps: Vec<(Duration, Step)>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Whatever it waits for.
    Answer(Answer),
    Tell(ContenderInput),
}

fn tell(story: &Story) -> Result<Vec<Turn>, TestCaseError> {
    let mut trial = Trial::new(story.acquire.clone(), story.exchanges)?;
    for _ in 0..story.going_well {
        trial.answer(Answer::honest(story.crowd.clone()))?;
    }
    for (after, step) in &story.steps {
        trial.pass(*after);
        match step {
            Step::Answer(answer) => trial.answer(answer.clone())?,
            Step::Tell(input) => trial.tell(input.clone())?,
        }
    }
    Ok(trial.turns().to_vec())
}

fn story() -> impl Strategy<Value = Story> {
    let told = [
        ContenderInput::Tick,
        ContenderInput::Renew,
        ContenderInput::Confirm,
        ContenderInput::Release,
    ];
    let step = prop_oneof![
        8 => answer().prop_map(Step::Answer),
        1 => select(told.to_vec()).prop_map(Step::Tell),
    ];
    (acquire(), any::<bool>(), others(), 0_usize..6, vec((pause(), step), 1..12)).prop_map(
        |(acquire, exchanges, crowd, going_well, steps)| Story {
            acquire,
            exchanges,
            crowd,
            going_well,
            steps,
        },
    )
}

fn acquire() -> impl Strategy<Value = Acquire> {
    let patience = prop_oneof![4 => Just(Patience::Wait), 1 => Just(Patience::Try)];
    (mode(), patience, any::<bool>()).prop_map(|(mode, patience, renew)| {
        let terms = LeaseTerms::new(trial::TTL, trial::SKEW);
        Acquire { mode, terms, patience, renew, gives_up: None, owner: "me".into() }
    })
}

fn pause() -> impl Strategy<Value = Duration> {
    let seconds = [1, 20, 57, 58, 100, 3_600];
    prop_oneof![
        6 => (0_u64..30).prop_map(Duration::from_millis),
        1 => select(seconds.to_vec()).prop_map(Duration::from_secs),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let outcome = prop_oneof![
        8 => Just(WriteOutcome::Applied),
        1 => Just(WriteOutcome::NotApplied),
        1 => Just(WriteOutcome::Unknown),
        1 => Just(WriteOutcome::Rejected),
    ];
    let failure = select([ReadFailure::Failed, ReadFailure::Rejected].to_vec());
    (outcome, weighted(0.1, failure), own(), others())
        .prop_map(|(outcome, failure, own, others)| Answer { outcome, failure, own, others })
}

fn own() -> impl Strategy<Value = Own> {
    prop_oneof![
        16 => Just(Own::AsWritten),
        1 => Just(Own::Missing),
        1 => (-2_i64..3).prop_map(Own::OfRound),
        2 => weighted(0.5, number()).prop_map(Own::WithTicket),
        2 => (-1_i64..2).prop_map(Own::Revoked),
        1 => any_row().prop_map(|row| Own::And(Box::new(StoredRow { contender: ME, ..row }))),
    ]
}

/// Rows of others: none, those that clients write, or any.
fn others() -> impl Strategy<Value = Vec<StoredRow>> {
    let written = vec(claim(), 1..4).prop_map(|claims| claims.iter().flat_map(rows_of).collect());
    let rows = prop_oneof![3 => Just(Vec::new()), 3 => written, 2 => table()];
    rows.prop_map(|mut rows| {
        // What there is of our own is said by `Own`.
        rows.retain(|row| row.contender != ME);
        rows
    })
}
