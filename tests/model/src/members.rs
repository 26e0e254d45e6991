//! A small model of its own, of masters that lose their data (docs/design-masters.md, M4 to M9).
//!
//! Three servers have a record each, and a fourth one is empty, at an address that a client is
//! given by mistake. Clients look at the servers, bring members up to date, restore one that lost
//! its data, and take an exclusive lock with the view that they know: they write a row to a
//! majority, read a majority, and hold if they saw no other row, for as long as the row lives.
//! Requests are served at any moment, or never. What servers come to is decided by the shipped
//! `judge`, and how long one waits by the shipped settings. The order of the requests is that of
//! `attendance.rs`, and what scripts do that of the Lua files, written once more.
//!
//! Clients restore a server at the first look that shows its loss; the library waits for a second
//! one. A request is refused where that changes nothing but an error, by never being served. The
//! registry, fences, marks and sweeps are left out; so is `lock-hosts init`, for which an operator
//! vouches.

mod client;
#[allow(dead_code)]
#[path = "../../../src/store/masters/membership.rs"]
mod membership;
#[allow(dead_code)]
#[path = "../../../src/store/masters/record.rs"]
mod record;
mod server;

use std::sync::Arc;

use stateright::{Model, Property};

pub(crate) use self::client::Addresses;
use self::client::{Place, Plan as Course, Seats, Sight as Seen, first_seats};
use self::membership::majority;
pub(crate) use self::server::Loss;
use self::server::{
    Answer, Entry, Epoch, FIRST_EPOCHS, Gate, LATE_AFTER, PLACES, Process, Server, TTL, Ticks,
    ViewId, wait,
};
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};

/// How many clients there are.
pub(crate) const CLIENTS: usize = 2;

/// How many servers there are: the members, and one elsewhere.
pub(crate) const SERVERS: usize = PLACES + 1;

/// The server elsewhere.
pub(crate) const STRANGER: u8 = 3;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A server joins before the others have gone over to its view.
    JoinsFirst,
    /// A server takes part at once after it lost its data.
    NoWait,
    /// Servers serve any request.
    NoGate,
    /// Requests carry the epoch of the server alone.
    NoViewInGate,
    /// Requests carry the view alone.
    NoEpochInGate,
    /// A server keeps its epoch when it loses its data.
    EpochReused,
    /// Writes are applied however late they come.
    NoLateLimit,
    /// The server that lost its data counts for the majority that restores it.
    LostServerCounts,
    /// Requests reach a process that was never looked at.
    Reconnects,
}

/// What clients do, and what goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The servers at the addresses that each client was given.
    pub(crate) addresses: [Addresses; CLIENTS],
    /// How often each looks at the servers.
    pub(crate) looks: [u8; CLIENTS],
    /// How often each writes its row.
    pub(crate) rounds: u8,
    /// Whether both take the lock; else the first one writes, and the second one reads as soon as
    /// something was acknowledged.
    pub(crate) are_contenders: bool,
    /// Whether a server may be silent when it is looked at.
    pub(crate) has_silence: bool,
    /// Whether the servers are looked at one after the other, in any order, and not all at once.
    pub(crate) is_torn: bool,
    /// What may be lost, how often, on the members.
    pub(crate) losses: &'static [Loss],
    pub(crate) losses_max: u8,
    /// Whether rows that were acknowledged, or given up, may reach further servers later.
    pub(crate) has_late_rows: bool,
    /// Whether servers sync each write.
    pub(crate) are_durable: bool,

    pub(crate) flaw: Option<Flaw>,
    pub(crate) must_see: &'static [Sight],
}

/// Servers and clients of a plan.
#[derive(Debug)]
pub(crate) struct Members {
    plan: Plan,
    sightings: Arc<Sightings>,
    violations: FirstViolation,
}

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    servers: [Server; SERVERS],
    clients: [Client; CLIENTS],
    /// In order.
    under_way: Vec<Request>,
    losses_left: u8,
    /// Whether a read did not show a row that had been acknowledged before it began.
    missed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    /// The places of servers, by address, as far as they were seen before.
    known: [Option<u8>; PLACES],
    seats: Seats,
    looks_left: u8,
    task: Task,
    rounds_left: u8,
    lock: Lock,
    /// What is left of the lease of the row that was acknowledged last.
    acknowledged: Option<Ticks>,
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Who {
    A = 0,
    B = 1,
}

/// How far a look at the servers has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Idle,
    /// The servers are being looked at; those that were asked so far, each a bit.
    Looking {
        sights: [Option<Seen>; PLACES],
        asked: u8,
    },
    /// Members are being brought up to date.
    Updating(Course),
    /// They are going over to a view in which servers that lost their data have new epochs.
    Installing(Course),
    /// The server at this address is joining.
    Joining(Course, usize),
}

/// How far a client has come with the lock, and what is left of its lease. Of answers, each place
/// is a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lock {
    Idle,
    Writing {
        left: Ticks,
        answered: u8,
    },
    Written {
        left: Ticks,
    },
    /// `must_see`: the other one's row was acknowledged before, and its lease is not over.
    Reading {
        left: Ticks,
        answered: u8,
        is_seen: bool,
        must_see: bool,
    },
    Holding {
        left: Ticks,
    },
}

/// A request under way to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    client: Who,
    process: Process,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    Write {
        place: u8,
        gate: Gate,
        round: u8,
        age: Ticks,
    },
    Read {
        place: u8,
        gate: Gate,
    },
    /// One that changes the record; whether the client still waits for it.
    Order {
        is_awaited: bool,
        order: Order,
    },
}

/// A script that changes a record, if that is as the client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Order {
    Adopt { epoch: Epoch, process: Process },
    Install { epoch: Epoch, has: ViewId, view: ViewId, members: [Epoch; PLACES] },
    Join { had: Option<ViewId>, entry: Entry },
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A client looks at all servers but the one at this address, which is silent.
    Look(Who, Option<usize>),
    /// A client begins to look at the servers, one after the other.
    BeginLook(Who),
    /// It looks at the one at this address.
    Ask(Who, usize),
    /// It waits for no more answers.
    Judge(Who),
    /// A client writes its row.
    Write(Who),
    /// It reads.
    Read(Who),
    /// It takes back its try, or does not wait any more.
    GiveUp(Who),
    /// A server serves a request.
    Serve(Request),
    /// A server loses what it has.
    Lose(u8, Loss),
    /// Time passes.
    Tick,
}

impl Who {
    const ALL: [Who; CLIENTS] = [Who::A, Who::B];

    fn other(self) -> Self {
        match self {
            Who::A => Who::B,
            Who::B => Who::A,
        }
    }
}

impl Members {
    pub(crate) fn new(plan: Plan, sightings: Arc<Sightings>) -> Self {
        Members { plan, sightings, violations: FirstViolation::default() }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaw == Some(flaw)
    }

    // Looking at the servers.

    fn begin_look(moment: &mut Moment, client: Who) {
        let state = &mut moment.clients[client as usize];
        state.looks_left -= 1;
        state.task = Task::Looking { sights: [None; PLACES], asked: 0 };
        Self::await_no_orders(moment, client);
    }

    fn await_no_orders(moment: &mut Moment, client: Who) {
        for request in &mut moment.under_way {
            if let What::Order { is_awaited, .. } = &mut request.what
                && request.client == client
            {
                *is_awaited = false;
            }
        }
    }

    fn ask(&self, moment: &mut Moment, client: Who, address: usize) {
        let server = self.plan.addresses[client as usize][address];
        let seen = Seen::of(&moment.servers[usize::from(server)]);
        let Task::Looking { sights, asked } = &mut moment.clients[client as usize].task else {
            unreachable!("it looks at the servers")
        };
        sights[address] = Some(seen);
        *asked |= 1 << address;
    }

    fn judge(&self, moment: &mut Moment, client: Who) {
        let state = &mut moment.clients[client as usize];
        let Task::Looking { sights, .. } = state.task else {
            unreachable!("it has looked at the servers")
        };
        let Some(course) = Course::of(&sights, &state.known) else {
            state.task = Task::Idle;
            state.seats = [None; PLACES];
            return;
        };
        let is_refused = |(place, sight): (&Place, &Option<Seen>)| {
            *place == Place::Out && sight.is_some_and(|sight| sight.entry.is_some())
        };
        if course.places.iter().zip(&sights).any(is_refused) {
            self.sightings.note(Sight::ServerReplaced);
        }
        state.task = Task::Updating(course);
        for place in course.places {
            if let Place::Member { adopts, has, process, .. } = place {
                if adopts {
                    let order = Order::Adopt { epoch: has.epoch, process: has.process };
                    Self::send_order(moment, client, process, order, true);
                } else {
                    Self::update_view(moment, client, &course, process, has);
                }
            }
        }
        self.proceed(moment, client);
    }

    fn update_view(
        moment: &mut Moment,
        client: Who,
        course: &Course,
        process: Process,
        has: Entry,
    ) {
        let &Course { view, members, .. } = course;
        if has.view != view {
            let order = Order::Install { epoch: has.epoch, has: has.view, view, members };
            Self::send_order(moment, client, process, order, true);
        }
    }

    fn send_order(
        moment: &mut Moment,
        client: Who,
        process: Process,
        order: Order,
        is_awaited: bool,
    ) {
        let what = What::Order { is_awaited, order };
        moment.under_way.push(Request { client, process, what });
    }

    /// Takes the next step of a task if all is answered.
    fn proceed(&self, moment: &mut Moment, client: Who) {
        let is_awaited = |request: &Request| {
            request.client == client && matches!(request.what, What::Order { is_awaited: true, .. })
        };
        if moment.under_way.iter().any(is_awaited) {
            return;
        }
        match moment.clients[client as usize].task {
            Task::Idle | Task::Looking { .. } => {}
            Task::Updating(course) => {
                let lost = course.lost().count();
                let counted = if self.has(Flaw::LostServerCounts) { lost } else { 0 };
                if lost > 0 && course.present() + counted >= majority(PLACES) {
                    self.restore(moment, client, course);
                } else {
                    Self::enter(moment, client, &course);
                }
            }
            Task::Installing(course) | Task::Joining(course, _) => {
                self.join_next(moment, client, course);
            }
        }
    }

    /// Members go over to a view in which servers that lost their data have new epochs.
    fn restore(&self, moment: &mut Moment, client: Who, mut course: Course) {
        let looks = self.plan.looks[client as usize] - moment.clients[client as usize].looks_left;
        let maker = 8 * client as u8 + looks;
        let (had, epochs) = (course.view, course.members);
        course.view = ViewId { version: had.version + 1, maker };
        for address in course.lost() {
            if let Place::Lost { place, .. } = course.places[address]
                && !self.has(Flaw::EpochReused)
            {
                course.members[usize::from(place)] = 8 * maker + 1 + place;
            }
        }
        let is_awaited = !self.has(Flaw::JoinsFirst);
        for place in course.places {
            if let Place::Member { place, process, .. } = place {
                let (view, members) = (course.view, course.members);
                let order =
                    Order::Install { epoch: epochs[usize::from(place)], has: had, view, members };
                Self::send_order(moment, client, process, order, is_awaited);
            }
        }
        moment.clients[client as usize].task = Task::Installing(course);
        self.proceed(moment, client);
    }

    fn join_next(&self, moment: &mut Moment, client: Who, course: Course) {
        let Some(address) = course.lost().next() else {
            Self::enter(moment, client, &course);
            return;
        };
        let Place::Lost { place, had, process, is_durable } = course.places[address] else {
            unreachable!("it has lost its data")
        };
        let Course { view, members, .. } = course;
        let epoch = members[usize::from(place)];
        // The server adds the time from which it takes part.
        let entry = Entry { place, epoch, process, is_durable, view, members, waits: 0 };
        Self::send_order(moment, client, process, Order::Join { had, entry }, true);
        moment.clients[client as usize].task = Task::Joining(course, address);
    }

    fn enter(moment: &mut Moment, client: Who, course: &Course) {
        let state = &mut moment.clients[client as usize];
        state.seats = course.seats();
        for (known, seat) in state.known.iter_mut().zip(state.seats) {
            *known = seat.map(|seat| seat.place).or(*known);
        }
        state.task = Task::Idle;
    }

    // Taking the lock.

    fn write(&self, moment: &mut Moment, client: Who) {
        let state = &mut moment.clients[client as usize];
        let round = self.plan.rounds - state.rounds_left;
        state.rounds_left -= 1;
        state.lock = Lock::Writing { left: TTL, answered: 0 };
        for seat in state.seats.into_iter().flatten() {
            let what = What::Write { place: seat.place, gate: seat.gate, round, age: 0 };
            moment.under_way.push(Request { client, process: seat.process, what });
        }
    }

    fn read(moment: &mut Moment, client: Who) {
        let acknowledged = moment.clients[client.other() as usize].acknowledged;
        let must_see = acknowledged.is_some();
        let state = &mut moment.clients[client as usize];
        let left = match state.lock {
            Lock::Written { left } => left,
            Lock::Idle | Lock::Writing { .. } | Lock::Reading { .. } | Lock::Holding { .. } => {
                acknowledged.expect("only a contender reads earlier")
            }
        };
        state.lock = Lock::Reading { left, answered: 0, is_seen: false, must_see };
        for seat in state.seats.into_iter().flatten() {
            let what = What::Read { place: seat.place, gate: seat.gate };
            moment.under_way.push(Request { client, process: seat.process, what });
        }
    }

    fn end(moment: &mut Moment, client: Who) {
        moment.clients[client as usize].lock = Lock::Idle;
        Self::forget_reads(moment, client);
    }

    fn forget_reads(moment: &mut Moment, client: Who) {
        moment.under_way.retain(|it| it.client != client || !matches!(it.what, What::Read { .. }));
    }

    fn acknowledged(&self, moment: &mut Moment, client: Who, place: u8, round: u8) {
        let state = &mut moment.clients[client as usize];
        if let Lock::Writing { left, answered } = state.lock
            && round + state.rounds_left + 1 == self.plan.rounds
        {
            let answered = answered | 1 << place;
            state.lock = if has_majority(answered) {
                state.acknowledged = Some(left);
                Lock::Written { left }
            } else {
                Lock::Writing { left, answered }
            };
        }
    }

    fn shown(&self, moment: &mut Moment, client: Who, place: u8, row: bool) {
        let Lock::Reading { left, answered, is_seen, must_see } =
            moment.clients[client as usize].lock
        else {
            unreachable!("reads that are over are forgotten")
        };
        let (answered, is_seen) = (answered | 1 << place, is_seen || row);
        if !has_majority(answered) {
            let reading = Lock::Reading { left, answered, is_seen, must_see };
            moment.clients[client as usize].lock = reading;
            return;
        }

        moment.missed |= must_see && !is_seen;
        if must_see && is_seen {
            self.sightings.note(Sight::RowMet);
        }
        moment.clients[client as usize].lock = if !self.plan.are_contenders {
            Lock::Idle
        } else if is_seen {
            Lock::Written { left }
        } else {
            Lock::Holding { left }
        };
        Self::forget_reads(moment, client);
    }

    // Servers.

    /// What a server answers to a request; nothing if none is there to do so.
    fn answer(&self, moment: &Moment, request: &Request) -> Option<Answer> {
        let server = &moment.servers[usize::from(request.process.server)];
        let is_same = server.process == request.process;
        let gated = |gate, age| {
            let is_reached = is_same || self.has(Flaw::Reconnects);
            is_reached.then(|| server.answer(gate, age, self.plan.flaw))
        };
        match request.what {
            What::Write { gate, age, .. } => gated(gate, Some(age)),
            What::Read { gate, .. } => gated(gate, None),
            What::Order { order, .. } => {
                let fits = match (order, server.entry) {
                    (Order::Adopt { epoch, process }, Some(entry)) => {
                        entry.epoch == epoch && entry.process == process
                    }
                    (Order::Install { epoch, has, .. }, Some(entry)) => {
                        entry.epoch == epoch && entry.view == has
                    }
                    (Order::Join { had, .. }, entry) => entry.map(|entry| entry.view) == had,
                    (Order::Adopt { .. } | Order::Install { .. }, None) => false,
                };
                is_same.then_some(if fits { Answer::Ok } else { Answer::OtherView })
            }
        }
    }

    fn serve(&self, moment: &mut Moment, request: Request) {
        let at = moment.under_way.iter().position(|it| *it == request);
        moment.under_way.remove(at.expect("it is under way"));
        let Request { client, process, what } = request;
        let server = &mut moment.servers[usize::from(process.server)];

        match what {
            What::Write { place, gate, round, age } => {
                if gate.epoch > FIRST_EPOCHS[PLACES - 1] {
                    self.sightings.note(Sight::ServerBack);
                }
                server.write(client as usize, round, age);
                self.acknowledged(moment, client, place, round);
            }
            What::Read { place, .. } => {
                let row = server.rows[client.other() as usize].is_some();
                self.shown(moment, client, place, row);
            }
            What::Order { is_awaited, order } => {
                self.obey(server, order);
                if is_awaited {
                    self.obeyed(moment, client, process, order);
                }
            }
        }
    }

    fn obey(&self, server: &mut Server, order: Order) {
        match order {
            Order::Adopt { .. } => {
                let (process, is_durable) = (server.process, server.is_durable);
                let entry = server.entry.as_mut().expect("it has a record");
                *entry = Entry { process, is_durable, ..*entry };
                self.sightings.note(Sight::ServerAdopted);
            }
            Order::Install { view, members, .. } => {
                let entry = server.entry.as_mut().expect("it has a record");
                *entry = Entry { view, members, ..*entry };
            }
            Order::Join { entry, .. } => {
                let waits = if self.has(Flaw::NoWait) { 0 } else { wait() };
                server.entry = Some(Entry { waits, ..entry });
                self.sightings.note(Sight::ServerJoined);
            }
        }
    }

    /// A client learns that a record is changed.
    fn obeyed(&self, moment: &mut Moment, client: Who, process: Process, order: Order) {
        match (order, &mut moment.clients[client as usize].task) {
            (Order::Adopt { .. }, Task::Updating(course)) => {
                let course = *course;
                let entry =
                    moment.servers[usize::from(process.server)].entry.expect("it has a record");
                Self::update_view(moment, client, &course, process, entry);
            }
            (Order::Join { entry, .. }, Task::Joining(course, address)) => {
                let (place, has) = (entry.place, entry);
                course.places[*address] = Place::Member { place, adopts: false, has, process };
            }
            (Order::Adopt { .. } | Order::Install { .. } | Order::Join { .. }, _) => {}
        }
        self.proceed(moment, client);
    }

    // Time, and what can never matter any more.

    fn tick(moment: &mut Moment) {
        moment.servers.iter_mut().for_each(Server::tick);
        for request in &mut moment.under_way {
            if let What::Write { age, .. } = &mut request.what {
                *age = (*age + 1).min(LATE_AFTER + TTL);
            }
        }
        for client in Who::ALL {
            let state = &mut moment.clients[client as usize];
            let left = state.acknowledged.map(|left| left - 1);
            state.acknowledged = left.filter(|left| *left > 0);
            let is_over = match &mut state.lock {
                Lock::Idle => false,
                Lock::Writing { left, .. }
                | Lock::Written { left }
                | Lock::Reading { left, .. }
                | Lock::Holding { left } => {
                    *left -= 1;
                    *left == 0
                }
            };
            if is_over {
                Self::end(moment, client);
            }
        }
        for client in Who::ALL {
            let other = moment.clients[client.other() as usize].acknowledged;
            if let Lock::Reading { must_see, .. } = &mut moment.clients[client as usize].lock {
                *must_see &= other.is_some();
            }
        }
    }

    /// Whether a request may still be served. A record never gets an earlier view, unless another
    /// loss brings that back.
    fn may_matter(&self, moment: &Moment, request: &Request) -> bool {
        let server = &moment.servers[usize::from(request.process.server)];
        let entry = server.entry;
        let is_open = moment.losses_left > 0
            || matches!(self.plan.flaw, Some(Flaw::NoGate | Flaw::NoViewInGate));
        match (request.what, self.answer(moment, request)) {
            (_, None | Some(Answer::Late)) => false,
            (_, Some(Answer::Ok | Answer::Waits)) => true,
            (_, Some(Answer::Absent | Answer::OtherView)) if is_open => true,
            (What::Write { gate, .. } | What::Read { gate, .. }, _) => {
                entry.is_some_and(|entry| entry.view < gate.view)
                    || entry.is_none() && gate.view.version > 1
            }
            (What::Order { order: Order::Install { has, .. }, .. }, _) => {
                entry.is_none_or(|entry| entry.view < has)
            }
            (What::Order { order: Order::Adopt { .. } | Order::Join { .. }, .. }, _) => true,
        }
    }

    /// Whether a row is still waited for. One that comes later only keeps others out.
    fn is_awaited(&self, moment: &Moment, request: &Request) -> bool {
        let is_writing =
            matches!(moment.clients[request.client as usize].lock, Lock::Writing { .. });
        let is_row = matches!(request.what, What::Write { .. });
        !is_row || is_writing || self.plan.has_late_rows
    }

    fn tidy(&self, moment: &mut Moment) {
        // One that fails interrupts the task.
        for client in Who::ALL {
            let fails = |request: &Request| {
                request.client == client
                    && matches!(request.what, What::Order { is_awaited: true, .. })
                    && !self.may_matter(moment, request)
            };
            if moment.under_way.iter().any(fails) {
                moment.clients[client as usize].task = Task::Idle;
                Self::await_no_orders(moment, client);
            }
        }
        let mut under_way = std::mem::take(&mut moment.under_way);
        under_way
            .retain(|request| self.may_matter(moment, request) && self.is_awaited(moment, request));
        under_way.sort_unstable();
        under_way.dedup();
        moment.under_way = under_way;
    }

    // What must be true.

    fn is_exclusive(&self, moment: &Moment) -> bool {
        let holds = |client: &Client| matches!(client.lock, Lock::Holding { .. });
        self.violations.allow(!moment.clients.iter().all(holds))
    }

    fn is_met(&self, moment: &Moment) -> bool {
        self.violations.allow(!moment.missed)
    }

    /// Whether rows are over when all must be that was sent as long ago.
    fn is_over_in_time(&self, moment: &Moment) -> bool {
        let mut rows = moment.servers.iter().flat_map(|server| server.rows).flatten();
        self.violations.allow(!rows.any(|row| row.age >= LATE_AFTER + TTL))
    }

    // What can happen.

    fn actions_of(&self, moment: &Moment, client: Who, actions: &mut Vec<Action>) {
        let state = &moment.clients[client as usize];
        if state.looks_left > 0 && self.has_changed(moment, client) {
            if self.plan.is_torn {
                actions.push(Action::BeginLook(client));
            } else {
                let silent = [None].into_iter().chain((0..PLACES).map(Some));
                let silent = silent.take(if self.plan.has_silence { 1 + PLACES } else { 1 });
                actions.extend(silent.map(|silent| Action::Look(client, silent)));
            }
        }
        if let Task::Looking { asked, .. } = state.task {
            let left = (0..PLACES).filter(|address| asked & (1 << address) == 0);
            actions.extend(left.map(|address| Action::Ask(client, address)));
            if has_majority(asked) {
                actions.push(Action::Judge(client));
            }
        }
        match state.lock {
            Lock::Idle => {
                let is_enough = state.seats.iter().flatten().count() >= majority(PLACES);
                if state.rounds_left > 0 && is_enough {
                    actions.push(Action::Write(client));
                }
                let other = &moment.clients[client.other() as usize];
                if !self.plan.are_contenders && client == Who::B && other.acknowledged.is_some() {
                    actions.push(Action::Read(client));
                }
            }
            Lock::Written { .. } => actions.push(Action::Read(client)),
            Lock::Writing { .. } | Lock::Reading { .. } | Lock::Holding { .. } => {}
        }
        let may_give_up = match state.lock {
            Lock::Idle | Lock::Holding { .. } => false,
            Lock::Writing { .. } | Lock::Written { .. } | Lock::Reading { .. } => true,
        };
        if may_give_up && state.rounds_left > 0 {
            actions.push(Action::GiveUp(client));
        }
    }

    /// Whether nothing was acknowledged that counts, and nothing will be.
    fn is_over(&self, moment: &Moment) -> bool {
        let is_over = |client: &Client| {
            client.lock == Lock::Idle && client.rounds_left == 0 && client.acknowledged.is_none()
        };
        moment.clients.iter().all(is_over) && !self.plan.has_late_rows
    }

    /// Whether a look would show a client anything new.
    fn has_changed(&self, moment: &Moment, client: Who) -> bool {
        let seats = moment.clients[client as usize].seats;
        let mut addresses = self.plan.addresses[client as usize].iter().zip(seats);
        addresses.any(|(server, seat)| {
            let server = &moment.servers[usize::from(*server)];
            let gate = server.entry.map(|entry| Gate { view: entry.view, epoch: entry.epoch });
            seat.is_none_or(|seat| seat.process != server.process || Some(seat.gate) != gate)
        })
    }

    fn note_refusal(&self, answer: Option<Answer>) {
        match answer {
            Some(Answer::OtherView | Answer::Absent) => self.sightings.note(Sight::ViewRefused),
            Some(Answer::Waits) => self.sightings.note(Sight::ServerWaits),
            None | Some(Answer::Ok | Answer::Late) => {}
        }
    }
}

impl Model for Members {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let client = |who: Who| {
            let (addresses, looks) =
                (self.plan.addresses[who as usize], self.plan.looks[who as usize]);
            let writes = self.plan.are_contenders || who == Who::A;
            let seats = first_seats(addresses);
            // One with a wrong address has not looked yet.
            let is_right = seats.iter().all(Option::is_some);
            Client {
                known: seats.map(|seat| seat.filter(|_| is_right).map(|seat| seat.place)),
                seats: seats.map(|seat| seat.filter(|_| is_right)),
                looks_left: looks,
                task: Task::Idle,
                rounds_left: if writes { self.plan.rounds } else { 0 },
                lock: Lock::Idle,
                acknowledged: None,
            }
        };
        let servers = [0, 1, 2, STRANGER];
        vec![Moment {
            servers: servers.map(|server| Server::first(server, self.plan.are_durable)),
            clients: Who::ALL.map(client),
            under_way: Vec::new(),
            losses_left: self.plan.losses_max,
            missed: false,
        }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        if self.is_over(moment) {
            return;
        }
        for client in Who::ALL {
            self.actions_of(moment, client, actions);
        }
        for request in &moment.under_way {
            match self.answer(moment, request) {
                Some(Answer::Ok) => actions.push(Action::Serve(*request)),
                refused => self.note_refusal(refused),
            }
        }
        if moment.losses_left > 0 {
            // The first loss is of any, as long as all servers are alike.
            let are_alike = self.plan.addresses.iter().flatten().all(|it| *it != STRANGER);
            let is_first = moment.losses_left == self.plan.losses_max;
            let last = if are_alike && is_first { 1 } else { STRANGER };
            for server in 0..last {
                let losses = self.plan.losses.iter();
                let losses = losses.filter(|loss| **loss != Loss::Follows(server));
                actions.extend(losses.map(|loss| Action::Lose(server, *loss)));
            }
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, moment: &Moment, action: Action) -> Option<Moment> {
        let mut next = moment.clone();
        match action {
            Action::Look(client, silent) => {
                Self::begin_look(&mut next, client);
                for address in (0..PLACES).filter(|address| Some(*address) != silent) {
                    self.ask(&mut next, client, address);
                }
                self.judge(&mut next, client);
            }
            Action::BeginLook(client) => Self::begin_look(&mut next, client),
            Action::Ask(client, address) => self.ask(&mut next, client, address),
            Action::Judge(client) => self.judge(&mut next, client),
            Action::Write(client) => self.write(&mut next, client),
            Action::Read(client) => Self::read(&mut next, client),
            Action::GiveUp(client) => Self::end(&mut next, client),
            Action::Serve(request) => self.serve(&mut next, request),
            Action::Lose(server, loss) => {
                next.losses_left -= 1;
                next.servers[usize::from(server)].lose(loss, &moment.servers);
            }
            Action::Tick => Self::tick(&mut next),
        }
        self.tidy(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one client holds the lock", Self::is_exclusive),
            Property::always("a majority meets what was acknowledged", Self::is_met),
            Property::always("rows are over in time", Self::is_over_in_time),
        ]
    }
}

fn has_majority(places: u8) -> bool {
    places.count_ones() as usize >= majority(PLACES)
}

impl Tell for Action {
    fn tell(&self) -> String {
        match self {
            Action::Look(client, None) => format!("{client:?} looks at all servers"),
            Action::Look(client, Some(silent)) => {
                format!("{client:?} looks; its address {silent} is silent")
            }
            Action::BeginLook(client) => format!("{client:?} begins to look"),
            Action::Ask(client, address) => format!("{client:?} looks at its address {address}"),
            Action::Judge(client) => format!("{client:?} has looked"),
            Action::Write(client) => format!("{client:?} sends its row"),
            Action::Read(client) => format!("{client:?} sends its read"),
            Action::GiveUp(client) => format!("{client:?} gives up"),
            Action::Serve(Request { client, process, what }) => {
                let what = match what {
                    What::Write { .. } => "row",
                    What::Read { .. } => "read",
                    What::Order { order: Order::Adopt { .. }, .. } => "adoption",
                    What::Order { order: Order::Install { .. }, .. } => "view",
                    What::Order { order: Order::Join { .. }, .. } => "joining",
                };
                format!("server {} serves the {what} of {client:?}", process.server)
            }
            Action::Lose(server, loss) => format!("server {server}: {loss:?}"),
            Action::Tick => "time passes".to_owned(),
        }
    }
}

impl Tell for Moment {
    fn tell(&self) -> String {
        let record = |server: &Server| match server.entry {
            None => "-".to_owned(),
            Some(Entry { epoch, view: ViewId { version, maker }, .. }) => {
                format!("{version}.{maker}/{epoch}")
            }
        };
        let servers = self.servers.each_ref().map(record).join(" ");
        let clients = self.clients.each_ref().map(|client| format!("{:?}", client.lock));
        format!("[{servers}] {}", clients.join(" | "))
    }
}
