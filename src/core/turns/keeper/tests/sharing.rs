//! Callers that share a place.

use super::*;

impl Script {
    /// A keeper whose callers 1 and 2 share the place, as turns 1 and 2.
    fn shared() -> Self {
        let mut script = Script::new();
        script.shares(1);
        script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
        script.shares(2);
        script.is_held(terms(60));
        script.says(&[shared_grant(1, 1), shared_grant(2, 2)]);
        script
    }

    fn shares(&mut self, caller: u64) {
        self.tell(KeeperInput::Join { caller, demand: to_share(60) });
    }

    fn returns(&mut self, number: u64) {
        self.tell(KeeperInput::Returned { turn: turn(number) });
    }
}

fn to_share(ttl: u64) -> Demand {
    Demand { mode: Mode::Shared, ..demand(ttl) }
}

fn shared_grant(caller: u64, number: u64) -> KeeperOutput {
    KeeperOutput::Grant { caller, turn: turn(number) }
}

#[test]
fn sharers_are_served_in_line_order() {
    let mut script = Script::shared();
    assert_eq!(script.keeper.user(), Some(TurnOf::Caller));
    script.shares(3);
    script.says(&[shared_grant(3, 3)]);
    script.joins(4, 60);
    script.shares(5);
    for number in [2, 1] {
        script.returns(number);
        script.says(&[]);
    }
    // The one that is alone waits for all before it, and one that shares does not overtake it.
    script.returns(3);
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(4) }]);
    script.is_held(terms(60));
    script.says(&[shared_grant(4, 1)]);
    script.returns(1);
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(5) }]);
}

#[test]
fn none_joins_for_long_once_one_waits_in_the_table() {
    let mut script = Script::shared();
    script.sleeps(ms(50));
    script.shares(3);
    script.says(&[KeeperOutput::Look, shared_grant(3, 3)]);
    script.tell(KeeperInput::Looked { outsiders: true });
    script.sleeps(ms(99));
    script.shares(4);
    script.says(&[shared_grant(4, 4)]);
    script.sleeps(ms(1));
    script.shares(5);
    script.says(&[]);
    // It may have given up, while those inside stay.
    script.sleeps(ms(149));
    script.says(&[]);
    script.sleeps(ms(1));
    script.says(&[KeeperOutput::Look]);
    script.sleeps(s(1));
    script.says(&[]);
    script.tell(KeeperInput::Looked { outsiders: true });
    script.says(&[KeeperOutput::Look]);
    script.tell(KeeperInput::Looked { outsiders: false });
    script.says(&[shared_grant(5, 5)]);
    // It comes back: the place is released when the last one has left.
    script.sleeps(ms(50));
    script.shares(6);
    script.says(&[KeeperOutput::Look, shared_grant(6, 6)]);
    script.tell(KeeperInput::Looked { outsiders: true });
    script.sleeps(ms(100));
    script.shares(7);
    for number in 1..=5 {
        script.returns(number);
    }
    script.says(&[]);
    script.returns(6);
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn slow_look_is_not_repeated_before_turns_end() {
    let mut script = Script::shared();
    script.now += ms(28_900);
    script.shares(3);
    script.says(&[KeeperOutput::Look, shared_grant(3, 3)]);
    script.now += ms(200);
    script.tell(KeeperInput::Looked { outsiders: true });
    // It waits for a renewal.
    script.shares(4);
    script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
    assert_eq!(script.keeper.deadline(), Some(script.now + ms(100)));
}

#[test]
fn client_that_closes_does_not_look_again() {
    let mut script = Script::shared();
    script.tell(KeeperInput::Looked { outsiders: true });
    script.sleeps(ms(100));
    script.shares(3);
    assert!(script.keeper.deadline().is_some());
    script.tell(KeeperInput::Shutdown);
    assert_eq!(script.keeper.deadline(), None);
}

#[test]
fn place_in_use_is_shared_on_its_terms() {
    let mut script = Script::shared();
    script.tell(KeeperInput::Join { caller: 3, demand: to_share(10) });
    script.says(&[shared_grant(3, 3)]);
    // It is renewed for one that joins late.
    script.now += s(30);
    script.shares(4);
    script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
    script.shares(5);
    script.says(&[]);
    script.is_renewed(terms(60));
    script.says(&[KeeperOutput::Look, shared_grant(4, 4), shared_grant(5, 5)]);
    for number in 1..=5 {
        script.returns(number);
    }
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn try_joins_those_that_share() {
    let attempt = Demand { patience: Patience::Try, ..to_share(60) };
    let mut script = Script::shared();
    script.tell(KeeperInput::Join { caller: 3, demand: attempt });
    script.says(&[shared_grant(3, 3)]);
    script
        .tell(KeeperInput::Join { caller: 4, demand: Demand { mode: Mode::Exclusive, ..attempt } });
    script.says(&[KeeperOutput::Taken { caller: 4 }]);
    // Behind one that waits to be alone, it would wait.
    script.joins(5, 60);
    script.tell(KeeperInput::Join { caller: 6, demand: attempt });
    script.says(&[KeeperOutput::Taken { caller: 6 }]);
    script.tell(KeeperInput::Leave { caller: 5 });
    script.tell(KeeperInput::Join { caller: 7, demand: attempt });
    script.says(&[shared_grant(7, 4)]);
    script.tell(KeeperInput::Looked { outsiders: true });
    script.sleeps(ms(100));
    script.tell(KeeperInput::Join { caller: 8, demand: attempt });
    script.says(&[KeeperOutput::Taken { caller: 8 }]);
}

#[test]
fn without_turns_a_place_is_shared_and_used_once() {
    let mut script = Script::new();
    script.keeper = Keeper::new(false);
    script.shares(1);
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    script.is_held(terms(60));
    script.shares(2);
    script.says(&[shared_grant(1, 1), shared_grant(2, 2)]);
    script.returns(1);
    script.says(&[]);
    script.returns(2);
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn guest_waits_for_all_that_share() {
    let mut script = Script::shared();
    script.asks(GUEST, 1, ms(0));
    script.is_queued(GUEST, 1, 0);
    script.shares(3);
    script.returns(1);
    script.says(&[]);
    script.asks(GUEST, 1, ms(1));
    script.is_queued(GUEST, 1, 0);
    script.returns(2);
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: None }]);
    script.is_held(terms(60));
    script.is_granted(GUEST, 1, turn(1), ms(1));
}

#[test]
fn lost_place_is_lost_for_all_that_share() {
    let mut script = Script::shared();
    script.tell(KeeperInput::Lost);
    script.says(&[KeeperOutput::Release]);
    script.returns(1);
    script.tell(KeeperInput::Released);
    script.says(&[]);
    assert!(script.keeper.is_idle());
}

#[test]
fn none_joins_once_the_client_closes() {
    let mut script = Script::shared();
    script.tell(KeeperInput::Shutdown);
    script.shares(3);
    script.sleeps(s(2));
    script.returns(1);
    script.says(&[]);
    script.returns(2);
    script.says(&[KeeperOutput::Release]);
}
