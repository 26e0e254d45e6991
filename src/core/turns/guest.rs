//! A guest: one client's request for a turn of one object, at one keeper.
//!
//! A guest is inside only by its own clock: from the [`Granted`] that answers its present request
//! until the echo in it plus the length, or the last extension in time. Every other `Granted` is
//! returned, except a repeated one of the turn that it has (rule R3).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::messages::{AHEAD_MAX, Extended, Granted, Now, Request, Response, TimedRequest, TurnId};
use super::sublease::FIRST_RENEWAL;
use crate::core::bakery::SeededBug;

/// Asking is repeated this often; it is the heartbeat.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The first two in the line ask more often, so that a lost grant is noticed soon.
const ASK_OFTEN: Duration = Duration::from_millis(250);

/// How many in the line ask more often.
const ASKING_OFTEN: u32 = 2;

/// A keeper that does not answer the first time within this time is late: its client waits in the
/// table too, unless it only tries.
const FIRST_ANSWER_MAX: Duration = Duration::from_millis(20);

/// A keeper that has not answered at all is left after this time. For a crowd on few processors it
/// may need seconds; a client that left it sooner would ask the next one, which needs no less.
const LATE_MAX: Duration = Duration::from_secs(2);

/// A keeper that answered before and is silent for this long is left, and so is one that was asked
/// by a try.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Renewals and returns are repeated at this interval until they are answered.
const REPEAT_AFTER: Duration = Duration::from_millis(250);

/// A sublease is extended when this part of it has passed.
const RENEWALS_PER_LENGTH: u32 = 3;

/// One client as a guest; see the [module](super) for how to drive it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guest {
    state: State,
    /// The number of the last request.
    last_request: u64,
    /// A turn whose return is not answered.
    returning: Option<Returning>,
    outputs: VecDeque<GuestOutput>,
}

/// What happens to a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GuestInput {
    /// Ask for a turn with subleases of at most this length. Only while no turn is asked for.
    Ask {
        /// The length.
        ttl: Duration,
        /// Whether only an idle place will do.
        is_try: bool,
        /// How long the first one lasts at least; zero: as usual.
        least: Duration,
    },
    /// Extend the turn now. Does nothing outside.
    Renew {
        /// For at least so long, if a usual sublease is too short; otherwise zero.
        least: Duration,
    },
    /// Issue a fencing token. Only inside, and one at a time.
    IssueToken,
    /// Stop asking, or return the turn.
    Leave,
    /// A message of the keeper.
    Response(Response),
    /// There is a new connection to the keeper: what was sent before may be lost.
    Reconnected,
    /// Time has passed.
    Tick,
}

/// What a guest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GuestOutput {
    /// Send a request to the keeper.
    Send(TimedRequest),
    /// A report.
    Event(GuestEvent),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GuestEvent {
    /// It is in the line, with others ahead of it.
    Queued {
        /// How many.
        ahead: u32,
    },
    /// The guest has its turn until this time of its clock.
    Granted {
        /// The turn.
        turn: TurnId,
        /// The time.
        until: Duration,
    },
    /// The turn lasts until this time of the guest's clock.
    Extended {
        /// The time.
        until: Duration,
        /// When the request was sent that the keeper has answered.
        sent: Duration,
    },
    /// The keeper asked the guest to leave: the turn lasts as long as it was extended for.
    Expiring,
    /// A fencing token.
    Token(i64),
    /// The turn is lost. Final.
    Lost(GuestLoss),
    /// The keeper is slow to answer: wait for it in the table.
    Late,
    /// There is no turn at this keeper: continue in the table.
    Elsewhere,
}

/// Why a turn is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GuestLoss {
    /// Its time is over: the keeper could not be reached.
    KeeperUnreachable,
    /// The keeper's place is lost, or the guest did not leave when the keeper asked it to.
    PlaceLost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Asking(Asking),
    Inside(Inside),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asking {
    request: u64,
    ttl: Duration,
    is_try: bool,
    least: Duration,
    /// When it is asked again.
    next: Duration,
    /// Since when the keeper owes an answer.
    unanswered_since: Option<Duration>,
    /// Whether it answered this request before, or has just given a turn.
    is_answered: bool,
    /// Whether it was reported as late.
    is_late: bool,
}

impl Asking {
    /// When the keeper is left.
    fn patience_ends(&self) -> Option<Duration> {
        let patience = if self.is_try || self.is_answered { SILENCE_MAX } else { LATE_MAX };
        self.unanswered_since.map(|since| since + patience)
    }

    /// When the keeper is late.
    fn late(&self) -> Option<Duration> {
        let is_known = self.is_try || self.is_answered || self.is_late;
        let since = self.unanswered_since.filter(|_| !is_known);
        since.map(|since| since + FIRST_ANSWER_MAX)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Inside {
    turn: TurnId,
    until: Duration,
    /// When the newest request was sent that the keeper has answered.
    answered: Duration,
    /// When the turn is extended.
    renew: Duration,
    /// How long the next extension lasts at least, if a usual one is too short.
    least: Duration,
    /// The number of the last token that was asked for.
    last_token: u64,
    /// When it is asked for again, if it was not answered.
    token_due: Option<Duration>,
    /// The keeper asked the guest to leave. The turn is not extended any more.
    is_expiring: bool,
}

impl Inside {
    /// When the turn is extended, if it is.
    fn renewal(&self) -> Option<Duration> {
        (!self.is_expiring).then_some(self.renew)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Returning {
    turn: TurnId,
    next: Duration,
    /// From then on the keeper has ended the turn by itself.
    until: Duration,
}

impl Guest {
    /// A guest that asks nothing. Its requests have larger numbers than `last_request`, that of the
    /// client's last request to the keeper.
    pub(crate) fn new(last_request: u64) -> Self {
        let outputs = VecDeque::new();
        Guest { state: State::Idle, last_request, returning: None, outputs }
    }

    /// Handles an input.
    ///
    /// # Panics
    ///
    /// If it is asked to ask while it asks or is inside: a bug of the caller.
    pub(crate) fn handle(&mut self, now: Now, input: GuestInput) {
        // First, so that no answer is handled as if the turn still lasted.
        self.expire(now);
        match input {
            GuestInput::Ask { ttl, is_try, least } => {
                assert!(self.state == State::Idle, "one request at a time");
                self.ask(now, ttl, is_try, least);
            }
            GuestInput::Renew { least } => {
                if let State::Inside(inside) = &mut self.state {
                    (inside.renew, inside.least) = (now.elapsed, least);
                }
            }
            GuestInput::IssueToken => {
                if let State::Inside(inside) = &mut self.state {
                    inside.last_token += 1;
                    inside.token_due = Some(now.elapsed);
                }
            }
            GuestInput::Leave => self.leave(now),
            GuestInput::Response(response) => self.response(now, response),
            GuestInput::Reconnected => self.send_again(now),
            GuestInput::Tick => {}
        }
        self.proceed(now);
    }

    /// The next output.
    #[must_use]
    pub(crate) fn poll(&mut self) -> Option<GuestOutput> {
        self.outputs.pop_front()
    }

    /// When to send [`GuestInput::Tick`], by the library's clock, unless another input comes first.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let own = match &self.state {
            State::Idle => None,
            State::Asking(asking) => {
                let due = [Some(asking.next), asking.late(), asking.patience_ends()];
                due.iter().flatten().min().copied()
            }
            State::Inside(inside) => {
                let next = inside.renewal().map_or(inside.until, |due| due.min(inside.until));
                Some(inside.token_due.map_or(next, |due| due.min(next)))
            }
        };
        let returning = self.returning.as_ref().map(|returning| returning.next);
        own.into_iter().chain(returning).min()
    }

    /// The number of its last request.
    pub(crate) fn last_request(&self) -> u64 {
        self.last_request
    }

    /// Whether the guest neither asks nor has a turn. A return may still be on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_done(&self) -> bool {
        self.is_idle() && self.returning.is_none()
    }

    /// Whether a message can change anything, now or later.
    #[cfg(instrumented)]
    pub(crate) fn is_moved_by(&self, response: &Response) -> bool {
        match (response, &self.state) {
            (
                Response::Queued { request, .. } | Response::Elsewhere { request },
                State::Asking(asking),
            ) => asking.request == *request,
            (Response::Extended(Extended { turn, .. }), State::Inside(inside)) => {
                inside.turn == *turn
            }
            (Response::Leave { turn }, State::Inside(inside)) => {
                inside.turn == *turn && !inside.is_expiring
            }
            (Response::Lost { turn }, State::Inside(inside)) => inside.turn == *turn,
            (Response::Token { turn, number, .. }, State::Inside(inside)) => {
                inside.turn == *turn && inside.last_token == *number && inside.token_due.is_some()
            }
            (Response::Leave { .. } | Response::Lost { .. }, State::Asking(_))
            | (Response::Granted(_), _) => true,
            (Response::Check { turn, .. }, State::Inside(inside)) if inside.turn == *turn => true,
            (Response::Returned { turn } | Response::Check { turn, .. }, _) => {
                self.returning.as_ref().is_some_and(|returning| returning.turn == *turn)
            }
            (
                Response::Queued { .. }
                | Response::Elsewhere { .. }
                | Response::Extended(_)
                | Response::Token { .. }
                | Response::Leave { .. }
                | Response::Lost { .. },
                _,
            ) => false,
        }
    }

    /// The number of the turn that it has.
    #[cfg(instrumented)]
    pub(crate) fn turn_number(&self) -> Option<u64> {
        match &self.state {
            State::Inside(inside) => Some(inside.turn.number),
            State::Idle | State::Asking(_) => None,
        }
    }

    /// Whether the guest has the turn at `now`, by its own clock.
    #[cfg(any(test, instrumented))]
    pub(crate) fn is_inside(&self, now: Now) -> bool {
        matches!(&self.state, State::Inside(inside) if now.elapsed < inside.until)
    }

    // Asking.

    fn ask(&mut self, now: Now, ttl: Duration, is_try: bool, least: Duration) {
        self.last_request += 1;
        self.state = State::Asking(Asking {
            request: self.last_request,
            ttl,
            is_try,
            least,
            next: now.elapsed,
            unanswered_since: None,
            // It delays its answer to one that has just returned a turn.
            is_answered: self.returning.is_some(),
            is_late: false,
        });
    }

    fn leave(&mut self, now: Now) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Asking(asking) => {
                self.send(now, Request::Withdraw { request: asking.request });
            }
            State::Inside(inside) => self.return_turn(now, inside.turn, inside.until),
        }
    }

    fn return_turn(&mut self, now: Now, turn: TurnId, until: Duration) {
        self.returning = Some(Returning { turn, next: now.elapsed, until });
    }

    // Answers.

    fn response(&mut self, now: Now, response: Response) {
        match response {
            Response::Queued { request, ahead } => {
                if let Some(asking) = self.asking(request) {
                    asking.unanswered_since = None;
                    asking.is_answered = true;
                    if ahead < ASKING_OFTEN {
                        asking.next = asking.next.min(now.elapsed + ASK_OFTEN);
                    }
                    let ahead = ahead.min(AHEAD_MAX);
                    self.event(GuestEvent::Queued { ahead });
                }
            }
            Response::Granted(granted) => self.granted(now, granted),
            Response::Extended(extended) => self.extended(extended),
            Response::Token { turn, number, value } => {
                if let State::Inside(inside) = &mut self.state
                    && inside.turn == turn
                    && inside.last_token == number
                    && inside.token_due.take().is_some()
                {
                    self.event(GuestEvent::Token(value));
                }
            }
            Response::Returned { turn } => {
                self.returning.take_if(|returning| returning.turn == turn);
            }
            Response::Leave { turn } => {
                if let State::Inside(inside) = &mut self.state
                    && inside.turn == turn
                    && !inside.is_expiring
                {
                    inside.is_expiring = true;
                    self.event(GuestEvent::Expiring);
                }
            }
            Response::Lost { turn } => {
                if let State::Inside(inside) = &self.state
                    && inside.turn == turn
                {
                    self.event(GuestEvent::Lost(GuestLoss::PlaceLost));
                    self.leave(now);
                }
            }
            Response::Elsewhere { request } => {
                if self.asking(request).is_some() {
                    self.state = State::Idle;
                    self.event(GuestEvent::Elsewhere);
                }
            }
            Response::Check { turn, number } => self.check(now, turn, number),
        }
    }

    /// One that neither has the turn nor has returned it may learn of it later, and says nothing.
    fn check(&mut self, now: Now, turn: TurnId, number: u64) {
        if matches!(&self.state, State::Inside(inside) if inside.turn == turn) {
            self.send(now, Request::Confirm { turn, number });
        }
        if let Some(returning) = self.returning.as_mut().filter(|it| it.turn == turn) {
            returning.next = now.elapsed;
        }
    }

    fn granted(&mut self, now: Now, granted: Granted) {
        let Granted { request, turn, echo, length } = granted;
        let echo = if SeededBug::LeaseFromReceipt.is_planted() { now.elapsed } else { echo };
        let until = echo + length;
        match &self.state {
            State::Inside(inside) if inside.turn == turn => {
                if SeededBug::RepeatedGrantReturned.is_planted() {
                    self.return_turn(now, turn, until);
                }
            }
            State::Idle if SeededBug::OldGrantAccepted.is_planted() && now.elapsed < until => {
                self.enter(now, turn, echo, until);
            }
            State::Asking(asking) if asking.request == request && now.elapsed < until => {
                // A keeper gives one turn at a time: the one before is over.
                self.returning = None;
                self.enter(now, turn, echo, until);
            }
            State::Asking(asking) if asking.request == request => {
                // It came too late. The request is over with its turn.
                let Asking { ttl, is_try, least, .. } = *asking;
                self.return_turn(now, turn, until);
                self.ask(now, ttl, is_try, least);
            }
            State::Idle | State::Asking(_) | State::Inside(_) => self.return_turn(now, turn, until),
        }
    }

    fn enter(&mut self, now: Now, turn: TurnId, echo: Duration, until: Duration) {
        self.state = State::Inside(Inside {
            turn,
            until,
            answered: echo,
            renew: now.elapsed + FIRST_RENEWAL,
            least: Duration::ZERO,
            last_token: 0,
            token_due: None,
            is_expiring: false,
        });
        self.event(GuestEvent::Granted { turn, until });
    }

    fn extended(&mut self, extended: Extended) {
        let Extended { turn, echo, length } = extended;
        if let State::Inside(inside) = &mut self.state
            && inside.turn == turn
            && echo > inside.answered
        {
            // What the keeper has decided before is not taken back.
            inside.until = inside.until.max(echo + length);
            inside.renew = echo + length / RENEWALS_PER_LENGTH;
            inside.answered = echo;
            inside.least = Duration::ZERO;
            let until = inside.until;
            self.event(GuestEvent::Extended { until, sent: echo });
        }
    }

    fn asking(&mut self, request: u64) -> Option<&mut Asking> {
        match &mut self.state {
            State::Asking(asking) if asking.request == request => Some(asking),
            State::Idle | State::Asking(_) | State::Inside(_) => None,
        }
    }

    // Changes by time alone.

    fn expire(&mut self, now: Now) {
        match &mut self.state {
            State::Inside(inside) if now.elapsed >= inside.until => {
                let (turn, until) = (inside.turn, inside.until);
                let asked = inside.is_expiring;
                let loss = if asked { GuestLoss::PlaceLost } else { GuestLoss::KeeperUnreachable };
                self.state = State::Idle;
                self.event(GuestEvent::Lost(loss));
                self.return_turn(now, turn, until);
            }
            State::Asking(asking)
                if asking.patience_ends().is_some_and(|ends| now.elapsed >= ends) =>
            {
                self.leave(now);
                self.event(GuestEvent::Elsewhere);
            }
            State::Asking(asking) if asking.late().is_some_and(|late| now.elapsed >= late) => {
                asking.is_late = true;
                self.event(GuestEvent::Late);
            }
            State::Idle | State::Asking(_) | State::Inside(_) => {}
        }
        // The keeper ends the turn by its own clock a little later.
        self.returning.take_if(|returning| now.elapsed >= returning.until + SILENCE_MAX);
    }

    fn proceed(&mut self, now: Now) {
        if let State::Inside(Inside { turn, last_token, token_due: Some(due), .. }) =
            &mut self.state
            && *due <= now.elapsed
        {
            *due = now.elapsed + REPEAT_AFTER;
            let request = Request::IssueToken { turn: *turn, number: *last_token };
            self.send(now, request);
        }
        let request = match &mut self.state {
            State::Asking(asking) if asking.next <= now.elapsed => {
                asking.next = now.elapsed + ASK_EVERY;
                asking.unanswered_since.get_or_insert(now.elapsed);
                let Asking { request, ttl, is_try, least, .. } = *asking;
                Some(Request::Ask { request, ttl, is_try, least })
            }
            State::Inside(inside) if inside.renewal().is_some_and(|due| due <= now.elapsed) => {
                inside.renew = now.elapsed + REPEAT_AFTER;
                Some(Request::Renew { turn: inside.turn, least: inside.least })
            }
            State::Idle | State::Asking(_) | State::Inside(_) => None,
        };
        let returning = self.returning.as_mut().filter(|returning| returning.next <= now.elapsed);
        let returned = returning.map(|returning| {
            returning.next = now.elapsed + REPEAT_AFTER;
            Request::Return { turn: returning.turn }
        });
        for request in returned.into_iter().chain(request) {
            self.send(now, request);
        }
    }

    /// Sends everything once more that is not answered.
    fn send_again(&mut self, now: Now) {
        match &mut self.state {
            State::Idle => {}
            State::Asking(asking) => asking.next = now.elapsed,
            State::Inside(inside) => {
                inside.renew = now.elapsed;
                inside.token_due = inside.token_due.map(|_| now.elapsed);
            }
        }
        if let Some(returning) = &mut self.returning {
            returning.next = now.elapsed;
        }
    }

    fn send(&mut self, now: Now, request: Request) {
        self.outputs.push_back(GuestOutput::Send(TimedRequest { sent: now.elapsed, request }));
    }

    fn event(&mut self, event: GuestEvent) {
        self.outputs.push_back(GuestOutput::Event(event));
    }
}
