//! Scripts of turns that are returned before their `min_hold` is over.

use super::*;

const MIN_HOLD: Duration = s(10);

/// A keeper whose caller 1 has the first turn, for ten seconds at least.
fn held() -> Script {
    let mut script = Script::new();
    let demand = Demand { min_hold: MIN_HOLD, ..demand(60) };
    script.tell(KeeperInput::Join { caller: 1, demand });
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    script.is_held(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 1, turn: turn(1) }]);
    script
}

/// The same, returned after four seconds. The rows are to live for six seconds, and half of one to
/// pass the place on, rounded up, and what TTLs may lose.
fn returned() -> Script {
    let mut script = held();
    script.sleeps(s(4));
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(9) }]);
    assert!(script.keeper.outlasts_turn() && !script.keeper.outlasts_process());
    script
}

#[test]
fn place_stays_taken_until_min_hold_is_over() {
    let mut script = returned();
    script.is_renewed(terms(9));
    script.says(&[KeeperOutput::Returned]);
    assert!(script.keeper.outlasts_process());
    script.joins(2, 60);
    script.sleeps(s(6) - ms(1));
    script.says(&[]);
    script.sleeps(ms(1));
    script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
    script.is_renewed(terms(60));
    script.says(&[KeeperOutput::Look, KeeperOutput::Grant { caller: 2, turn: turn(2) }]);
}

#[test]
fn place_is_released_when_min_hold_is_over() {
    let mut script = returned();
    script.is_renewed(terms(9));
    script.says(&[KeeperOutput::Returned]);
    script.sleeps(s(6));
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn late_return_ends_turn_at_once() {
    let mut script = held();
    script.sleeps(MIN_HOLD);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn place_that_must_be_given_up_outlasts_no_return() {
    let mut script = held();
    script.tell(KeeperInput::Expiring);
    script.said.clear();
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn unwritten_rest_ends_in_time() {
    let mut script = returned();
    script.sleeps(s(6));
    script.says(&[KeeperOutput::Returned, KeeperOutput::Release]);
    assert!(script.keeper.is_releasing());
}

#[test]
fn guest_after_unwritten_rest_waits_for_usual_terms() {
    let mut script = returned();
    for asked in [ms(300), ms(2_200), ms(4_100), ms(6_000)] {
        script.asks(GUEST, 1, asked);
        script.is_queued(GUEST, 1, 0);
        script.sleeps(ms(1_500));
    }
    // Rows that end with the rest may be on their way when it is over.
    script.says(&[KeeperOutput::Returned, KeeperOutput::Renew { terms: terms(60) }]);
    script.is_renewed(terms(9));
    script.says(&[]);
    script.is_renewed(terms(60));
    assert_eq!(script.said.pop_front(), Some(KeeperOutput::Look));
    script.is_granted(GUEST, 1, turn(2), ms(6_000));
}

#[test]
fn renewal_begun_before_return_does_not_count_for_rest() {
    let mut script = Script::new();
    let demand = Demand { min_hold: s(6), ..demand(9) };
    script.tell(KeeperInput::Join { caller: 1, demand });
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    script.is_held(terms(9));
    script.says(&[KeeperOutput::Grant { caller: 1, turn: turn(1) }]);
    let begun = terms(9).deadline(script.now + s(500));
    script.sleeps(ms(600));
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(8) }]);
    script.tell(KeeperInput::Renewed { terms: terms(9), deadline: begun });
    script.says(&[]);
    script.is_renewed(terms(8));
    script.says(&[KeeperOutput::Returned]);
}

#[test]
fn grant_waits_for_rows_that_outlast_min_hold() {
    let mut script = Script::new();
    let demand = Demand { min_hold: s(50), ..demand(60) };
    script.tell(KeeperInput::Join { caller: 1, demand });
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    let deadline = terms(60).deadline(script.now + s(500)) - s(9);
    script.tell(KeeperInput::Held { place: PLACE, round: ROUND, terms: terms(60), deadline });
    script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
    script.is_renewed(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 1, turn: turn(1) }]);
}

#[test]
fn place_stays_taken_through_shutdown() {
    let mut script = held();
    script.tell(KeeperInput::Shutdown);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(13) }]);
    script.is_renewed(terms(13));
    script.says(&[KeeperOutput::Returned]);
    assert!(script.keeper.outlasts_process());
}
