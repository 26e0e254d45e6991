//! Scripts of the guest: what happens to it, and what it must say.

use super::*;
use crate::core::bakery::ContenderId;

const TTL: Duration = s(60);
const RENEWAL: Request = Request::Renew { turn: turn(1), least: Duration::ZERO };

/// A guest and what it said that the script has not expected yet.
struct Script {
    guest: Guest,
    now: Duration,
    said: VecDeque<GuestOutput>,
}

impl Script {
    /// A guest that has asked for the first time.
    fn asking() -> Self {
        let mut script = Script { guest: Guest::new(0), now: s(100), said: VecDeque::new() };
        script.tell(GuestInput::Ask { ttl: TTL, is_try: false, least: Duration::ZERO });
        script.asks(1);
        script
    }

    /// A guest that has its turn for two seconds.
    fn inside() -> Self {
        let mut script = Script::asking();
        script.hears(granted(1, 1, s(100)));
        script.is_inside(1, s(102));
        script
    }

    fn now(&self) -> Now {
        Now { elapsed: self.now, boot: self.now }
    }

    fn tell(&mut self, input: GuestInput) {
        let now = self.now();
        self.guest.handle(now, input);
        self.said.extend(std::iter::from_fn(|| self.guest.poll()));
    }

    fn hears(&mut self, response: Response) {
        self.tell(GuestInput::Response(response));
    }

    fn checks(&mut self, number: u64) {
        self.hears(Response::Check { turn: turn(number), number: 4 });
    }

    /// Time passes, and the guest is woken when it wants to be.
    fn sleeps(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.guest.deadline().filter(|due| *due <= until) {
            assert!(due > self.now, "it is due when it was just woken");
            self.now = due;
            self.tell(GuestInput::Tick);
        }
        self.now = until;
    }

    fn says(&mut self, outputs: &[GuestOutput]) {
        assert_eq!(self.said.make_contiguous(), outputs);
        self.said.clear();
    }

    fn sends(&mut self, request: Request) {
        let sent = self.now;
        self.says(&[GuestOutput::Send(TimedRequest { sent, request })]);
    }

    fn asks(&mut self, request: u64) {
        self.sends(Request::Ask { request, ttl: TTL, is_try: false, least: Duration::ZERO });
    }

    fn returns(&mut self, number: u64) {
        self.sends(Request::Return { turn: turn(number) });
    }

    fn tells(&mut self, event: GuestEvent) {
        self.says(&[GuestOutput::Event(event)]);
    }

    fn is_inside(&mut self, number: u64, until: Duration) {
        self.tells(GuestEvent::Granted { turn: turn(number), until });
        assert!(self.guest.is_inside(self.now()));
    }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn turn(number: u64) -> TurnId {
    TurnId { place: ContenderId { host: 1, client: 7, slot: 0 }, round: 40, number }
}

/// A grant for two seconds.
fn granted(request: u64, number: u64, echo: Duration) -> Response {
    Response::Granted(Granted { request, turn: turn(number), echo, length: s(2) })
}

fn extended(number: u64, echo: Duration, length: Duration) -> Response {
    Response::Extended(Extended { turn: turn(number), echo, length })
}

#[test]
fn turn_lasts_from_the_echo_on() {
    let mut script = Script::asking();
    script.hears(Response::Queued { request: 1, ahead: 9 });
    script.said.clear();
    script.now += ms(900);
    script.hears(granted(1, 1, s(100)));
    script.is_inside(1, s(102));
    script.tell(GuestInput::Leave);
    script.returns(1);
    script.hears(Response::Returned { turn: turn(1) });
    script.says(&[]);
    assert!(script.guest.is_done());
}

#[test]
fn asking_is_repeated_and_more_often_near_the_head() {
    let mut script = Script::asking();
    script.hears(Response::Queued { request: 1, ahead: 2 });
    script.tells(GuestEvent::Queued { ahead: 2 });
    script.sleeps(ms(999));
    script.says(&[]);
    script.sleeps(ms(1));
    script.asks(1);
    script.hears(Response::Queued { request: 1, ahead: 1 });
    script.tells(GuestEvent::Queued { ahead: 1 });
    script.sleeps(ms(249));
    script.says(&[]);
    script.sleeps(ms(1));
    script.asks(1);
}

#[test]
fn no_more_than_a_hundred_are_ahead() {
    let mut script = Script::asking();
    script.hears(Response::Queued { request: 1, ahead: u32::MAX });
    script.tells(GuestEvent::Queued { ahead: 100 });
}

#[test]
fn silent_keeper_is_left() {
    let mut late = Script::asking();
    late.sleeps(s(1));
    late.said.clear();
    let mut answering = Script::asking();
    answering.hears(Response::Queued { request: 1, ahead: 9 });
    answering.sleeps(s(1));
    answering.said.clear();
    let mut trying = Script { guest: Guest::new(0), now: s(100), said: VecDeque::new() };
    trying.tell(GuestInput::Ask { ttl: TTL, is_try: true, least: Duration::ZERO });
    trying.said.clear();
    for (mut script, patience) in [(late, s(1)), (answering, s(1)), (trying, s(1))] {
        script.now += patience - ms(1);
        script.tell(GuestInput::Tick);
        script.says(&[]);
        assert_eq!(script.guest.deadline(), Some(script.now + ms(1)));
        script.now += ms(1);
        script.tell(GuestInput::Tick);
        let sent = script.now;
        script.says(&[
            GuestOutput::Send(TimedRequest { sent, request: Request::Withdraw { request: 1 } }),
            GuestOutput::Event(GuestEvent::Elsewhere),
        ]);
        assert!(script.guest.is_done());
    }
}

// Goal: a guest confirms the turn that it has, and returns once more the one that it returned. It
// returns none that it may still learn of.
#[test]
fn check_is_answered_with_confirm_or_return() {
    let mut script = Script::inside();
    script.checks(1);
    script.sends(Request::Confirm { turn: turn(1), number: 4 });
    script.checks(2);
    script.says(&[]);
    script.tell(GuestInput::Leave);
    script.returns(1);
    script.checks(1);
    script.returns(1);
    script.tell(GuestInput::Ask { ttl: TTL, is_try: false, least: Duration::ZERO });
    script.asks(2);
    script.checks(2);
    script.says(&[]);
    script.hears(granted(2, 2, s(100)));
    script.is_inside(2, s(102));
}

#[test]
fn late_keeper_is_reported_once_and_may_still_answer() {
    let mut script = Script::asking();
    script.sleeps(ms(19));
    script.says(&[]);
    script.sleeps(ms(1));
    script.tells(GuestEvent::Late);
    script.sleeps(ms(979));
    script.says(&[]);
    script.hears(Response::Queued { request: 1, ahead: 9 });
    script.tells(GuestEvent::Queued { ahead: 9 });
    script.sleeps(ms(1));
    script.asks(1);
    script.sleeps(ms(999));
    script.says(&[]);
}

#[test]
fn it_goes_elsewhere_when_it_is_sent_there() {
    let mut script = Script::asking();
    script.hears(Response::Elsewhere { request: 0 });
    script.says(&[]);
    script.hears(Response::Elsewhere { request: 1 });
    script.tells(GuestEvent::Elsewhere);
    assert!(script.guest.is_done());
}

#[test]
fn turn_that_it_has_is_not_granted_again() {
    let mut script = Script::inside();
    script.now += ms(40);
    script.hears(granted(1, 1, s(100)));
    script.says(&[]);
    assert_eq!(script.guest.deadline(), Some(s(100) + ms(50)));
}

#[test]
fn any_other_grant_is_returned() {
    let mut script = Script::inside();
    script.hears(granted(1, 2, s(100)));
    script.returns(2);
    script.tell(GuestInput::Leave);
    script.returns(1);
    // The same again, though its time is not over.
    script.hears(granted(1, 1, s(100)));
    script.returns(1);
    assert!(!script.guest.is_inside(script.now()));

    // Of another request, in time and too late.
    let mut asking = Script::asking();
    for (number, echo) in [(3, s(100)), (4, s(90))] {
        asking.hears(granted(7, number, echo));
        asking.returns(number);
    }
    assert!(!asking.guest.is_idle());

    let mut gave_up = Script::asking();
    gave_up.tell(GuestInput::Leave);
    gave_up.sends(Request::Withdraw { request: 1 });
    gave_up.hears(granted(1, 1, s(100)));
    gave_up.returns(1);
}

#[test]
fn late_grant_is_returned_and_asked_for_again() {
    let mut script = Script::asking();
    script.hears(Response::Queued { request: 1, ahead: 9 });
    script.sleeps(ms(1_500));
    script.hears(Response::Queued { request: 1, ahead: 9 });
    script.now += ms(500);
    script.said.clear();
    script.hears(granted(1, 1, s(100)));
    let sent = script.now;
    let send = |request| GuestOutput::Send(TimedRequest { sent, request });
    script.says(&[
        send(Request::Return { turn: turn(1) }),
        send(Request::Ask { request: 2, ttl: TTL, is_try: false, least: Duration::ZERO }),
    ]);
}

#[test]
fn return_is_repeated_until_answered_or_over() {
    let mut script = Script::inside();
    script.tell(GuestInput::Leave);
    script.returns(1);
    script.sleeps(ms(250));
    script.returns(1);
    script.hears(Response::Returned { turn: turn(2) });
    assert!(!script.guest.is_done());
    script.sleeps(s(10));
    assert!(script.guest.is_done());
}

#[test]
fn next_turn_answers_the_return_of_the_last_one() {
    let mut script = Script::inside();
    script.tell(GuestInput::Leave);
    script.returns(1);
    script.tell(GuestInput::Ask { ttl: TTL, is_try: false, least: Duration::ZERO });
    script.asks(2);
    // It knows the keeper, which delays its answer.
    script.sleeps(ms(21));
    script.says(&[]);
    script.hears(granted(2, 3, s(100)));
    script.is_inside(3, s(102));
    script.now += ms(300);
    script.said.clear();
    script.tell(GuestInput::Leave);
    script.returns(3);
}

#[test]
fn turn_is_extended_while_it_lasts() {
    let mut script = Script::inside();
    script.sleeps(ms(50));
    script.sends(RENEWAL);
    script.sleeps(ms(250));
    script.sends(RENEWAL);
    script.hears(extended(1, s(100) + ms(50), s(30)));
    script.tells(GuestEvent::Extended { until: s(130) + ms(50), sent: s(100) + ms(50) });
    // The same again, an older one, one of another turn; and the next renewal when a third has
    // passed.
    script.hears(extended(1, s(100) + ms(50), s(30)));
    script.hears(extended(1, s(100), s(30)));
    script.hears(extended(2, s(101), s(30)));
    script.says(&[]);
    assert_eq!(script.guest.deadline(), Some(s(110) + ms(50)));
}

#[test]
fn turn_is_extended_when_asked_for() {
    let mut script = Script::inside();
    script.sleeps(ms(10));
    script.tell(GuestInput::Renew { least: Duration::ZERO });
    script.sends(RENEWAL);
    let sent = script.now;
    script.hears(extended(1, sent, s(50)));
    script.tells(GuestEvent::Extended { until: sent + s(50), sent });
    // The place was not renewed meanwhile, so the turn is not longer; but the keeper has answered.
    script.sleeps(ms(10));
    script.tell(GuestInput::Renew { least: Duration::ZERO });
    script.said.clear();
    script.hears(extended(1, script.now, s(40)));
    script.tells(GuestEvent::Extended { until: sent + s(50), sent: script.now });
    assert_eq!(script.guest.deadline(), Some(script.now + s(40) / 3));

    // A longer one, until it is answered.
    let long = Request::Renew { turn: turn(1), least: s(40) };
    script.tell(GuestInput::Renew { least: s(40) });
    script.sends(long);
    script.sleeps(ms(250));
    script.sends(long);
    script.hears(extended(1, script.now, s(59)));
    script.said.clear();
    script.sleeps(s(59) / 3);
    script.sends(RENEWAL);

    let mut asking = Script::asking();
    asking.tell(GuestInput::Renew { least: Duration::ZERO });
    asking.says(&[]);
}

#[test]
fn turn_that_is_not_extended_is_lost() {
    let mut script = Script::inside();
    script.now += ms(1_999);
    assert!(script.guest.is_inside(script.now()));
    script.now += ms(1);
    assert!(!script.guest.is_inside(script.now()));
    script.hears(extended(1, s(101), s(30)));
    let sent = script.now;
    script.says(&[
        GuestOutput::Event(GuestEvent::Lost(GuestLoss::KeeperUnreachable)),
        GuestOutput::Send(TimedRequest { sent, request: Request::Return { turn: turn(1) } }),
    ]);
}

#[test]
fn guest_asked_to_leave_stops_extending() {
    let mut script = Script::inside();
    let until = script.guest.deadline();
    script.hears(Response::Leave { turn: turn(2) });
    script.says(&[]);
    assert_eq!(script.guest.deadline(), until);
    script.hears(Response::Leave { turn: turn(1) });
    script.says(&[GuestOutput::Event(GuestEvent::Expiring)]);
    script.hears(Response::Leave { turn: turn(1) });
    script.tell(GuestInput::Renew { least: Duration::ZERO });
    script.says(&[]);
    let ends = script.guest.deadline().expect("its turn ends");
    assert!(Some(ends) > until, "it is still to be extended");
    script.now = ends;
    script.tell(GuestInput::Tick);
    let sent = script.now;
    script.says(&[
        GuestOutput::Event(GuestEvent::Lost(GuestLoss::PlaceLost)),
        GuestOutput::Send(TimedRequest { sent, request: Request::Return { turn: turn(1) } }),
    ]);
}

#[test]
fn guest_leaves_when_the_place_is_lost() {
    let mut script = Script::inside();
    script.hears(Response::Lost { turn: turn(2) });
    script.says(&[]);
    script.hears(Response::Lost { turn: turn(1) });
    let sent = script.now;
    script.says(&[
        GuestOutput::Event(GuestEvent::Lost(GuestLoss::PlaceLost)),
        GuestOutput::Send(TimedRequest { sent, request: Request::Return { turn: turn(1) } }),
    ]);
    assert!(script.guest.is_idle());
}

#[test]
fn after_a_new_connection_all_is_sent_again() {
    let mut asking = Script::asking();
    asking.tell(GuestInput::Reconnected);
    asking.asks(1);
    let mut inside = Script::inside();
    inside.tell(GuestInput::Reconnected);
    inside.sends(RENEWAL);
    inside.tell(GuestInput::Leave);
    inside.returns(1);
    inside.tell(GuestInput::Reconnected);
    inside.returns(1);
}

#[test]
fn token_is_asked_for_until_it_comes() {
    let token = |of, number, value| Response::Token { turn: turn(of), number, value };
    let mut script = Script::inside();
    script.tell(GuestInput::IssueToken);
    script.sends(Request::IssueToken { turn: turn(1), number: 1 });
    script.sleeps(ms(250));
    script.said.pop_front();
    script.sends(Request::IssueToken { turn: turn(1), number: 1 });
    script.hears(token(2, 1, 5_000));
    script.hears(token(1, 0, 5_000));
    script.says(&[]);
    script.hears(token(1, 1, 6_000));
    script.tells(GuestEvent::Token(6_000));
    script.hears(token(1, 1, 6_000));
    script.says(&[]);
    script.tell(GuestInput::IssueToken);
    script.sends(Request::IssueToken { turn: turn(1), number: 2 });
    script.tell(GuestInput::Reconnected);
    assert!(script.said.contains(&GuestOutput::Send(TimedRequest {
        sent: script.now,
        request: Request::IssueToken { turn: turn(1), number: 2 },
    })));
    // Too late: the turn is over.
    script.now = s(102);
    script.said.clear();
    script.hears(token(1, 2, 7_000));
    assert!(!script.said.contains(&GuestOutput::Event(GuestEvent::Token(7_000))));
}
