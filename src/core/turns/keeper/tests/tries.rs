use super::*;

const ATTEMPT: Duration = ms(400);

impl Script {
    /// A caller tries while the guest has the second turn.
    fn with_try_of_caller() -> Self {
        let mut script = Script::with_guest();
        script.tries(5);
        script.checks_guest(1);
        script
    }

    fn tries(&mut self, caller: u64) {
        let demand = Demand { patience: Patience::Try, ..demand(60) };
        self.tell(KeeperInput::Join { caller, demand });
    }

    fn tries_as_guest(&mut self, guest: GuestId, request: u64) {
        let least = Duration::ZERO;
        self.hears(guest, ATTEMPT, Request::Ask { request, ttl: TTL, is_try: true, least });
    }

    fn checks_guest(&mut self, number: u64) {
        self.answers(GUEST, Response::Check { turn: turn(2), number });
    }

    fn is_confirmed(&mut self, guest: GuestId, turn: TurnId, number: u64) {
        self.hears(guest, ms(500), Request::Confirm { turn, number });
    }
}

#[test]
fn guest_has_returned_the_turn() {
    let mut script = Script::with_try_of_caller();
    script.hears(GUEST, ms(500), Request::Return { turn: turn(2) });
    script.says(&[KeeperOutput::Grant { caller: 5, turn: turn(3) }]);

    let mut script = Script::with_guest();
    script.tries_as_guest(OTHER, 1);
    script.checks_guest(1);
    script.hears(GUEST, ms(500), Request::Return { turn: turn(2) });
    script.is_granted(OTHER, 1, turn(3), ATTEMPT);
}

#[test]
fn guest_has_the_turn() {
    let mut script = Script::with_try_of_caller();
    script.is_confirmed(GUEST, turn(2), 1);
    script.says(&[KeeperOutput::Taken { caller: 5 }]);

    let mut script = Script::with_guest();
    script.tries_as_guest(OTHER, 1);
    script.checks_guest(1);
    script.is_confirmed(GUEST, turn(2), 1);
    script.answers(OTHER, Response::Elsewhere { request: 1 });
}

// Goal: only the answer to the last question counts: the guest sent all others before.
// Method: a renewal, an answer of another guest, about another turn, and to the question before.
#[test]
fn guest_may_have_returned_the_turn_since() {
    let mut script = Script::with_try_of_caller();
    script.is_confirmed(GUEST, turn(2), 1);
    script.tries(6);
    script.said.clear();
    script.hears(GUEST, ms(500), renewal(2));
    script.said.clear();
    script.is_confirmed(OTHER, turn(2), 2);
    script.is_confirmed(GUEST, turn(1), 2);
    script.is_confirmed(GUEST, turn(2), 1);
    script.says(&[]);
    script.is_confirmed(GUEST, turn(2), 2);
    script.says(&[KeeperOutput::Taken { caller: 6 }]);
}

#[test]
fn guest_that_does_not_answer_has_the_turn() {
    let mut script = Script::with_try_of_caller();
    script.sleeps(ms(499));
    assert!(!script.said.contains(&KeeperOutput::Taken { caller: 5 }));
    script.sleeps(ms(1));
    assert!(script.said.contains(&KeeperOutput::Taken { caller: 5 }));
    assert_eq!(script.keeper.line().len(), 0);
}

#[test]
fn try_that_left_has_no_answer() {
    let mut script = Script::with_try_of_caller();
    script.tell(KeeperInput::Leave { caller: 5 });
    script.is_confirmed(GUEST, turn(2), 1);
    script.says(&[]);
}

// Goal: a guest is asked only if the object may be free.
// Method: try while one waits, while another one tries, and after the guest was asked to leave.
#[test]
fn try_in_vain_is_refused_at_once() {
    let mut script = Script::with_guest();
    script.joins(2, 60);
    script.tries(5);
    script.says(&[KeeperOutput::Taken { caller: 5 }]);

    let mut script = Script::with_try_of_caller();
    script.tries(6);
    script.says(&[KeeperOutput::Taken { caller: 6 }]);
    script.tries_as_guest(OTHER, 1);
    script.answers(OTHER, Response::Elsewhere { request: 1 });

    let mut script = Script::with_guest();
    script.tell(KeeperInput::Expiring);
    script.answers(GUEST, Response::Leave { turn: turn(2) });
    script.tries(5);
    script.says(&[KeeperOutput::Taken { caller: 5 }]);
}
