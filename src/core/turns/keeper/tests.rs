//! Scripts of the keeper: what happens to it, and what it must ask for.

mod at_least;
mod keeping;
mod min_hold;
mod sharing;
mod tries;

use std::time::Duration;

use super::io::{KeeperInput, KeeperOutput};
use super::*;
use crate::core::turns::messages::{GuestId, Request, TimedRequest};

const PLACE: ContenderId = ContenderId { host: 1, client: 7, slot: 0 };
const ROUND: i64 = 40;
const GUEST: GuestId = 1;
const OTHER: GuestId = 2;
const TTL: Duration = s(60);

/// A keeper and what it said that the script has not expected yet.
struct Script {
    keeper: Keeper,
    now: Duration,
    said: VecDeque<KeeperOutput>,
}

impl Script {
    fn new() -> Self {
        Script { keeper: Keeper::new(true), now: s(1_000), said: VecDeque::new() }
    }

    /// A keeper whose caller 1 has the first turn.
    fn held() -> Self {
        let mut script = Script::new();
        script.joins(1, 60);
        script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
        script.is_held(terms(60));
        script.says(&[KeeperOutput::Grant { caller: 1, turn: turn(1) }]);
        script
    }

    /// A keeper whose guest has the second turn.
    fn with_guest() -> Self {
        let mut script = Script::held();
        script.asks(GUEST, 1, ms(300));
        script.is_queued(GUEST, 1, 0);
        script.tell(KeeperInput::Returned { turn: turn(1) });
        script.is_granted(GUEST, 1, turn(2), ms(300));
        script
    }

    fn tell(&mut self, input: KeeperInput) {
        let now = Now { elapsed: self.now + s(500), boot: self.now };
        self.keeper.handle(now, input);
        self.said.extend(std::iter::from_fn(|| self.keeper.poll()));
    }

    fn joins(&mut self, caller: u64, ttl: u64) {
        self.tell(KeeperInput::Join { caller, demand: demand(ttl) });
    }

    fn is_held(&mut self, terms: LeaseTerms) {
        self.is_held_in(ROUND, terms);
    }

    fn is_held_in(&mut self, round: i64, terms: LeaseTerms) {
        let deadline = terms.deadline(self.now + s(500));
        self.tell(KeeperInput::Held { place: PLACE, round, terms, deadline });
    }

    fn is_renewed(&mut self, terms: LeaseTerms) {
        let deadline = terms.deadline(self.now + s(500));
        self.tell(KeeperInput::Renewed { terms, deadline });
    }

    fn hears(&mut self, guest: GuestId, sent: Duration, request: Request) {
        self.tell(KeeperInput::Request { guest, request: TimedRequest { sent, request } });
    }

    fn asks(&mut self, guest: GuestId, request: u64, sent: Duration) {
        self.needs(guest, request, sent, Duration::ZERO);
    }

    fn needs(&mut self, guest: GuestId, request: u64, sent: Duration, least: Duration) {
        self.hears(guest, sent, Request::Ask { request, ttl: TTL, is_try: false, least });
    }

    /// Time passes, and the keeper is woken when it wants to be.
    fn sleeps(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.keeper.deadline().filter(|due| *due <= until) {
            assert!(due > self.now, "it is due when it was just woken");
            self.now = due;
            self.tell(KeeperInput::Tick);
        }
        self.now = until;
    }

    fn says(&mut self, outputs: &[KeeperOutput]) {
        assert_eq!(self.said.make_contiguous(), outputs);
        self.said.clear();
    }

    fn answers(&mut self, guest: GuestId, response: Response) {
        self.says(&[KeeperOutput::Send { guest, response }]);
    }

    fn is_queued(&mut self, guest: GuestId, request: u64, ahead: u32) {
        self.answers(guest, Response::Queued { request, ahead });
    }

    fn is_granted(&mut self, guest: GuestId, request: u64, turn: TurnId, echo: Duration) {
        let granted = Granted { request, turn, echo, length: FIRST_LENGTH_MAX };
        self.answers(guest, Response::Granted(granted));
    }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn terms(ttl: u64) -> LeaseTerms {
    LeaseTerms::new(s(ttl), s(1))
}

fn demand(ttl: u64) -> Demand {
    let (patience, min_hold, at_least) = (Patience::Wait, Duration::ZERO, Duration::ZERO);
    Demand { mode: Mode::Exclusive, terms: terms(ttl), patience, min_hold, at_least }
}

/// Two tokens.
fn block(first: i64) -> TokenBlock {
    TokenBlock::from(first, first, ms(4)).expect("it begins with the clock")
}

fn renewal(number: u64) -> Request {
    Request::Renew { turn: turn(number), least: Duration::ZERO }
}

fn turn(number: u64) -> TurnId {
    TurnId { place: PLACE, round: ROUND, number }
}

#[test]
fn callers_have_turns_in_the_order_in_which_they_came() {
    let mut script = Script::held();
    for caller in [5, 3, 4] {
        script.joins(caller, 60);
    }
    script.tell(KeeperInput::Leave { caller: 3 });
    script.says(&[]);
    for (number, caller) in [(2, 5), (3, 4)] {
        script.tell(KeeperInput::Returned { turn: turn(number - 1) });
        script.says(&[KeeperOutput::Grant { caller, turn: turn(number) }]);
    }
    script.tell(KeeperInput::Returned { turn: turn(2) });
    script.says(&[]);
    script.tell(KeeperInput::Returned { turn: turn(3) });
    script.says(&[KeeperOutput::Release]);
    assert!(!script.keeper.is_idle(), "its rows are there");
    script.tell(KeeperInput::Released);
    script.says(&[]);
    assert!(script.keeper.is_idle());
}

#[test]
fn emptied_line_wants_no_place() {
    let mut script = Script::new();
    script.joins(1, 60);
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    script.tell(KeeperInput::Leave { caller: 1 });
    script.says(&[KeeperOutput::Release]);
    script.joins(2, 60);
    script.says(&[]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(2) }]);
}

#[test]
fn turns_continue_briefly_despite_a_table_contender() {
    let mut script = Script::held();
    for caller in 2..=7 {
        script.joins(caller, 60);
    }
    let grant = |number| KeeperOutput::Grant { caller: number, turn: turn(number) };
    script.sleeps(ms(49));
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[grant(2)]);
    script.sleeps(ms(1));
    script.tell(KeeperInput::Returned { turn: turn(2) });
    script.says(&[KeeperOutput::Look, grant(3)]);
    // One look at a time, and one in 50 ms.
    script.sleeps(ms(60));
    script.tell(KeeperInput::Returned { turn: turn(3) });
    script.says(&[grant(4)]);
    script.tell(KeeperInput::Looked { outsiders: false });
    script.says(&[]);
    script.tell(KeeperInput::Returned { turn: turn(4) });
    script.says(&[KeeperOutput::Look, grant(5)]);
    script.tell(KeeperInput::Looked { outsiders: true });
    script.sleeps(ms(99));
    script.tell(KeeperInput::Returned { turn: turn(5) });
    script.says(&[grant(6)]);
    script.sleeps(ms(1));
    script.tell(KeeperInput::Returned { turn: turn(6) });
    // The whole line goes through the doorway again.
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(7) }]);
    script.is_held(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 7, turn: turn(1) }]);
}

#[test]
fn without_turns_a_place_is_used_once() {
    let mut script = Script::new();
    script.keeper = Keeper::new(false);
    script.joins(1, 60);
    script.joins(2, 60);
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    script.is_held(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 1, turn: turn(1) }]);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(2) }]);
    script.is_held(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(1) }]);
}

#[test]
fn another_mode_has_a_place_of_its_own() {
    let mut script = Script::held();
    let shared = Demand { mode: Mode::Shared, ..demand(60) };
    script.tell(KeeperInput::Join { caller: 2, demand: shared });
    script.joins(3, 60);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(2) }]);
    script.is_held(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(1) }]);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn try_is_for_an_object_that_is_free() {
    let mut script = Script::new();
    let attempt = Demand { patience: Patience::Try, ..demand(60) };
    for caller in [1, 2] {
        script.tell(KeeperInput::Join { caller, demand: attempt });
    }
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }, KeeperOutput::Taken { caller: 2 }]);
    // One that waits does not take over from one that tries.
    script.joins(3, 60);
    script.tell(KeeperInput::Leave { caller: 1 });
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(3) }]);
    script.is_held(terms(60));
    script.said.clear();
    script.tell(KeeperInput::Join { caller: 4, demand: attempt });
    script.says(&[KeeperOutput::Taken { caller: 4 }]);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Release]);
    // The line is empty, and no turn is out.
    script.tell(KeeperInput::Join { caller: 5, demand: attempt });
    script.says(&[]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(5) }]);
}

#[test]
fn failed_acquisition_fails_the_first_in_line() {
    let mut script = Script::new();
    script.joins(1, 60);
    script.joins(2, 60);
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    assert_eq!(script.keeper.first_caller(), Some(1));
    script.tell(KeeperInput::Failed);
    script.says(&[]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(2) }]);

    let mut with_guest = Script::held();
    for (guest, ahead) in [(GUEST, 0), (OTHER, 1)] {
        with_guest.asks(guest, 1, ms(0));
        with_guest.is_queued(guest, 1, ahead);
    }
    assert_eq!(with_guest.keeper.first_caller(), None);
    with_guest.tell(KeeperInput::Looked { outsiders: true });
    with_guest.now += ms(100);
    with_guest.tell(KeeperInput::Returned { turn: turn(1) });
    with_guest.says(&[KeeperOutput::Release]);
    with_guest.tell(KeeperInput::Released);
    with_guest.says(&[KeeperOutput::Acquire { caller: None }]);
    with_guest.tell(KeeperInput::Failed);
    with_guest.answers(GUEST, Response::Elsewhere { request: 1 });
    with_guest.tell(KeeperInput::Released);
    with_guest.says(&[KeeperOutput::Acquire { caller: None }]);
}

#[test]
fn turn_at_another_keeper_serves_one_caller() {
    let mut script = Script::new();
    assert!(!script.keeper.may_ask(), "no caller wants a place");
    script.joins(1, 60);
    script.joins(2, 10);
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    assert!(script.keeper.may_ask());
    script.tell(KeeperInput::Asking(true));
    script.asks(GUEST, 1, ms(0));
    script.answers(GUEST, Response::Elsewhere { request: 1 });
    let theirs = TurnId { place: ContenderId { host: 9, client: 9, slot: 0 }, ..turn(40) };
    script.tell(KeeperInput::GuestTurn { turn: theirs });
    script.says(&[KeeperOutput::Grant { caller: 1, turn: theirs }]);
    script.asks(GUEST, 2, ms(1));
    script.answers(GUEST, Response::Elsewhere { request: 2 });
    script.sleeps(s(100));
    script.tell(KeeperInput::Returned { turn: theirs });
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(2) }]);
    // The other keeper sends the client elsewhere, so guests may come again.
    script.tell(KeeperInput::Asking(true));
    script.tell(KeeperInput::Asking(false));
    script.asks(GUEST, 3, ms(2));
    script.is_queued(GUEST, 3, 1);
    assert!(!script.keeper.may_ask(), "a guest waits");
}

#[test]
fn line_that_is_disbanded_asks_elsewhere() {
    let mut held = Script::held();
    held.asks(GUEST, 1, ms(0));
    held.is_queued(GUEST, 1, 0);
    held.tell(KeeperInput::Disband);
    held.says(&[]);
    assert!(held.keeper.has_guests(), "there is a place for them");

    let mut script = Script::new();
    script.joins(1, 60);
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    for (guest, ahead) in [(GUEST, 1), (OTHER, 2)] {
        script.asks(guest, 1, ms(0));
        script.is_queued(guest, 1, ahead);
    }
    assert!(!script.keeper.may_ask(), "guests wait");
    script.tell(KeeperInput::Disband);
    let elsewhere =
        |guest| KeeperOutput::Send { guest, response: Response::Elsewhere { request: 1 } };
    script.says(&[elsewhere(GUEST), elsewhere(OTHER)]);
    assert!(script.keeper.may_ask());
    assert_eq!(script.keeper.first_caller(), Some(1), "callers of its own stay");
    // Without any, there is no use for the place.
    script.tell(KeeperInput::Leave { caller: 1 });
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn unusable_turn_of_another_keeper_is_returned() {
    let theirs = turn(40);
    let mut lost = Script::new();
    lost.joins(1, 60);
    lost.said.clear();
    lost.tell(KeeperInput::GuestTurn { turn: theirs });
    lost.says(&[KeeperOutput::Grant { caller: 1, turn: theirs }]);
    lost.tell(KeeperInput::Lost);
    lost.says(&[KeeperOutput::Release]);

    let mut shared = Script::new();
    let demand = Demand { mode: Mode::Shared, ..demand(60) };
    shared.tell(KeeperInput::Join { caller: 1, demand });
    shared.said.clear();
    shared.tell(KeeperInput::GuestTurn { turn: theirs });
    shared.says(&[KeeperOutput::Release]);
}

#[test]
fn finished_requests_are_remembered_of_so_many_guests() {
    let mut script = Script::held();
    for guest in 1..=2_000 {
        script.hears(guest, ms(0), Request::Withdraw { request: 5 });
    }
    // The last ones are known; of the first ones, those with the smallest ids are forgotten.
    script.asks(2_000, 5, ms(1));
    script.says(&[]);
    script.asks(1, 5, ms(1));
    script.is_queued(1, 5, 0);
}

#[test]
fn late_request_is_ignored_although_another_guest_has_finished() {
    let mut script = Script::held();
    for guest in [GUEST, OTHER] {
        script.hears(guest, ms(0), Request::Withdraw { request: 5 });
    }
    for guest in [GUEST, OTHER] {
        script.asks(guest, 5, ms(1));
        script.says(&[]);
    }
}

#[test]
fn rows_stay_for_the_turn_although_others_wait_in_the_table() {
    let mut script = Script::held();
    script.joins(2, 60);
    script.tell(KeeperInput::Looked { outsiders: true });
    assert_eq!(script.keeper.deadline(), None);
    script.now += s(1);
    script.tell(KeeperInput::Tick);
    script.says(&[]);
}

#[test]
fn place_was_handed_on_once_it_has_had_two_turns() {
    let mut script = Script::held();
    assert!(!script.keeper.was_handed_on());
    script.joins(2, 60);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    assert!(script.keeper.was_handed_on());
    script.joins(3, 60);
    assert!(!script.keeper.was_handed_on(), "one waits for it");

    let mut shared = Script::new();
    shared.keeper = Keeper::new(false);
    for caller in [1, 2] {
        let demand = Demand { mode: Mode::Shared, ..demand(60) };
        shared.tell(KeeperInput::Join { caller, demand });
    }
    shared.is_held(terms(60));
    assert!(!shared.keeper.was_handed_on(), "it is used once, by both");
}

#[test]
fn old_lease_is_renewed_before_the_next_turn() {
    let mut script = Script::held();
    script.joins(2, 60);
    script.now += s(29);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.said.retain(|output| *output != KeeperOutput::Look);
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(2) }]);
    script.joins(3, 60);
    script.now += ms(1);
    script.tell(KeeperInput::Returned { turn: turn(2) });
    script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
    script.tell(KeeperInput::Tick);
    script.says(&[]);
    script.is_renewed(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 3, turn: turn(3) }]);
}

#[test]
fn another_ttl_is_written_between_turns_only() {
    let mut script = Script::held();
    script.joins(2, 10);
    script.says(&[]);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(10) }]);
    // A guest that comes meanwhile gets no more than the shorter rows last.
    script.asks(GUEST, 1, ms(300));
    script.is_queued(GUEST, 1, 1);
    script.tell(KeeperInput::Leave { caller: 2 });
    // The answer to a renewal that was sent before.
    script.is_renewed(terms(60));
    script.says(&[]);
    script.is_renewed(terms(10));
    script.is_granted(GUEST, 1, turn(2), ms(300));
    script.hears(GUEST, ms(400), renewal(2));
    let length = s(8) * 100 / 101;
    let extended = Extended { turn: turn(2), echo: ms(400), length };
    script.answers(GUEST, Response::Extended(extended));
}

#[test]
fn turn_is_granted_again_to_the_letter() {
    let mut script = Script::with_guest();
    script.asks(GUEST, 1, ms(500));
    script.is_granted(GUEST, 1, turn(2), ms(300));
    script.sleeps(ms(249));
    script.says(&[]);
    script.sleeps(ms(1));
    script.is_granted(GUEST, 1, turn(2), ms(300));
    // Once the guest names its turn it knows.
    script.hears(GUEST, ms(550), renewal(2));
    script.said.clear();
    script.sleeps(s(1));
    script.says(&[]);
}

#[test]
fn turn_is_extended_once_for_each_renewal() {
    let mut script = Script::with_guest();
    let extended = |echo, length| Extended { turn: turn(2), echo, length };
    let first = Response::Extended(extended(ms(350), s(10)));
    script.hears(GUEST, ms(350), renewal(2));
    script.answers(GUEST, first);
    script.sleeps(s(2));
    script.hears(GUEST, ms(350), renewal(2));
    script.answers(GUEST, first);
    script.hears(GUEST, ms(2_350), renewal(2));
    script.answers(GUEST, Response::Extended(extended(ms(2_350), s(10))));
    // As long as the guest needs, and half a second for the way.
    let long = Request::Renew { turn: turn(2), least: s(40) };
    script.hears(GUEST, ms(2_351), long);
    script.answers(GUEST, Response::Extended(extended(ms(2_351), ms(40_500))));
    // An older one that comes late.
    script.hears(GUEST, ms(350), renewal(2));
    script.says(&[]);
}

#[test]
fn renewal_of_other_turn_gets_lost() {
    let mut script = Script::with_guest();
    for (guest, number) in [(OTHER, 2), (GUEST, 1), (GUEST, 3)] {
        script.hears(guest, ms(400), renewal(number));
        script.answers(guest, Response::Lost { turn: turn(number) });
    }
    script.tell(KeeperInput::Lost);
    script.answers(GUEST, Response::Lost { turn: turn(2) });
    script.hears(GUEST, ms(500), Request::Return { turn: turn(2) });
    script.said.clear();
    script.hears(GUEST, ms(600), renewal(2));
    script.answers(GUEST, Response::Lost { turn: turn(2) });
}

#[test]
fn turn_ends_when_it_is_returned_or_over() {
    let mut script = Script::with_guest();
    script.joins(2, 60);
    for (guest, number) in [(OTHER, 2), (GUEST, 1)] {
        script.hears(guest, ms(400), Request::Return { turn: turn(number) });
        script.answers(guest, Response::Returned { turn: turn(number) });
    }
    script.hears(GUEST, ms(400), Request::Return { turn: turn(2) });
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(3) }]);
    script.sleeps(ms(9));
    script.says(&[]);
    script.sleeps(ms(1));
    let returned =
        KeeperOutput::Send { guest: GUEST, response: Response::Returned { turn: turn(2) } };
    script.says(&[returned]);
    // Its answer may have been lost.
    script.hears(GUEST, ms(650), Request::Return { turn: turn(2) });
    script.says(&[returned]);

    let mut silent = Script::with_guest();
    silent.joins(2, 60);
    silent.sleeps(ms(2_019));
    silent.said.clear();
    silent.sleeps(ms(1));
    silent.says(&[KeeperOutput::Look, KeeperOutput::Grant { caller: 2, turn: turn(3) }]);
}

#[test]
fn request_that_is_over_is_not_granted_again() {
    let mut script = Script::with_guest();
    script.joins(2, 60);
    script.hears(GUEST, ms(400), Request::Return { turn: turn(2) });
    script.said.clear();
    script.asks(GUEST, 1, ms(350));
    script.says(&[]);
    script.asks(GUEST, 2, ms(450));
    script.says(&[]);
    script.tell(KeeperInput::Returned { turn: turn(3) });
    script.is_granted(GUEST, 2, turn(4), ms(450));
}

/// A guest and a caller that lock again at once; the guest has its turn, and the caller waits.
fn in_turn() -> Script {
    let mut script = Script::with_guest();
    script.joins(2, 60);
    script.hears(GUEST, ms(400), Request::Return { turn: turn(2) });
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(3) }]);
    script.asks(GUEST, 2, ms(401));
    script.joins(3, 60);
    script.tell(KeeperInput::Returned { turn: turn(3) });
    script.is_granted(GUEST, 2, turn(4), ms(401));
    script
}

#[test]
fn caller_waits_for_a_guest_that_comes_back() {
    let mut script = in_turn();
    script.hears(GUEST, ms(500), Request::Return { turn: turn(4) });
    script.says(&[KeeperOutput::Grant { caller: 3, turn: turn(5) }]);
    script.joins(4, 60);
    script.tell(KeeperInput::Returned { turn: turn(5) });
    script.says(&[]);
    script.now += Duration::from_micros(300);
    script.asks(GUEST, 3, ms(501));
    script.is_granted(GUEST, 3, turn(6), ms(501));

    // It does not come back this time, and is not waited for the next time.
    script.hears(GUEST, ms(600), Request::Return { turn: turn(6) });
    script.says(&[KeeperOutput::Grant { caller: 4, turn: turn(7) }]);
    script.joins(5, 60);
    script.tell(KeeperInput::Returned { turn: turn(7) });
    script.sleeps(Duration::from_micros(999));
    script.says(&[]);
    script.sleeps(Duration::from_micros(1));
    script.says(&[KeeperOutput::Grant { caller: 5, turn: turn(8) }]);
    script.asks(GUEST, 4, ms(602));
    script.tell(KeeperInput::Returned { turn: turn(8) });
    script.is_granted(GUEST, 4, turn(9), ms(602));
    script.joins(6, 60);
    script.hears(GUEST, ms(700), Request::Return { turn: turn(9) });
    script.says(&[KeeperOutput::Grant { caller: 6, turn: turn(10) }]);
}

#[test]
fn guest_is_waited_for_only_when_no_turn_is_out() {
    let mut script = in_turn();
    script.hears(GUEST, ms(500), Request::Return { turn: turn(4) });
    script.joins(4, 60);
    assert_eq!(script.keeper.deadline(), Some(script.now + ms(10)), "its answer is delayed");
    script.tell(KeeperInput::Returned { turn: turn(5) });
    assert_eq!(script.keeper.deadline(), Some(script.now + ms(1)));
}

#[test]
fn expected_guest_does_not_delay_the_end_of_a_place() {
    let mut script = in_turn();
    script.hears(GUEST, ms(500), Request::Return { turn: turn(4) });
    script.joins(4, 60);
    script.asks(OTHER, 1, ms(500));
    script.said.clear();
    script.tell(KeeperInput::Returned { turn: turn(5) });
    script.says(&[]);
    script.says(&[]);
    script.tell(KeeperInput::Expiring);
    assert!(script.said.contains(&KeeperOutput::Release), "{:?}", script.said);
}

#[test]
fn next_grant_answers_what_came_before() {
    let mut script = Script::with_guest();
    script.joins(2, 60);
    script.joins(3, 60);
    script.hears(GUEST, ms(400), Request::Return { turn: turn(2) });
    script.asks(GUEST, 2, ms(401));
    script.asks(GUEST, 2, ms(402));
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(3) }]);
    let mut is_slow = Script { keeper: script.keeper.clone(), said: VecDeque::new(), ..script };

    script.sleeps(ms(5));
    script.tell(KeeperInput::Returned { turn: turn(3) });
    script.says(&[KeeperOutput::Grant { caller: 3, turn: turn(4) }]);
    script.tell(KeeperInput::Returned { turn: turn(4) });
    script.is_granted(GUEST, 2, turn(5), ms(402));
    script.sleeps(ms(20));
    script.says(&[]);

    is_slow.sleeps(ms(10));
    let answers = [Response::Returned { turn: turn(2) }, Response::Queued { request: 2, ahead: 1 }];
    is_slow.says(&answers.map(|response| KeeperOutput::Send { guest: GUEST, response }));
    // Nothing is owed any more.
    is_slow.asks(GUEST, 2, ms(700));
    is_slow.is_queued(GUEST, 2, 1);
}

#[test]
fn guest_is_asked_to_leave_when_its_time_is_over() {
    let mut script = Script::new();
    script.keeper = Keeper::new(true).with_guest_hold_max(Some(s(10)));
    script.joins(1, 60);
    script.is_held(terms(60));
    script.asks(GUEST, 1, ms(300));
    script.tell(KeeperInput::Returned { turn: turn(1) });
    let began = script.now;
    for second in 1..10 {
        script.said.clear();
        script.now = began + s(second);
        script.hears(GUEST, s(second), renewal(2));
        let extended = script.said.pop_back();
        assert!(
            matches!(extended, Some(KeeperOutput::Send { response: Response::Extended(_), .. })),
            "{extended:?}"
        );
    }
    assert_eq!(script.keeper.deadline(), Some(began + s(10)));
    script.joins(2, 60);
    script.said.clear();
    script.sleeps(s(1));
    script.answers(GUEST, Response::Leave { turn: turn(2) });
    script.hears(GUEST, s(10), renewal(2));
    script.answers(GUEST, Response::Leave { turn: turn(2) });
    script.hears(GUEST, s(11), Request::Return { turn: turn(2) });
    assert!(script.said.iter().any(|it| matches!(it, KeeperOutput::Grant { caller: 2, .. })));
}

#[test]
fn disconnected_guest_keeps_only_its_turn() {
    let mut script = Script::with_guest();
    script.asks(OTHER, 1, ms(1));
    script.is_queued(OTHER, 1, 0);
    script.joins(2, 60);
    script.tell(KeeperInput::GuestLeft { guest: OTHER });
    script.tell(KeeperInput::GuestLeft { guest: GUEST });
    script.says(&[]);
    assert_eq!(script.keeper.line().collect::<Vec<_>>(), [LineUser::Caller(2, demand(60))]);
    assert_eq!(script.keeper.user(), Some(TurnOf::Guest(GUEST)));
    // It may come back, over another connection.
    script.hears(GUEST, ms(400), renewal(2));
    assert!(matches!(script.said.pop_front(), Some(KeeperOutput::Send { guest: GUEST, .. })));
    script.asks(OTHER, 1, ms(500));
    script.is_queued(OTHER, 1, 1);
}

#[test]
fn withdrawn_request_leaves_the_line_or_ends_its_turn() {
    let mut script = Script::with_guest();
    script.asks(OTHER, 1, ms(0));
    script.is_queued(OTHER, 1, 0);
    script.hears(OTHER, ms(1), Request::Withdraw { request: 1 });
    script.says(&[]);
    script.hears(GUEST, ms(400), Request::Withdraw { request: 1 });
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn asking_again_keeps_the_place_in_the_line() {
    let mut script = Script::held();
    for (guest, ahead) in [(GUEST, 0), (OTHER, 1), (GUEST, 0), (OTHER, 1)] {
        script.asks(guest, 1, ms(10));
        script.is_queued(guest, 1, ahead);
    }
}

#[test]
fn newer_request_takes_the_end_of_the_line() {
    let mut script = Script::held();
    script.asks(GUEST, 1, ms(0));
    script.asks(OTHER, 1, ms(0));
    script.asks(GUEST, 2, ms(10));
    script.asks(GUEST, 1, ms(5));
    script.said.clear();
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.is_granted(OTHER, 1, turn(2), ms(0));
    script.hears(OTHER, ms(20), Request::Return { turn: turn(2) });
    script.is_granted(GUEST, 2, turn(3), ms(10));
}

#[test]
fn silent_guest_leaves_the_line() {
    let mut script = Script::held();
    script.asks(GUEST, 1, ms(0));
    script.asks(OTHER, 1, ms(0));
    script.now += ms(1_999);
    script.asks(OTHER, 1, ms(1_999));
    script.said.clear();
    script.now += ms(1);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.said.retain(|output| *output != KeeperOutput::Look);
    script.is_granted(OTHER, 1, turn(2), ms(1_999));
}

/// The end of a place leaves its rows until the guest has returned its turn; the caller in the line
/// has the lock in the next round.
fn outlasts_its_end_for_the_turn(end: KeeperInput, response: Response) {
    let mut script = Script::with_guest();
    script.asks(OTHER, 1, ms(0));
    script.joins(2, 60);
    script.said.clear();
    script.tell(end);
    script.says(&[
        KeeperOutput::Send { guest: GUEST, response },
        KeeperOutput::Send { guest: OTHER, response: Response::Elsewhere { request: 1 } },
    ]);
    script.asks(OTHER, 2, ms(10));
    script.answers(OTHER, Response::Elsewhere { request: 2 });
    script.hears(GUEST, ms(400), renewal(2));
    script.answers(GUEST, response);
    script.hears(GUEST, ms(410), Request::Return { turn: turn(2) });
    script.said.pop_back();
    script.says(&[KeeperOutput::Release]);
    script.tell(KeeperInput::Released);
    script.says(&[KeeperOutput::Acquire { caller: Some(2) }]);
}

#[test]
fn revoked_place_is_released_when_the_turn_is_over() {
    outlasts_its_end_for_the_turn(KeeperInput::Expiring, Response::Leave { turn: turn(2) });
}

#[test]
fn lost_place_keeps_its_rows_until_the_turn_is_over() {
    outlasts_its_end_for_the_turn(KeeperInput::Lost, Response::Lost { turn: turn(2) });

    let mut with_caller = Script::held();
    with_caller.tell(KeeperInput::Lost);
    with_caller.says(&[KeeperOutput::Release]);
}

#[test]
fn keeper_that_shuts_down_waits_for_the_turn() {
    let mut script = Script::with_guest();
    script.asks(OTHER, 1, ms(0));
    script.said.clear();
    script.tell(KeeperInput::Shutdown);
    script.answers(OTHER, Response::Elsewhere { request: 1 });
    script.asks(OTHER, 2, ms(10));
    script.answers(OTHER, Response::Elsewhere { request: 2 });
    script.hears(GUEST, ms(400), Request::Return { turn: turn(2) });
    script.said.pop_back();
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn guests_join_a_line_for_which_the_place_is_acquired() {
    let mut script = Script::new();
    script.joins(1, 60);
    script.said.clear();
    script.asks(GUEST, 1, ms(0));
    script.is_queued(GUEST, 1, 1);
    script.hears(GUEST, ms(1), Request::Withdraw { request: 1 });
    script.tell(KeeperInput::Leave { caller: 1 });
    script.says(&[KeeperOutput::Release]);
    script.asks(GUEST, 2, ms(2));
    script.answers(GUEST, Response::Elsewhere { request: 2 });
}

#[test]
fn client_without_place_sends_guests_elsewhere() {
    let mut script = Script::new();
    script.asks(GUEST, 1, ms(0));
    script.answers(GUEST, Response::Elsewhere { request: 1 });
    assert!(script.keeper.is_idle());
}

#[test]
fn tokens_come_from_a_block_that_is_drawn_once() {
    let mut script = Script::held();
    script.tell(KeeperInput::IssueToken { turn: turn(1), number: 1 });
    script.tell(KeeperInput::IssueToken { turn: turn(1), number: 1 });
    script.says(&[KeeperOutput::IssueBlock { round: ROUND }]);
    script.tell(KeeperInput::Block { round: ROUND, block: Some(block(5_000)) });
    script.says(&[KeeperOutput::Token { turn: turn(1), number: 1, value: 5_000 }]);

    script.asks(GUEST, 1, ms(300));
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.said.clear();
    let token = Response::Token { turn: turn(2), number: 1, value: 6_000 };
    for _ in 0..2 {
        // The second time, because the answer to the first may be lost.
        script.hears(GUEST, ms(310), Request::IssueToken { turn: turn(2), number: 1 });
        script.answers(GUEST, token);
    }
    // The block is used up.
    script.hears(GUEST, ms(320), Request::IssueToken { turn: turn(2), number: 2 });
    script.says(&[KeeperOutput::IssueBlock { round: ROUND }]);
    // Neither another guest's, nor of another turn, nor one that comes late.
    script.hears(OTHER, ms(320), Request::IssueToken { turn: turn(2), number: 3 });
    script.hears(GUEST, ms(320), Request::IssueToken { turn: turn(1), number: 3 });
    script.hears(GUEST, ms(310), Request::IssueToken { turn: turn(2), number: 1 });
    script.says(&[]);
    script.tell(KeeperInput::Block { round: ROUND, block: Some(block(9_000)) });
    script.answers(GUEST, Response::Token { turn: turn(2), number: 2, value: 9_000 });
    script.hears(GUEST, ms(310), Request::IssueToken { turn: turn(2), number: 1 });
    script.says(&[]);
}

#[test]
fn block_that_was_not_drawn_is_asked_for_again() {
    let mut script = Script::with_guest();
    let number = Request::IssueToken { turn: turn(2), number: 1 };
    for sent in [ms(310), ms(560)] {
        script.hears(GUEST, sent, number);
        script.says(&[KeeperOutput::IssueBlock { round: ROUND }]);
        script.tell(KeeperInput::Block { round: ROUND, block: None });
        script.says(&[]);
    }
    script.sleeps(ms(500));
    script.says(&[]);
}

#[test]
fn block_ends_with_its_round() {
    let mut script = Script::held();
    script.tell(KeeperInput::IssueToken { turn: turn(1), number: 1 });
    script.joins(2, 60);
    script.tell(KeeperInput::Lost);
    script.tell(KeeperInput::Released);
    script.said.clear();
    script.tell(KeeperInput::Block { round: ROUND, block: Some(block(5_000)) });
    script.is_held_in(ROUND + 1, terms(60));
    let first = TurnId { round: ROUND + 1, ..turn(1) };
    script.says(&[KeeperOutput::Grant { caller: 2, turn: first }]);
    script.tell(KeeperInput::Block { round: ROUND, block: Some(block(5_000)) });
    script.tell(KeeperInput::IssueToken { turn: first, number: 1 });
    script.says(&[KeeperOutput::IssueBlock { round: ROUND + 1 }]);
}

#[test]
fn keeper_tells_who_has_the_turn_and_who_waits() {
    let script = Script::new();
    assert!(!script.keeper.has_place() && script.keeper.user().is_none());
    let mut script = Script::held();
    assert_eq!(script.keeper.user(), Some(TurnOf::Caller));
    script.asks(GUEST, 1, ms(300));
    script.is_queued(GUEST, 1, 0);
    script.joins(2, 60);
    let line: Vec<_> = script.keeper.line().collect();
    assert_eq!(line, [LineUser::Guest(GUEST), LineUser::Caller(2, demand(60))]);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.is_granted(GUEST, 1, turn(2), ms(300));
    assert_eq!(script.keeper.user(), Some(TurnOf::Guest(GUEST)));
    assert_eq!(script.keeper.line().len(), 1);
    script.tell(KeeperInput::Lost);
    assert!(script.keeper.has_place(), "its rows wait for the end of the turn");
    assert_eq!(script.keeper.user(), Some(TurnOf::Guest(GUEST)));
}

#[test]
fn client_is_served_while_it_waits_or_has_the_turn() {
    let mut script = Script::with_guest();
    script.asks(OTHER, 1, ms(400));
    script.is_queued(OTHER, 1, 0);
    assert!(script.keeper.serves(GUEST) && script.keeper.serves(OTHER));
    script.hears(GUEST, ms(500), Request::Return { turn: turn(2) });
    assert!(!script.keeper.serves(GUEST) && script.keeper.serves(OTHER));
}

#[test]
fn repeated_renewal_has_the_same_answer() {
    let mut script = Script::with_guest();
    let mut renews = |sent| {
        script.now += s(1);
        script.hears(GUEST, sent, Request::Renew { turn: turn(2), least: s(20) });
        script.said.pop_front().expect("it is answered")
    };
    let [first, again, later] = [ms(500), ms(500), ms(501)].map(&mut renews);
    assert_eq!(first, again);
    assert_ne!(first, later);
}
