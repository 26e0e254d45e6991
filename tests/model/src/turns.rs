//! A model of turns: a keeper with its place and a line of callers and guests, and the next holder
//! in the table.
//!
//! The shipped keeper and guests are driven through every order of events. Messages arrive late,
//! out of order, repeatedly or never. Time may pass before any event, so each party is paused at
//! every point; clocks drift apart and jump ahead. Rows are simple here: they stand until the
//! deadline of their last write, or until they are deleted, and then the next holder may enter. The
//! other models show that real rows are as safe.

mod clocks;
mod network;
mod parties;
mod recovery;
mod table;

use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};

use self::clocks::{JUMP, TICK, Ticks, keeper_now};
use self::network::{Frame, Network};
use self::parties::{Caller, GuestProcess, KeeperProcess, NextHolder};
use self::table::{Table, TableEvent};
use crate::core::bakery::{LeaseTerms, Mode, Patience, SPACING, SeededBug};
use crate::core::turns::{Demand, GuestInput, KeeperInput, Now};
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};

/// The parties of a history, and the faults that may occur.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The number of guests, and of requests of each.
    pub(crate) guests: usize,
    pub(crate) requests: u8,
    /// The callers of the keeper's process.
    pub(crate) callers: &'static [CallerPlan],
    /// Whether another contender wants the object in the table.
    pub(crate) has_next_holder: bool,
    /// Whether that contender is the first guest's own: the same client then holds by both ways.
    pub(crate) is_first_guest: bool,
    /// The duration of a history, in ticks.
    pub(crate) ticks: Ticks,
    /// How many of them pass at once.
    pub(crate) stride: Ticks,
    /// While this many messages are under way, timers of keeper and guests do not fire.
    pub(crate) frames: usize,
    pub(crate) troubles: Troubles,
    pub(crate) bug: Option<SeededBug>,
    pub(crate) must_see: &'static [Sight],
}

/// What a caller wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerPlan {
    /// Its TTL, in seconds.
    pub(crate) ttl: u64,
    pub(crate) mode: Mode,
    /// How long the place stays taken at least, in ticks.
    pub(crate) min_hold: Ticks,
}

impl Plan {
    pub(crate) const fn over(self, ticks: Ticks) -> Self {
        Plan { ticks, ..self }
    }

    pub(crate) const fn with(self, troubles: Troubles) -> Self {
        Plan { troubles, ..self }
    }
}

/// How often each fault may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Troubles {
    /// Messages are delivered twice.
    pub(crate) repeats: u8,
    /// Guests send everything again that is not answered, or their connection ends.
    pub(crate) reconnects: u8,
    /// The keeper's process dies, and another one takes over its address.
    pub(crate) keeper_deaths: u8,
    /// A guest's process dies.
    pub(crate) guest_deaths: u8,
    /// The wall clock of a machine is set ahead.
    pub(crate) jumps: u8,
    /// The place is revoked.
    pub(crate) revocations: u8,
    /// The place is removed by force.
    pub(crate) removals: u8,
    /// The contender renews the place by itself.
    pub(crate) renewals: u8,
    /// The keeper, on its way to a place, sends its line to another keeper; no fault.
    pub(crate) disbanded: u8,
    /// Guests give up.
    pub(crate) giving_up: u8,
    /// Guests and callers draw tokens; no fault.
    pub(crate) draws: u8,
}

pub(crate) const NO_TROUBLES: Troubles = Troubles {
    repeats: 0,
    reconnects: 0,
    keeper_deaths: 0,
    guest_deaths: 0,
    jumps: 0,
    revocations: 0,
    removals: 0,
    renewals: 0,
    disbanded: 0,
    giving_up: 0,
    draws: 0,
};

/// Turns of a plan.
#[derive(Debug)]
pub(crate) struct Turns {
    plan: Plan,
    sightings: Arc<Sightings>,
    violations: FirstViolation,
}

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    now: Ticks,
    keeper: KeeperProcess,
    table: Table,
    callers: Vec<Caller>,
    guests: Vec<GuestProcess>,
    next_holder: NextHolder,
    network: Network,
    left: Troubles,
    /// Whether the rows were removed by force: then two may hold, and tokens protect the data.
    removed: bool,
    /// How often the object was granted through the table.
    grants: u8,
    /// The last token that was drawn.
    fence: i64,
    /// The tokens that were handed out: in which grant and turn, and the value.
    tokens: Vec<((u8, u64), i64)>,
    /// Whether a request was granted as two turns.
    granted_twice: bool,
    /// Until when the place stays taken, even if it was returned.
    taken_until: Ticks,
    /// Whether another one was let in before.
    freed_early: bool,
    /// The recovery is tried: nothing is counted.
    is_recovering: bool,
}

/// Who draws a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Caller(usize),
    Guest(usize),
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pass,
    /// The keeper's clock is set ahead.
    KeeperJumps,
    /// A guest's clock is set ahead.
    GuestJumps(usize),
    KeeperWakes,
    KeeperDies,
    KeeperRestarts,
    Table(TableEvent),
    CallerJoins(usize),
    CallerLeaves(usize),
    GuestAsks(usize),
    GuestLeaves(usize),
    /// The caller or guest that has the turn draws a token.
    TokenRequests(User),
    GuestWakes(usize),
    GuestReconnects(usize),
    /// The keeper learns that the connection of a guest has ended.
    GuestDisconnects(usize),
    GuestDies(usize),
    NextHolderEnters,
    NextHolderLeaves,
    Deliver(Frame),
    /// Delivered, and still under way.
    Repeat(Frame),
}

impl Turns {
    pub(crate) fn new(plan: Plan, sightings: Arc<Sightings>) -> Self {
        Turns { plan, sightings, violations: FirstViolation::default() }
    }

    /// What a caller wants.
    fn caller_plan(&self, caller: u64) -> CallerPlan {
        self.plan.callers[usize::try_from(caller).expect("callers are few")]
    }

    fn terms(seconds: u64) -> LeaseTerms {
        LeaseTerms::new(Duration::from_secs(seconds), Duration::from_secs(1))
    }

    fn note(&self, moment: &Moment, sight: Sight) {
        if !moment.is_recovering {
            self.sightings.note(sight);
        }
    }

    // What a step does.

    fn step(&self, moment: &mut Moment, action: &Action) {
        SeededBug::plant(self.plan.bug);
        match *action {
            Action::Pass => moment.now += self.plan.stride,
            Action::KeeperJumps => {
                moment.left.jumps -= 1;
                moment.keeper.ahead += JUMP;
            }
            Action::GuestJumps(i) => {
                moment.left.jumps -= 1;
                moment.guests[i].ahead += JUMP;
            }
            Action::KeeperWakes => self.keeper(moment, KeeperInput::Tick),
            Action::KeeperDies => {
                moment.left.keeper_deaths -= 1;
                moment.keeper_dies();
            }
            Action::KeeperRestarts => moment.keeper.restart(),
            Action::Table(event) => self.table_event(moment, event),
            Action::CallerJoins(i) => self.caller_joins(moment, i),
            Action::CallerLeaves(i) => self.caller_leaves(moment, i),
            Action::GuestAsks(i) => {
                moment.guests[i].requests_left -= 1;
                let ttl = Duration::from_secs(60);
                self.guest(
                    moment,
                    i,
                    GuestInput::Ask { ttl, is_try: false, least: Duration::ZERO },
                );
            }
            Action::GuestLeaves(i) => {
                if !moment.guests[i].is_inside(moment.now) {
                    moment.left.giving_up -= 1;
                }
                self.guest(moment, i, GuestInput::Leave);
            }
            Action::TokenRequests(user) => self.draws(moment, user),
            Action::GuestWakes(i) => self.guest(moment, i, GuestInput::Tick),
            Action::GuestReconnects(i) => self.guest_reconnects(moment, i),
            Action::GuestDisconnects(i) => self.guest_disconnects(moment, i),
            Action::GuestDies(i) => {
                moment.left.guest_deaths -= 1;
                moment.guest_dies(i);
            }
            Action::NextHolderEnters => {
                moment.grants += 1;
                moment.fence += i64::from(SPACING);
                moment.tokens.push(((moment.grants, 1), moment.fence));
                self.note(moment, Sight::NextHolderEntered);
                moment.note_entry();
                moment.next_holder = NextHolder::Inside;
            }
            Action::NextHolderLeaves => {
                if moment.next_holder == NextHolder::Waiting {
                    moment.left.giving_up -= 1;
                    self.note(moment, Sight::NextHolderGaveUp);
                }
                moment.next_holder = NextHolder::Gone;
            }
            Action::Deliver(ref frame) => {
                moment.network.remove(frame);
                self.deliver(moment, frame);
            }
            Action::Repeat(ref frame) => {
                moment.left.repeats -= 1;
                self.deliver(moment, frame);
            }
        }
    }

    fn caller_joins(&self, moment: &mut Moment, i: usize) {
        moment.callers[i] = Caller::Waiting;
        let CallerPlan { ttl, mode, min_hold } = self.plan.callers[i];
        let (patience, min_hold) = (Patience::Wait, TICK * u32::from(min_hold));
        let (terms, at_least) = (Self::terms(ttl), Duration::ZERO);
        let demand = Demand { mode, terms, patience, min_hold, at_least };
        self.keeper(moment, KeeperInput::Join { caller: i as u64, demand });
    }

    fn guest_reconnects(&self, moment: &mut Moment, i: usize) {
        moment.left.reconnects -= 1;
        self.guest(moment, i, GuestInput::Reconnected);
    }

    fn guest_disconnects(&self, moment: &mut Moment, i: usize) {
        moment.left.reconnects -= 1;
        let guest = moment.guests[i].uuid;
        self.keeper(moment, KeeperInput::GuestLeft { guest });
    }

    fn draws(&self, moment: &mut Moment, user: User) {
        moment.left.draws -= 1;
        match user {
            User::Guest(i) => self.guest(moment, i, GuestInput::IssueToken),
            User::Caller(i) => {
                let Caller::Inside(turn) = moment.callers[i] else {
                    unreachable!("a caller draws while it is inside")
                };
                let number = u64::from(self.plan.troubles.draws - moment.left.draws);
                self.keeper(moment, KeeperInput::IssueToken { turn, number });
            }
        }
    }

    fn deliver(&self, moment: &mut Moment, frame: &Frame) {
        match frame {
            Frame::ToKeeper { guest, request } => {
                self.keeper(moment, KeeperInput::Request { guest: *guest, request: *request });
            }
            Frame::ToGuest { guest, response } => {
                // The messages of a dead guest's connection reach no other one.
                let to = moment.guests.iter().position(|process| process.uuid == *guest);
                if let Some(i) = to {
                    self.guest(moment, i, GuestInput::Response(*response));
                }
            }
        }
    }

    // What can happen.

    fn clock_actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        if moment.now < self.plan.ticks {
            actions.push(Action::Pass);
        }
        if moment.left.jumps > 0 {
            actions.push(Action::KeeperJumps);
            actions.extend((0..moment.guests.len()).map(Action::GuestJumps));
        }
        if moment.network.len() >= self.plan.frames {
            return;
        }
        if moment.keeper.is_due(moment.keeper_now()) {
            actions.push(Action::KeeperWakes);
        }
        for (i, guest) in moment.guests.iter().enumerate() {
            let now = guest.now(moment.now);
            if guest.machine.deadline().is_some_and(|due| due <= now.elapsed) {
                actions.push(Action::GuestWakes(i));
            }
        }
    }

    fn user_actions(moment: &Moment, actions: &mut Vec<Action>) {
        for (i, caller) in moment.callers.iter().enumerate() {
            match caller {
                Caller::Outside if moment.keeper.is_alive() => actions.push(Action::CallerJoins(i)),
                Caller::Waiting if moment.left.giving_up > 0 => {
                    actions.push(Action::CallerLeaves(i));
                }
                Caller::Inside(_) => {
                    actions.push(Action::CallerLeaves(i));
                    if moment.left.draws > 0 {
                        actions.push(Action::TokenRequests(User::Caller(i)));
                    }
                }
                Caller::Outside | Caller::Waiting | Caller::Gone => {}
            }
        }
        for (i, guest) in moment.guests.iter().enumerate() {
            let is_inside = guest.is_inside(moment.now);
            if guest.machine.is_idle() && guest.requests_left > 0 {
                actions.push(Action::GuestAsks(i));
            }
            if is_inside || (!guest.machine.is_idle() && moment.left.giving_up > 0) {
                actions.push(Action::GuestLeaves(i));
            }
            if is_inside && moment.left.draws > 0 {
                actions.push(Action::TokenRequests(User::Guest(i)));
            }
            if moment.left.reconnects > 0 && !guest.machine.is_done() {
                actions.extend([Action::GuestReconnects(i), Action::GuestDisconnects(i)]);
            }
            if moment.left.guest_deaths > 0 && !guest.machine.is_done() {
                actions.push(Action::GuestDies(i));
            }
        }
    }

    // What must be true.

    /// Whether at most one is inside, each by its own clock. Those that share a place are as one.
    fn is_exclusive(&self, moment: &Moment) -> bool {
        let inside = self.inside(moment);
        let is_one_client = self.plan.is_first_guest
            && moment.next_holder == NextHolder::Inside
            && moment.guests[0].is_inside(moment.now);
        self.violations.allow(moment.removed || inside <= 1 + usize::from(is_one_client))
    }

    /// Whether later grants and turns have larger tokens.
    fn is_growing(&self, moment: &Moment) -> bool {
        let tokens = &moment.tokens;
        let fall = tokens.iter().enumerate().any(|(i, (when, token))| {
            tokens[i + 1..].iter().any(|(other, value)| (other >= when) != (value > token))
        });
        self.violations.allow(!fall)
    }

    fn is_granted_once(&self, moment: &Moment) -> bool {
        self.violations.allow(!moment.granted_twice)
    }

    fn stays_taken(&self, moment: &Moment) -> bool {
        self.violations.allow(!moment.freed_early)
    }

    /// How many are inside. Those that share the place count as one.
    fn inside(&self, moment: &Moment) -> usize {
        let Moment { table, keeper, .. } = moment;
        let is_held = table.is_held && moment.keeper_now().elapsed < table.deadline;
        let callers = moment.callers.iter().zip(self.plan.callers);
        let inside = callers.filter(|(caller, _)| matches!(caller, Caller::Inside(_)));
        let inside = inside.filter(|_| is_held && keeper.is_alive());
        let (shared, alone): (Vec<_>, Vec<_>) =
            inside.partition(|(_, plan)| plan.mode == Mode::Shared);
        let guests = moment.guests.iter().filter(|guest| guest.is_inside(moment.now)).count();
        let next = usize::from(moment.next_holder == NextHolder::Inside);
        shared.len().min(1) + alone.len() + guests + next
    }
}

impl Moment {
    /// A user of the keeper's place has a token.
    fn note_token(&mut self, turn: u64, value: i64) {
        self.tokens.push(((self.table.grant, turn), value));
    }

    /// Someone has come in.
    fn note_entry(&mut self) {
        self.freed_early |= self.now < self.taken_until;
    }

    fn time(&self) -> Duration {
        TICK * u32::from(self.now)
    }

    fn keeper_now(&self) -> Now {
        keeper_now(self.now, self.keeper.ahead)
    }

    /// Loses messages that change nothing any more, whenever they arrive.
    fn tidy(&mut self) {
        let guests = &self.guests;
        self.network.retain(|frame| match frame {
            Frame::ToKeeper { .. } => true,
            Frame::ToGuest { guest, response } => {
                let to = guests.iter().find(|process| process.uuid == *guest);
                to.is_some_and(|process| process.machine.is_moved_by(response))
            }
        });
    }
}

impl Model for Turns {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        vec![Moment {
            now: 0,
            keeper: KeeperProcess::new(),
            table: Table::new(Self::terms(
                self.plan.callers.first().map_or(5, |caller| caller.ttl),
            )),
            callers: vec![Caller::Outside; self.plan.callers.len()],
            guests: (0..self.plan.guests)
                .map(|i| GuestProcess::new(i, self.plan.requests))
                .collect(),
            next_holder: if self.plan.has_next_holder {
                NextHolder::Waiting
            } else {
                NextHolder::Gone
            },
            network: Network::default(),
            left: self.plan.troubles,
            removed: false,
            grants: 0,
            fence: 0,
            tokens: Vec::new(),
            granted_twice: false,
            taken_until: 0,
            freed_early: false,
            is_recovering: false,
        }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        self.clock_actions(moment, actions);
        self.table_actions(moment, actions);
        Self::user_actions(moment, actions);
        for frame in moment.network.frames() {
            let to_the_dead = matches!(frame, Frame::ToKeeper { .. }) && !moment.keeper.is_alive();
            if !to_the_dead {
                actions.push(Action::Deliver(frame.clone()));
                if moment.left.repeats > 0 {
                    actions.push(Action::Repeat(frame.clone()));
                }
            }
        }
    }

    fn next_state(&self, moment: &Moment, action: Action) -> Option<Moment> {
        let mut next = moment.clone();
        self.step(&mut next, &action);
        next.tidy();
        (next != *moment).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("at most one is inside", Self::is_exclusive),
            Property::always("tokens grow", Self::is_growing),
            Property::always("a request is granted once", Self::is_granted_once),
            Property::always("a place stays taken as long as it must", Self::stays_taken),
        ];
        if self.plan.bug.is_none() {
            properties.push(Property::always("all are served, and no row is left", Self::recovers));
        }
        properties
    }
}

impl Tell for Action {
    fn tell(&self) -> String {
        match self {
            Action::Pass => "time passes".to_owned(),
            Action::KeeperJumps => "the keeper's wall clock is set ahead".to_owned(),
            Action::GuestJumps(i) => format!("guest {i}'s wall clock is set ahead"),
            Action::KeeperWakes => "the keeper wakes up".to_owned(),
            Action::KeeperDies => "the keeper dies".to_owned(),
            Action::KeeperRestarts => "another keeper starts".to_owned(),
            Action::Table(event) => event.tell(),
            Action::CallerJoins(i) => format!("caller {i} joins the line"),
            Action::CallerLeaves(i) => format!("caller {i} leaves"),
            Action::GuestAsks(i) => format!("guest {i} asks"),
            Action::GuestLeaves(i) => format!("guest {i} leaves"),
            Action::TokenRequests(User::Caller(i)) => format!("caller {i} draws a token"),
            Action::TokenRequests(User::Guest(i)) => format!("guest {i} draws a token"),
            Action::GuestWakes(i) => format!("guest {i} wakes up"),
            Action::GuestReconnects(i) => format!("guest {i} connects again"),
            Action::GuestDisconnects(i) => format!("the connection of guest {i} ends"),
            Action::GuestDies(i) => format!("guest {i} dies"),
            Action::NextHolderEnters => "the next holder enters".to_owned(),
            Action::NextHolderLeaves => "the next holder leaves".to_owned(),
            Action::Deliver(frame) => format!("{} arrives", frame.tell()),
            Action::Repeat(frame) => format!("{} arrives, and will again", frame.tell()),
        }
    }
}

impl Tell for Moment {
    fn tell(&self) -> String {
        let guests = self.guests.iter().map(|guest| {
            let is_inside = guest.is_inside(self.now);
            format!("guest {}", if is_inside { "inside" } else { "outside" })
        });
        let callers = self.callers.iter().map(|caller| match caller {
            Caller::Outside => "caller outside".to_owned(),
            Caller::Waiting => "caller waiting".to_owned(),
            Caller::Inside(turn) => format!("caller in turn {}", network::short(*turn)),
            Caller::Gone => "caller gone".to_owned(),
        });
        let parties: Vec<_> = guests.chain(callers).collect();
        format!("{:?}: {}, next {:?}", self.time(), parties.join(" | "), self.next_holder)
    }
}
