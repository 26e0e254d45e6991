//! Turns that this client has as a guest of other clients, which keep the place (design section 7).
//!
//! An acquisition goes through the table. As soon as that shows another client ahead, its keeper is
//! asked as well; whichever lets this client in first counts, and the other way is left (rule R6).
//! A keeper that recently served this client is asked before the table.

use std::collections::BTreeMap;
use std::time::Duration;

use super::holders::Holder;
use super::{SLOT_OF_TURNS, Slot};
use crate::core::bakery::{
    Acquire, ContenderId, ContenderInput, Lease, Mode, Patience, SeededBug, SeenContender,
};
use crate::core::object::io::{Caller, Expiring, Loss, Now, Output, Refusal};
use crate::core::turns::{
    Guest, GuestEvent, GuestInput, GuestOutput, KeeperId, KeeperInput, Request, Response,
    SUBLEASE_MAX, TimedRequest, TurnId,
};

/// The maximum number of keepers that a client asks in one acquisition.
const ASKED_MAX: usize = 8;

/// When a keeper is gone, this many of its line come back to the table at once, and each of the
/// others this much later: it finds one of the first there, whose line it can join.
const BACK_AT_ONCE: u32 = 8;
const BACK_APART: Duration = Duration::from_millis(5);

/// A contender that announced itself later and has no ticket is not asked within this time, in µs:
/// it asks this one itself, and of two that ask each other both refuse guests.
const LATER_ONES_AFTER: i64 = 1_000_000;

/// A keeper that served the client within this time probably still has the object.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// The turns that a client has as a guest, one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteTurns {
    state: State,
    /// One for each keeper that was asked. It stays until its last return is answered.
    guests: BTreeMap<KeeperId, Guest>,
    /// The number of the last request to any keeper.
    last_request: u64,
    connecting: Option<KeeperId>,
    /// The first in the line is a try that found the object taken in the table, and is refused
    /// unless the place of the keeper that is asked is idle.
    is_last_resort: bool,
    /// The clients that were asked for the present acquisition.
    asked: Vec<KeeperId>,
    /// When the present acquisition in the table began, as a stamp.
    announced: i64,
    /// The keeper that served the client last, and when it answered.
    remembered: Option<Remembered>,
}

/// The keeper that served a client last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Remembered {
    /// The keeper.
    pub(crate) keeper: KeeperId,
    /// When it answered.
    pub(crate) answered: Duration,
}

impl Remembered {
    /// Whether the keeper probably still has the object.
    pub(in crate::core::object) fn is_recent(&self, now: Now) -> bool {
        now.elapsed < self.answered + REMEMBERED_FOR
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No keeper is asked.
    #[default]
    Idle,
    /// A keeper is asked, and the first in the line waits there.
    Asking {
        keeper: KeeperId,
        /// How many were ahead when it last said so.
        ahead: u32,
        /// It is late with its first answer: the client waits in the table, too.
        is_late: bool,
    },
    /// The client has a turn of this keeper.
    Inside { keeper: KeeperId, turn: TurnId, sublease: Lease },
    /// A keeper did not serve this client, which acquires through the table from then on.
    Back { at: Duration },
}

impl RemoteTurns {
    /// No turn; the keeper that served the client last is known.
    pub(super) fn remembering(remembered: Option<Remembered>) -> Self {
        RemoteTurns { remembered, ..RemoteTurns::default() }
    }

    /// When something is due, by the library's clock.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let back = if let State::Back { at } = self.state { Some(at) } else { None };
        self.guests.values().filter_map(Guest::deadline).chain(back).min()
    }

    /// Whether no turn is out or on its way back.
    pub(super) fn is_done(&self) -> bool {
        self.guests.is_empty() && self.keeper().is_none()
    }

    /// The sublease of a turn, if it has one.
    pub(super) fn sublease(&self, turn: TurnId) -> Option<Lease> {
        match self.state {
            State::Inside { turn: own, sublease, .. } => (own == turn).then_some(sublease),
            State::Idle | State::Asking { .. } | State::Back { .. } => None,
        }
    }

    /// The keeper that is asked, or whose turn the client has.
    pub(super) fn keeper(&self) -> Option<KeeperId> {
        match self.state {
            State::Asking { keeper, .. } | State::Inside { keeper, .. } => Some(keeper),
            State::Idle | State::Back { .. } => None,
        }
    }

    /// The turn that the client has.
    pub(super) fn turn(&self) -> Option<TurnId> {
        match self.state {
            State::Inside { turn, .. } => Some(turn),
            State::Idle | State::Asking { .. } | State::Back { .. } => None,
        }
    }

    /// Informs the guest at the present keeper.
    pub(super) fn tell_present(&mut self, now: Now, input: GuestInput) {
        if let Some(guest) = self.keeper().and_then(|keeper| self.guests.get_mut(&keeper)) {
            guest.handle(now.of_turns(), input);
        }
    }

    /// The next output of a guest. Guests that have nothing left to do are forgotten.
    pub(super) fn poll(&mut self) -> Option<(KeeperId, GuestOutput)> {
        let mut outputs = self.guests.iter_mut();
        let output = outputs.find_map(|(keeper, guest)| Some((*keeper, guest.poll()?)));
        if output.is_none() {
            let last_request = &mut self.last_request;
            self.guests.retain(|_, guest| {
                *last_request = guest.last_request().max(*last_request);
                !guest.is_done()
            });
        }
        output
    }

    /// Whether another contender will probably be let in after this client.
    fn comes_later(&self, now: Now, seen: &SeenContender) -> bool {
        seen.ticket.is_none()
            && seen.round.is_some_and(|round| round > self.announced)
            && now.stamp < self.announced.saturating_add(LATER_ONES_AFTER)
    }

    /// Notes that the client acquires through the table from now on.
    pub(super) fn note_announced(&mut self, now: Now) {
        self.announced = now.stamp;
    }

    /// The guest of a keeper. Its requests have larger numbers than all before, as stamps do.
    fn guest(&mut self, now: Now, keeper: KeeperId) -> &mut Guest {
        let last_request = self.last_request.max(now.stamp.unsigned_abs());
        self.guests.entry(keeper).or_insert_with(|| Guest::new(last_request))
    }
}

impl Slot {
    /// The keeper that served the client last, if that is of use later.
    pub(in crate::core::object) fn remembered(&self) -> Option<Remembered> {
        self.remote_turns.remembered
    }

    /// Acquires a place for the first in the line: from a keeper that recently served this client,
    /// or through the table.
    pub(super) fn acquire_place(&mut self, now: Now) {
        self.note_wanted();
        self.remote_turns.asked.clear();
        self.remote_turns.is_last_resort = false;
        let remembered = self.remote_turns.remembered;
        let recent = remembered.filter(|it| it.is_recent(now));
        match recent.filter(|_| self.may_be_guest() && self.remote_turns.connecting.is_none()) {
            Some(Remembered { keeper, .. }) => self.connect(keeper, true),
            None => self.acquire_in_table(now),
        }
    }

    /// Connects to the client of a contender in the way that was not asked yet: of the one that
    /// began first, because rows do not show which of them holds the object. One that can't serve
    /// this client says so at once.
    ///
    /// With a line of guests, only to one that keeps a line, too: then the lines become one.
    pub(super) fn look_for_keeper(&mut self, now: Now) {
        let remote_turns = &self.remote_turns;
        let is_busy = remote_turns.connecting.is_some() || remote_turns.asked.len() >= ASKED_MAX;
        if is_busy || !self.settings.has_network || self.id.slot != SLOT_OF_TURNS {
            return;
        }
        let has_guests = self.keeper.has_guests();
        // Before and after an acquisition, what its contender has read says nothing any more.
        if !self.contender.is_acquiring() || !(has_guests || self.may_be_guest()) {
            return;
        }
        let first = self.first_ahead(|seen| {
            let client = seen.contender.client;
            let is_new = !remote_turns.asked.contains(&client);
            is_new
                && !remote_turns.comes_later(now, seen)
                && (!has_guests || self.competing_keepers.take_over(self.id.client, client))
        });
        if let Some(keeper) = first {
            self.connect(keeper, false);
        }
    }

    /// The client of the contender ahead that began first, of those that may keep the place for
    /// others and suit.
    fn first_ahead(&self, suits: impl Fn(&SeenContender) -> bool) -> Option<KeeperId> {
        let others = self.contender.ahead().iter().filter(|seen| {
            let ContenderId { client, slot, .. } = seen.contender;
            client != self.id.client && slot == SLOT_OF_TURNS && suits(seen)
        });
        let first = others.min_by_key(|seen| seen.round.unwrap_or(i64::MAX));
        first.map(|seen| seen.contender.client)
    }

    /// A try found the object taken: asks the keeper for a turn of an idle place. Returns whether a
    /// keeper can be asked.
    pub(super) fn try_as_guest(&mut self) -> bool {
        self.remote_turns.is_last_resort = true;
        let can_ask = self.remote_turns.connecting.is_none() && self.may_be_guest();
        let keeper = self.first_ahead(|_| true).filter(|_| can_ask);
        self.remote_turns.is_last_resort = keeper.is_some();
        if let Some(keeper) = keeper {
            self.connect(keeper, false);
        }
        keeper.is_some()
    }

    fn connect(&mut self, keeper: KeeperId, at_once: bool) {
        if !at_once {
            self.remote_turns.asked.push(keeper);
        }
        self.remote_turns.connecting = Some(keeper);
        self.outputs.push_back(Output::Connect { keeper, at_once });
    }

    /// A keeper can be asked, or can't, unless a place was acquired meanwhile. The guests in the
    /// line ask it themselves: one with a line never asks another keeper (rule R8).
    pub(in crate::core::object) fn connected(
        &mut self,
        now: Now,
        keeper: KeeperId,
        is_reachable: bool,
    ) {
        if self.remote_turns.connecting.take_if(|it| *it == keeper).is_none() {
            return;
        }
        if is_reachable && self.competing_keepers.take_over(self.id.client, keeper) {
            self.keeper.handle(now.of_turns(), KeeperInput::Disband);
            self.settle(now);
        }
        if is_reachable && self.may_be_guest() {
            self.ask(now, keeper);
        } else {
            self.go_on_in_table(now);
            self.look_for_keeper(now);
        }
        self.settle(now);
    }

    /// Whether the first in the line may use a turn of another keeper.
    fn may_be_guest(&self) -> bool {
        self.settings.has_network
            && self.id.slot == SLOT_OF_TURNS
            && self.remote_turns.keeper().is_none()
            && self.keeper.may_ask()
            && self.first().is_some_and(|first| self.suits_guest(first))
    }

    /// Whether a caller can use a turn of another client: it is for one alone, and lasts as long as
    /// the guest lives.
    fn suits_guest(&self, caller: &Caller) -> bool {
        let Acquire { mode, patience, renew, .. } = caller.acquire;
        let waits = patience == Patience::Wait || self.remote_turns.is_last_resort;
        mode == Mode::Exclusive && renew && waits && caller.min_hold.is_zero()
    }

    /// The turn that is asked for goes to the first in the line, which another one may have become.
    /// If it can't use that turn, the line acquires through the table.
    pub(super) fn reconsider_asking(&mut self, now: Now) {
        let is_asking = self.remote_turns.keeper().is_some() && self.keeper.may_ask();
        if is_asking && self.first().is_some_and(|first| !self.suits_guest(first)) {
            self.leave_keeper(now);
            self.keeper.handle(now.of_turns(), KeeperInput::Asking(false));
            self.go_on_in_table(now);
        }
    }

    fn ask(&mut self, now: Now, keeper: KeeperId) {
        let Some(first) = self.first() else {
            return;
        };
        let ttl = first.acquire.terms.ttl();
        let is_try = first.acquire.patience == Patience::Try;
        let least = first.at_least;
        self.remote_turns.state = State::Asking { keeper, ahead: 0, is_late: false };
        self.keeper.handle(now.of_turns(), KeeperInput::Asking(true));
        let guest = self.remote_turns.guest(now, keeper);
        guest.handle(now.of_turns(), GuestInput::Ask { ttl, is_try, least });
    }

    /// Stops asking, or returns the turn.
    pub(super) fn leave_keeper(&mut self, now: Now) {
        self.remote_turns.tell_present(now, GuestInput::Leave);
        self.remote_turns.state = State::Idle;
    }

    /// Acquires through the table if the line still wants a place, and has no keeper or one that
    /// has not answered yet.
    pub(super) fn go_on_in_table(&mut self, now: Now) {
        if self.remote_turns.is_last_resort {
            let asks =
                self.remote_turns.connecting.is_some() || self.remote_turns.keeper().is_some();
            if self.keeper.wants_place() && !asks {
                self.not_acquired(now, Refusal::Taken);
                // Its rows may be deleted already, and the keeper waits until they are.
                self.contender.handle(now.of_contender(), ContenderInput::Release);
            }
            return;
        }
        let waits_elsewhere = match self.remote_turns.state {
            State::Idle | State::Asking { is_late: true, .. } => false,
            State::Asking { is_late: false, .. } | State::Inside { .. } | State::Back { .. } => {
                true
            }
        };
        let is_idle = !waits_elsewhere && self.contender.is_idle();
        let is_lost = SeededBug::NoWayBack.is_planted();
        if !is_lost && self.keeper.wants_place() && is_idle {
            self.acquire_in_table(now);
        }
    }

    /// Wakes the guests that are due, and goes back to the table if it is time for that.
    pub(super) fn tick_guests(&mut self, now: Now) {
        for guest in self.remote_turns.guests.values_mut() {
            if guest.deadline().is_some_and(|due| due <= now.elapsed) {
                guest.handle(now.of_turns(), GuestInput::Tick);
            }
        }
        self.settle(now);
        if matches!(self.remote_turns.state, State::Back { at } if at <= now.elapsed) {
            self.remote_turns.state = State::Idle;
            self.go_on_in_table(now);
        }
        self.settle(now);
    }

    /// There is a new connection to a keeper.
    pub(in crate::core::object) fn reconnected(&mut self, now: Now, keeper: KeeperId) {
        if let Some(guest) = self.remote_turns.guests.get_mut(&keeper) {
            guest.handle(now.of_turns(), GuestInput::Reconnected);
            self.settle(now);
        }
    }

    /// A keeper answers. A turn for which no guest is there any more is returned.
    pub(in crate::core::object) fn response(
        &mut self,
        now: Now,
        keeper: KeeperId,
        response: Response,
    ) {
        match (self.remote_turns.guests.get_mut(&keeper), response) {
            (Some(guest), response) => {
                guest.handle(now.of_turns(), GuestInput::Response(response));
            }
            (None, Response::Granted(granted)) => {
                let request = Request::Return { turn: granted.turn };
                let request = TimedRequest { sent: now.elapsed, request };
                self.outputs.push_back(Output::Ask { keeper, request });
            }
            (None, _) => {}
        }
        self.settle(now);
    }

    pub(super) fn guest_asks(&mut self, now: Now, keeper: KeeperId, output: GuestOutput) {
        match output {
            GuestOutput::Send(request) => self.outputs.push_back(Output::Ask { keeper, request }),
            GuestOutput::Event(event) => self.guest_event(now, keeper, event),
        }
    }

    fn guest_event(&mut self, now: Now, keeper: KeeperId, event: GuestEvent) {
        match event {
            GuestEvent::Queued { ahead } => {
                if let State::Asking { keeper: asked, .. } = self.remote_turns.state
                    && asked == keeper
                {
                    self.remote_turns.state = State::Asking { keeper, ahead, is_late: false };
                    self.note_keeper(now, keeper);
                    self.leave_table(now);
                }
            }
            GuestEvent::Granted { turn, until } => {
                self.guest_turn_granted(now, keeper, turn, until);
            }
            GuestEvent::Extended { until, sent } => self.extended(now, until, sent),
            GuestEvent::Expiring => self.expire_all(now, &Expiring::Keeper),
            GuestEvent::Token(value) => {
                if let Some(turn) = self.remote_turns.turn() {
                    self.token_issued(now, turn, value);
                }
            }
            GuestEvent::Lost(loss) => {
                self.remote_turns.state = State::Idle;
                self.place_is_lost(now, &Loss::Guest(loss));
            }
            GuestEvent::Late => {
                if let State::Asking { keeper: asked, is_late, .. } = &mut self.remote_turns.state
                    && *asked == keeper
                {
                    *is_late = true;
                    self.go_on_in_table(now);
                }
            }
            GuestEvent::Elsewhere => {
                self.remote_turns.remembered = None;
                self.remote_turns.state = self.way_back(now);
                self.keeper.handle(now.of_turns(), KeeperInput::Asking(false));
                self.go_on_in_table(now);
                self.look_for_keeper(now);
            }
        }
    }

    /// Where the client goes from a keeper that does not serve it.
    fn way_back(&self, now: Now) -> State {
        let State::Asking { ahead, .. } = self.remote_turns.state else {
            return State::Idle;
        };
        let apart = BACK_APART * ahead.saturating_sub(BACK_AT_ONCE);
        if apart.is_zero() {
            return State::Idle;
        }
        State::Back { at: now.elapsed + apart.mul_f64(0.5 + now.jitter) }
    }

    fn guest_turn_granted(&mut self, now: Now, keeper: KeeperId, turn: TurnId, until: Duration) {
        self.note_keeper(now, keeper);
        if self.keeper.may_ask() {
            self.leave_table(now);
            let sublease = Lease::sublease(now.elapsed, until);
            self.remote_turns.state = State::Inside { keeper, turn, sublease };
            self.keeper.handle(now.of_turns(), KeeperInput::GuestTurn { turn });
        } else {
            self.leave_keeper(now);
        }
    }

    /// Confirms or extends a turn of another keeper, as that answers. Returns whether it is one.
    pub(super) fn renew_sublease(&mut self, now: Now, turn: TurnId) -> bool {
        let is_sublease = self.remote_turns.turn() == Some(turn);
        if is_sublease {
            let need = self.holders.get(turn).map_or(Duration::ZERO, Holder::needed_lease);
            // A usual one may be on its way for a while.
            let least = if need > SUBLEASE_MAX / 2 { need } else { Duration::ZERO };
            self.remote_turns.tell_present(now, GuestInput::Renew { least });
        }
        is_sublease
    }

    fn extended(&mut self, now: Now, until: Duration, sent: Duration) {
        let lease = Lease::sublease(now.elapsed, until);
        let State::Inside { turn, sublease, .. } = &mut self.remote_turns.state else {
            return;
        };
        let turn = *turn;
        *sublease = lease;
        let outputs = &mut self.outputs;
        let renew_again = self.holders.with(turn, |holder| {
            let renew_again = holder.renew(now.elapsed, lease, outputs);
            holder.confirmed(now.elapsed, sent, outputs);
            renew_again
        });
        if renew_again == Some(true) {
            self.renew_sublease(now, turn);
        }
    }

    /// A guest, queued or granted, deletes its own rows (rule R6).
    fn leave_table(&mut self, now: Now) {
        if !self.contender.is_idle() {
            self.contender.handle(now.of_contender(), ContenderInput::Release);
        }
    }

    fn note_keeper(&mut self, now: Now, keeper: KeeperId) {
        self.remote_turns.remembered = Some(Remembered { keeper, answered: now.elapsed });
    }
}
