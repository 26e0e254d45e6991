//! Turns that this client borrows: it asks the keeper of a busy object instead of waiting in the
//! table (design section 7).
//!
//! The client announces itself, sees a contender ahead, and asks that one's client. Once it is in
//! the line there, it deletes its rows. It never waits at two keepers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tracing::{debug, trace};

use super::{Runner, SLOT_OF_TURNS, Step};
use crate::core::bakery::{Acquire, ContenderId, Input, Lease, Mode, Patience};
use crate::core::turns::KeeperId;
use crate::core::turns::{
    Guest, GuestEvent, GuestInput, GuestLoss, GuestOutput, KeeperInput, Request, TimedRequest,
    TurnId,
};
use crate::engine::wait::when_some;
use crate::engine::waiters::Caller;
use crate::error::{ExpiringReason, LostReason};
use crate::line::TurnUser;
use crate::options::shown;

/// So many clients are asked in one acquisition.
const ASKED_MAX: usize = 8;

/// When a keeper is gone, this many of its line come back to the table at once, and each of the
/// others so much later: it finds one of the first there, whose line it can join.
const BACK_AT_ONCE: u32 = 8;
const BACK_APART: Duration = Duration::from_millis(5);

/// The turns that a client borrows of one object, one at a time.
#[derive(Default)]
pub(super) struct Borrowing {
    state: State,
    /// One for each keeper that was asked. It stays until its last return is answered.
    guests: BTreeMap<KeeperId, Guest>,
    connecting: Option<Pin<Box<dyn Future<Output = Option<KeeperId>> + Send>>>,
    /// The clients that were asked for the present acquisition.
    asked: Vec<KeeperId>,
    /// Who has the turn of a keeper, as far as is known.
    user: Option<(KeeperId, TurnUser)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// No keeper is asked.
    #[default]
    Idle,
    /// A keeper is asked, and the first in the line waits there.
    Asking {
        keeper: KeeperId,
        /// How many were ahead when it last said so.
        ahead: u32,
    },
    /// The client has a turn of this keeper.
    Inside { keeper: KeeperId, turn: TurnId, sublease: Lease },
    /// A keeper did not serve this client, which acquires through the table from then on.
    Back { at: Duration },
}

impl Borrowing {
    /// Waits until a keeper can be asked; `None` if it can't be.
    pub(super) async fn connected(&mut self) -> Option<KeeperId> {
        let connected = when_some(self.connecting.as_mut()).await;
        self.connecting = None;
        connected
    }

    /// When the next guest has to be woken, by the library's clock.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let back = if let State::Back { at } = self.state { Some(at) } else { None };
        self.guests.values().filter_map(Guest::deadline).chain(back).min()
    }

    /// Whether no turn is out or on its way back.
    pub(super) fn is_done(&self) -> bool {
        self.guests.is_empty() && self.present().is_none()
    }

    /// The sublease of a turn, if it is borrowed.
    pub(super) fn sublease(&self, turn: TurnId) -> Option<Lease> {
        match self.state {
            State::Inside { turn: borrowed, sublease, .. } => {
                (borrowed == turn).then_some(sublease)
            }
            State::Idle | State::Asking { .. } | State::Back { .. } => None,
        }
    }

    /// Whether this keeper was asked for a turn that is not over.
    pub(super) fn knows(&self, keeper: KeeperId) -> bool {
        self.guests.contains_key(&keeper)
    }

    /// Notes who has the turn of a keeper, if it said so.
    pub(super) fn note_user(&mut self, keeper: KeeperId, user: Option<TurnUser>) {
        self.user = user.map(|user| (keeper, user)).or(self.user.take());
    }

    /// Notes that a caller of this client has the turn of the present keeper.
    pub(super) fn note_own(&mut self, user: TurnUser) {
        self.user = self.present().map(|keeper| (keeper, user));
    }

    /// Who has the turn of the present keeper, as far as is known.
    pub(super) fn user(&self) -> Option<&TurnUser> {
        let (keeper, user) = self.user.as_ref()?;
        (Some(*keeper) == self.present()).then_some(user)
    }

    /// The keeper that is asked, or whose turn the client has.
    pub(super) fn present(&self) -> Option<KeeperId> {
        match self.state {
            State::Asking { keeper, .. } | State::Inside { keeper, .. } => Some(keeper),
            State::Idle | State::Back { .. } => None,
        }
    }
}

impl Runner {
    /// Acquires a place for the first in the line: from a keeper that served this client of late,
    /// or through the table.
    pub(super) fn acquire_place(&mut self) {
        self.note_wanted();
        self.borrowing.asked.clear();
        let now = self.shared.clock.elapsed();
        let keeper = self.shared.remembered.keeper(&self.object, now);
        let network = self.network.as_ref();
        let is_connected = |keeper: &KeeperId| network.is_some_and(|it| it.is_connected(*keeper));
        match keeper.filter(is_connected).filter(|_| self.may_borrow()) {
            Some(keeper) => self.ask(keeper),
            None => self.acquire_in_table(),
        }
    }

    /// Connects to the client of a contender in the way that was not asked yet: of the one that
    /// began first, because rows do not tell which of them holds the object. One that can't serve
    /// this client says so at once.
    ///
    /// With a line of guests, only to one that keeps a line, too: then the lines become one.
    pub(super) fn look_for_keeper(&mut self) {
        let Some(network) = &self.network else {
            return;
        };
        let borrowing = &self.borrowing;
        if borrowing.connecting.is_some() || borrowing.asked.len() >= ASKED_MAX {
            return;
        }
        let has_guests = self.keeper.has_guests();
        // Before and after an acquisition, what its contender has read says nothing any more.
        if !self.contender.is_acquiring() || !(has_guests || self.may_borrow()) {
            return;
        }
        let own = self.shared.id.client;
        let others = self.contender.ahead().iter().filter(|seen| {
            let ContenderId { client, slot, .. } = seen.contender;
            let is_new = client != own && !borrowing.asked.contains(&client);
            let lends = slot == SLOT_OF_TURNS;
            is_new && lends && (!has_guests || self.rivals.contain(client))
        });
        let first = others.min_by_key(|seen| seen.round.unwrap_or(i64::MAX));
        let Some(keeper) = first.map(|seen| seen.contender.client) else {
            return;
        };
        let connecting = network.connect(keeper);
        self.borrowing.asked.push(keeper);
        self.borrowing.connecting =
            Some(Box::pin(async move { connecting.await.then_some(keeper) }));
    }

    /// A keeper can be asked, unless a place was acquired meanwhile. The guests in the line ask it
    /// themselves: one with a line never asks another keeper (rule R8).
    pub(super) fn connected(&mut self, keeper: Option<KeeperId>) {
        if keeper.is_some_and(|keeper| self.rivals.contain(keeper)) {
            self.tell_keeper(KeeperInput::Disband);
        }
        if let Some(keeper) = keeper.filter(|_| self.may_borrow()) {
            self.ask(keeper);
            self.settle();
        } else {
            self.look_for_keeper();
        }
    }

    /// Whether the first in the line may use a turn of another keeper.
    fn may_borrow(&self) -> bool {
        self.network.is_some()
            && self.borrowing.present().is_none()
            && self.keeper.may_ask()
            && self.first().is_some_and(suits_borrowed_turn)
    }

    /// The turn that is asked for goes to the first in the line, which another one may have become.
    /// If it can't use that turn, the line acquires through the table.
    pub(super) fn reconsider_asking(&mut self) {
        let is_asking = self.borrowing.present().is_some() && self.keeper.may_ask();
        if is_asking && self.first().is_some_and(|first| !suits_borrowed_turn(first)) {
            self.stop_borrowing();
            self.feed_keeper(KeeperInput::Asking(false));
            self.go_on_in_table();
            self.settle();
        }
    }

    fn ask(&mut self, keeper: KeeperId) {
        let Some(first) = self.first() else {
            return;
        };
        let ttl = first.acquire.terms.ttl();
        debug!(parent: self.span(), object = shown(&self.object), keeper, "a keeper is asked");
        self.borrowing.state = State::Asking { keeper, ahead: 0 };
        self.feed_keeper(KeeperInput::Asking(true));
        // Numbers of requests grow within a client, as stamps do.
        let stamp = self.shared.stamp();
        let guest = || Guest::new(stamp.unsigned_abs());
        self.borrowing.guests.entry(keeper).or_insert_with(guest);
        self.steps.push_back(Step::Guest(keeper, GuestInput::Ask { ttl }));
    }

    /// Returns a turn for which no guest is there any more.
    pub(super) fn return_at_once(&self, keeper: KeeperId, turn: TurnId) {
        if let Some(network) = &self.network {
            let sent = self.shared.clock.elapsed();
            let request = TimedRequest { sent, request: Request::Return { turn } };
            network.ask(keeper, network.key(&self.object), request);
        }
    }

    /// Stops asking, or returns the turn.
    pub(super) fn stop_borrowing(&mut self) {
        let keeper = self.borrowing.present();
        self.borrowing.state = State::Idle;
        self.steps.extend(keeper.map(|keeper| Step::Guest(keeper, GuestInput::Leave)));
    }

    /// Acquires through the table if the line still wants a place and has no keeper.
    pub(super) fn go_on_in_table(&mut self) {
        let is_idle = matches!(self.borrowing.state, State::Idle) && self.contender.is_idle();
        if self.keeper.wants_place() && is_idle {
            self.acquire_in_table();
        }
    }

    /// Wakes the guests that are due.
    pub(super) fn tick_guests(&mut self) {
        let now = self.shared.clock.elapsed();
        let is_due = |guest: &Guest| guest.deadline().is_some_and(|due| due <= now);
        let guests = self.borrowing.guests.iter().filter(|(_, guest)| is_due(guest));
        let due: Vec<_> = guests.map(|(keeper, _)| *keeper).collect();
        self.steps.extend(due.into_iter().map(|keeper| Step::Guest(keeper, GuestInput::Tick)));
        if matches!(self.borrowing.state, State::Back { at } if at <= now) {
            self.borrowing.state = State::Idle;
            self.go_on_in_table();
        }
        self.settle();
    }

    /// Feeds a guest, and does what it asks for.
    pub(super) fn feed_guest(&mut self, keeper: KeeperId, input: GuestInput) {
        let now = self.shared.moment();
        let Some(guest) = self.borrowing.guests.get_mut(&keeper) else {
            return;
        };
        guest.handle(now, input);
        let outputs: Vec<_> = std::iter::from_fn(|| guest.poll()).collect();
        if guest.is_done() {
            self.borrowing.guests.remove(&keeper);
        }
        for output in outputs {
            trace!(parent: self.span(), object = shown(&self.object), ?output, "of a guest");
            match output {
                GuestOutput::Send(request) => {
                    if let Some(network) = &self.network {
                        network.ask(keeper, network.key(&self.object), request);
                    }
                }
                GuestOutput::Event(event) => self.guest_event(keeper, event),
            }
        }
    }

    fn guest_event(&mut self, keeper: KeeperId, event: GuestEvent) {
        match event {
            GuestEvent::Queued { ahead } => {
                self.borrowing.state = State::Asking { keeper, ahead };
                self.note_keeper(keeper);
                self.leave_table();
            }
            GuestEvent::Granted { turn, until } => self.borrowed(keeper, turn, until),
            GuestEvent::Extended { until, sent } => self.extended(until, sent),
            GuestEvent::Expiring => self.expire_all(&ExpiringReason::Keeper),
            GuestEvent::Token(value) => {
                if let State::Inside { turn, .. } = self.borrowing.state {
                    self.token_drawn(turn, value);
                }
            }
            GuestEvent::Lost(loss) => {
                self.borrowing.state = State::Idle;
                self.place_is_lost(&loss.into());
            }
            GuestEvent::Elsewhere => {
                self.shared.remembered.forget(&self.object);
                self.borrowing.state = self.way_back();
                self.feed_keeper(KeeperInput::Asking(false));
                self.go_on_in_table();
                self.look_for_keeper();
            }
        }
    }

    /// Where the client goes from a keeper that does not serve it.
    fn way_back(&self) -> State {
        let State::Asking { ahead, .. } = self.borrowing.state else {
            return State::Idle;
        };
        let apart = BACK_APART * ahead.saturating_sub(BACK_AT_ONCE);
        if apart.is_zero() {
            return State::Idle;
        }
        let later = apart.mul_f64(0.5 + self.shared.entropy.jitter());
        State::Back { at: self.shared.clock.elapsed() + later }
    }

    fn borrowed(&mut self, keeper: KeeperId, turn: TurnId, until: Duration) {
        self.note_keeper(keeper);
        if self.keeper.may_ask() {
            self.leave_table();
            let sublease = Lease::sublease(self.shared.clock.elapsed(), until);
            self.borrowing.state = State::Inside { keeper, turn, sublease };
            self.feed_keeper(KeeperInput::Borrowed { turn });
        } else {
            self.stop_borrowing();
        }
    }

    /// Confirms a turn if it is borrowed, or extends it, as the keeper answers. Returns whether it
    /// is borrowed.
    pub(super) fn renew_borrowed(&mut self, turn: TurnId) -> bool {
        match self.borrowing.state {
            State::Inside { keeper, turn: borrowed, .. } if borrowed == turn => {
                self.steps.push_back(Step::Guest(keeper, GuestInput::Renew));
                true
            }
            State::Idle | State::Asking { .. } | State::Inside { .. } | State::Back { .. } => false,
        }
    }

    fn extended(&mut self, until: Duration, sent: Duration) {
        let lease = Lease::sublease(self.shared.clock.elapsed(), until);
        let State::Inside { turn, sublease, .. } = &mut self.borrowing.state else {
            return;
        };
        let turn = *turn;
        *sublease = lease;
        let renew_again = self.holders.with(turn, |holder| {
            let renew_again = holder.renew(lease);
            holder.confirmed(sent);
            renew_again
        });
        if renew_again.flatten().is_some() {
            self.renew_borrowed(turn);
        }
    }

    /// A guest, queued or granted, deletes its own rows (rule R6).
    fn leave_table(&mut self) {
        if !self.contender.is_idle() {
            self.steps.push_back(Step::Contender(Input::Release));
        }
    }

    fn note_keeper(&self, keeper: KeeperId) {
        self.shared.remembered.note(&self.object, keeper, self.shared.clock.elapsed());
    }
}

/// Whether a caller can use a turn of another client: it is for one alone, and lasts as long as the
/// guest lives.
fn suits_borrowed_turn(caller: &Caller) -> bool {
    let Acquire { mode, patience, renew, .. } = caller.acquire;
    let lasts = renew && patience == Patience::Wait && caller.min_hold.is_zero();
    mode == Mode::Exclusive && lasts
}

impl From<GuestLoss> for LostReason {
    fn from(loss: GuestLoss) -> Self {
        match loss {
            GuestLoss::KeeperUnreachable => LostReason::KeeperUnreachable,
            GuestLoss::PlaceLost => LostReason::KeeperLost,
        }
    }
}
