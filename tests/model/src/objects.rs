//! A model of whole objects: of each client everything that decides about one object, as it is
//! shipped, on one table and with messages between the clients.
//!
//! The other models show that contenders, keepers and guests are safe one by one, under every fault
//! at every point. Here they are together, with what lies between them: callers and their places,
//! terms of rows, the way to another keeper and back, holders, `min_hold`, revocation, shutdown,
//! and tasks that fail. Rows stand in one copy, and are gone as early as their lease allows.
//!
//! Everything that is under way arrives before time passes, in any order, unless a fault holds it
//! up: a client is stopped, or one request or message is late. A plan says how many faults there
//! are. Time passes in steps of half a second.

mod client;
mod events;
mod message;
mod operation;
mod recovery;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stateright::{Model, Property};

use self::client::{Caller, Client};
use self::message::Frame;
use self::operation::Fate;
use crate::core::bakery::{
    Change, ContenderId, Mode, Patience, Read, Revocation, RevokeKind, SeededBug, Write,
    WriteOutcome,
};
use crate::core::object::io::{HolderRequest, Input, Need};
use crate::core::object::table::Table;
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};
use crate::world::may_hold_together;

/// Steps of time.
pub(crate) type Ticks = u32;

/// How much time a step is.
const TICK: Duration = Duration::from_millis(500);

/// How many of them pass at once in a nap: more than the shortest lease has.
const NAP: Ticks = 7;

/// How far a clock is set ahead.
const JUMP: Duration = Duration::from_secs(5);

/// How far the clocks of nodes may differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// How much sooner than their TTL rows may be gone: by its rounding, and by the clock of a node.
const EARLY: Duration = Duration::from_secs(2);

/// The mean time between two turns before a history begins, if places are kept.
const MEAN_GAP: Duration = TICK;

/// What the holder needs that asks for more time: more than the shortest lease.
const NEED: Duration = Duration::from_secs(4);

/// The clients of a history, and the faults that may occur.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The callers of each client, in the order in which they come.
    pub(crate) clients: &'static [&'static [CallerPlan]],
    /// Whether clients take turns of each other.
    pub(crate) has_network: bool,
    /// How long an idle place is kept at most.
    pub(crate) keep_idle: Ticks,
    /// The duration of a history.
    pub(crate) ticks: Ticks,
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
    pub(crate) patience: Patience,
    /// How long the place stays taken at least.
    pub(crate) min_hold: Ticks,
    /// How much of the lease is left at least as it is granted.
    pub(crate) at_least: Ticks,
    /// Whether it lets those go first that share the object.
    pub(crate) yields: bool,
}

/// How often each may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Troubles {
    /// Much time passes at once, in which no client does anything.
    pub(crate) naps: u8,
    /// The process of a client is stopped, and continues later.
    pub(crate) stops: u8,
    /// A request to the database takes effect or is answered late.
    pub(crate) late: u8,
    /// Whether a request to the database was applied is unknown.
    pub(crate) unknown: u8,
    /// A message is late.
    pub(crate) late_messages: u8,
    /// A message gets lost.
    pub(crate) lost_messages: u8,
    /// A message arrives twice.
    pub(crate) repeats: u8,
    /// A client dies.
    pub(crate) deaths: u8,
    /// The task of an object fails.
    pub(crate) panics: u8,
    /// A client is shut down.
    pub(crate) shutdowns: u8,
    /// A contender is asked to leave.
    pub(crate) revocations: u8,
    /// The clock of a machine is set ahead.
    pub(crate) jumps: u8,
    /// A caller stops waiting.
    pub(crate) giving_up: u8,
    /// A holder asks for more time; no trouble.
    pub(crate) confirms: u8,
    /// A holder lets its rows live for longer; no trouble.
    pub(crate) raises: u8,
    /// A holder shares the object, which it had alone; no trouble.
    pub(crate) downgrades: u8,
}

pub(crate) const NO_TROUBLES: Troubles = Troubles {
    naps: 0,
    stops: 0,
    late: 0,
    unknown: 0,
    late_messages: 0,
    lost_messages: 0,
    repeats: 0,
    deaths: 0,
    panics: 0,
    shutdowns: 0,
    revocations: 0,
    jumps: 0,
    giving_up: 0,
    confirms: 0,
    raises: 0,
    downgrades: 0,
};

impl Plan {
    pub(crate) const fn over(self, ticks: Ticks) -> Self {
        Plan { ticks, ..self }
    }

    pub(crate) const fn with(self, troubles: Troubles) -> Self {
        Plan { troubles, ..self }
    }

    pub(crate) const fn must_see(self, must_see: &'static [Sight]) -> Self {
        Plan { must_see, ..self }
    }
}

/// The objects of a plan.
#[derive(Debug)]
pub(crate) struct Objects {
    plan: Plan,
    sightings: Arc<Sightings>,
    violations: FirstViolation,
    /// Fingerprints of moments from which all goes well.
    recovering: Mutex<HashSet<u64>>,
}

/// A moment of a history.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    now: Ticks,
    /// How many steps of time there were.
    passes: Ticks,
    clients: Vec<Arc<Client>>,
    table: Table,
    /// Writes that no contender waits for any more, and that have not taken effect.
    orphans: Vec<Write>,
    /// In the order in which they were sent.
    frames: Vec<Frame>,
    left: Troubles,
    /// Until when the place of a client stays taken, even if it was returned.
    taken: Option<(usize, Ticks)>,
    /// Whether another one was let in before.
    freed_early: bool,
    /// Whether a holder did not get the time that its terms give.
    cut_short: bool,
    /// Whether a place was kept, or renewed meanwhile, when it must not be.
    kept_wrongly: bool,
    /// The recovery is tried: nothing is counted.
    is_recovering: bool,
    /// Of all but the clients, which have their own.
    fingerprint: u64,
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pass,
    Nap,
    /// A client wakes up because something is due.
    Wakes(usize),
    Stops(usize),
    Continues(usize),
    Dies(usize),
    Fails(usize),
    Closes(usize),
    Jumps(usize),
    /// The next caller of a client asks.
    Asks(usize),
    GivesUp(usize, usize),
    Returns(usize, usize),
    Confirms(usize, usize),
    Raises(usize, usize),
    Downgrades(usize, usize),
    /// What becomes of a request to the database.
    Operation(usize, usize, Fate),
    /// A forgotten write takes effect.
    Orphan(usize),
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
    /// A message is late.
    Delay(usize),
    /// The contender of a client is asked to leave.
    Revoke(usize),
}

impl Objects {
    pub(crate) fn new(plan: Plan, sightings: Arc<Sightings>) -> Self {
        Objects {
            plan,
            sightings,
            violations: FirstViolation::default(),
            recovering: Mutex::default(),
        }
    }

    fn note(&self, moment: &Moment, sight: Sight) {
        if !moment.is_recovering {
            self.sightings.note(sight);
        }
    }

    fn callers_of(&self, i: usize) -> &'static [CallerPlan] {
        self.plan.clients[i]
    }

    // What a step does.

    fn step(&self, moment: &mut Moment, action: &Action) {
        SeededBug::plant(self.plan.bug);
        self.act(moment, action);
        moment.tidy();
        moment.seal();
    }

    fn act(&self, moment: &mut Moment, action: &Action) {
        match *action {
            Action::Pass => (moment.now, moment.passes) = (moment.now + 1, moment.passes + 1),
            Action::Nap => {
                moment.left.naps -= 1;
                moment.now += NAP;
            }
            Action::Wakes(i) => self.feed(moment, i, Input::Tick),
            Action::Stops(i) => {
                moment.left.stops -= 1;
                moment.client(i).is_stopped = true;
            }
            Action::Continues(i) => moment.client(i).is_stopped = false,
            Action::Dies(i) => {
                moment.left.deaths -= 1;
                moment.dies(i);
            }
            Action::Fails(i) => {
                moment.left.panics -= 1;
                self.note(moment, Sight::TaskFailed);
                moment.fails(i);
            }
            Action::Closes(i) => {
                moment.left.shutdowns -= 1;
                moment.client(i).is_closed = true;
                self.feed(moment, i, Input::Close);
            }
            Action::Jumps(i) => {
                moment.left.jumps -= 1;
                moment.client(i).ahead += JUMP;
            }
            Action::Asks(i) => self.asks(moment, i),
            Action::GivesUp(i, number) => {
                moment.left.giving_up -= 1;
                moment.client(i).callers[number] = Caller::Gone;
                self.feed(moment, i, Input::Leave { caller: number as u64 });
            }
            Action::Returns(i, number) => self.returns(moment, i, number),
            Action::Confirms(i, number) => self.confirms(moment, i, number),
            Action::Raises(i, number) => self.raises(moment, i, number),
            Action::Downgrades(i, number) => self.downgrades(moment, i, number),
            Action::Operation(i, number, fate) => self.operation(moment, i, number, fate),
            Action::Orphan(number) => {
                let write = moment.orphans.remove(number);
                moment.table.write(moment.time(), &write);
            }
            Action::Deliver(number) => {
                let frame = moment.frames.remove(number);
                self.deliver(moment, &frame);
            }
            Action::Repeat(number) => {
                moment.left.repeats -= 1;
                let frame = moment.frames[number].clone();
                self.deliver(moment, &frame);
            }
            Action::Lose(number) => {
                moment.left.lost_messages -= 1;
                moment.frames.remove(number);
            }
            Action::Delay(number) => {
                moment.left.late_messages -= 1;
                moment.frames[number].is_late = true;
            }
            Action::Revoke(i) => self.revoke(moment, i),
        }
    }

    fn asks(&self, moment: &mut Moment, i: usize) {
        let number = moment.clients[i].next_caller().expect("one has not asked");
        let now = moment.now_of(i);
        let client = moment.client(i);
        if client.is_closed {
            client.callers[number] = Caller::Gone;
            return;
        }
        client.callers[number] = Caller::Waiting;
        let caller = client::caller(number, self.callers_of(i)[number], now.elapsed);
        client.begin(&self.plan);
        self.feed(moment, i, Input::Acquire(Box::new(caller)));
    }

    fn confirms(&self, moment: &mut Moment, i: usize, number: usize) {
        moment.left.confirms -= 1;
        let need = Need::Lease(NEED);
        self.holder_asks(moment, (i, number), HolderRequest::Confirm { need, request: 0 });
    }

    fn raises(&self, moment: &mut Moment, i: usize, number: usize) {
        moment.left.raises -= 1;
        self.note(moment, Sight::TtlRaised);
        let (terms, owner) = (Some(client::raised()), None);
        let request = HolderRequest::Revise { terms, owner, request: 0 };
        self.holder_asks(moment, (i, number), request);
    }

    /// From the request on, whatever becomes of it, the holder counts on nothing but sharing.
    fn downgrades(&self, moment: &mut Moment, i: usize, number: usize) {
        moment.left.downgrades -= 1;
        self.note(moment, Sight::Downgraded);
        moment.client(i).set_shares(Some(number));
        self.holder_asks(moment, (i, number), HolderRequest::Share { request: 0 });
    }

    /// A holder asks for something, and waits for the answer.
    fn holder_asks(
        &self,
        moment: &mut Moment,
        (i, number): (usize, usize),
        request: HolderRequest,
    ) {
        moment.client(i).is_confirming = true;
        if let Some(turn) = moment.clients[i].turn_of(number) {
            self.feed(moment, i, Input::Holder { turn, request });
        }
    }

    fn returns(&self, moment: &mut Moment, i: usize, number: usize) {
        let turn = moment.clients[i].turn_of(number).expect("it is inside");
        moment.client(i).callers[number] = Caller::Gone;
        if moment.taken.is_some_and(|(_, until)| moment.now < until) {
            self.note(moment, Sight::ReturnedEarly);
        }
        let request = HolderRequest::Return { request: None };
        self.feed(moment, i, Input::Holder { turn, request });
    }

    fn operation(&self, moment: &mut Moment, i: usize, number: usize, fate: Fate) {
        let time = moment.time();
        let mut operation = moment.client(i).operations.remove(number);
        match fate {
            Fate::Answered => {
                operation.take_effect(&mut moment.table, time);
                let answer = operation.answer.expect("it took effect");
                self.feed(moment, i, answer);
            }
            Fate::Late | Fate::LateAnswer => {
                moment.left.late -= 1;
                operation.is_late = true;
                if fate == Fate::LateAnswer {
                    operation.take_effect(&mut moment.table, time);
                }
                moment.client(i).operations.insert(number, operation);
            }
            Fate::UnknownNever | Fate::UnknownNow | Fate::UnknownLater => {
                moment.left.unknown -= 1;
                let answer = operation.failed();
                if fate == Fate::UnknownNow {
                    operation.take_effect(&mut moment.table, time);
                } else if fate == Fate::UnknownLater {
                    moment.orphans.extend(operation.into_write());
                }
                self.feed(moment, i, answer);
            }
        }
    }

    /// An operator asks the contender of a client to leave.
    fn revoke(&self, moment: &mut Moment, i: usize) {
        moment.left.revocations -= 1;
        moment.taken = None;
        let (contender, round) = moment.entered(i).expect("it is in the table");
        self.note(moment, Sight::PlaceRevoked);
        let (by, why) = ("operator".to_owned(), String::new());
        let revocation = Revocation { contender, round, by, why, kind: RevokeKind::Request };
        let change = Change::Revoke { revocation, ttl_seconds: 60 };
        let stamp = moment.now_of(i).stamp;
        let outcome = moment.table.write(moment.time(), &Write { stamp, change });
        assert_eq!(outcome, WriteOutcome::Applied);
    }

    // What must be true.

    fn is_exclusive(&self, moment: &Moment) -> bool {
        self.violations.allow(self.may_hold_together(moment))
    }

    fn may_hold_together(&self, moment: &Moment) -> bool {
        let mut inside = Vec::new();
        for (i, client) in moment.clients.iter().enumerate() {
            let now = moment.now_of(i).elapsed;
            let holders = (0..client.callers.len()).filter(|number| client.holds(*number, now));
            let mode = |number| client.mode_of(number, self.callers_of(i)[number].mode);
            inside.extend(holders.map(mode));
        }
        if inside.len() > 1 {
            self.note(moment, Sight::HeldTogether);
        }
        may_hold_together(&inside)
    }
}

impl Moment {
    /// The true time.
    fn time(&self) -> Duration {
        client::ORIGIN + TICK * self.now
    }

    /// A client that is about to change.
    fn client(&mut self, i: usize) -> &mut Client {
        let client = Arc::make_mut(&mut self.clients[i]);
        client.fingerprint = 0;
        client
    }

    /// The contender of a client in the table, and its round.
    fn entered(&self, i: usize) -> Option<(ContenderId, i64)> {
        let contender = self.clients[i].id;
        let seen = self.table.read(self.time(), Read::Entering(contender)).ok()?;
        let row = seen.rows.first()?;
        Some((contender, row.round?))
    }

    /// What would change nothing never does.
    fn tidy(&mut self) {
        let Moment { orphans, table, .. } = self;
        orphans.retain(|write| table.takes(write));
    }

    /// Which promises were broken.
    fn broken(&self) -> [bool; 3] {
        [self.freed_early, self.cut_short, self.kept_wrongly]
    }

    fn seal(&mut self) {
        let Moment { table, orphans, frames, .. } = &*self;
        let fingerprint = client::fingerprint_of(&(table, orphans, frames));
        self.fingerprint = fingerprint;
        for client in self.clients.iter_mut().filter(|client| client.fingerprint == 0) {
            let fingerprint = client::fingerprint_of(client);
            Arc::make_mut(client).fingerprint = fingerprint;
        }
    }
}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Moment { now, passes, left, taken, fingerprint, .. } = self;
        (now, passes, left, taken, self.broken(), fingerprint).hash(hasher);
        for client in &self.clients {
            client.fingerprint.hash(hasher);
        }
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Moment| {
            let clients: Vec<_> = it.clients.iter().map(|client| client.fingerprint).collect();
            (it.now, it.passes, it.left, it.taken, it.broken(), it.fingerprint, clients)
        };
        parts(self) == parts(other)
    }
}

impl Model for Objects {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let clients = (0..self.plan.clients.len())
            .map(|i| Arc::new(Client::new(i, self.callers_of(i).len(), &self.plan)))
            .collect();
        let mut moment = Moment {
            now: 0,
            passes: 0,
            clients,
            table: Table::expiring_early(EARLY),
            orphans: Vec::new(),
            frames: Vec::new(),
            left: self.plan.troubles,
            taken: None,
            freed_early: false,
            cut_short: false,
            kept_wrongly: false,
            is_recovering: false,
            fingerprint: 0,
        };
        moment.seal();
        vec![moment]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        self.prompt_actions(moment, actions);
        if actions.is_empty() {
            actions.extend((moment.passes < self.plan.ticks).then_some(Action::Pass));
            actions.extend((moment.left.naps > 0).then_some(Action::Nap));
        }
        self.late_actions(moment, actions);
        self.user_actions(moment, actions);
        self.fault_actions(moment, actions);
    }

    fn next_state(&self, moment: &Moment, action: Action) -> Option<Moment> {
        let mut next = moment.clone();
        self.step(&mut next, &action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let safe = vec![
            Property::always("only compatible callers hold together", Self::is_exclusive),
            Property::always(
                "a place stays taken for its minimum time",
                |model: &Self, moment: &Moment| model.violations.allow(!moment.freed_early),
            ),
            Property::always(
                "a holder has the time of its terms",
                |model: &Self, moment: &Moment| model.violations.allow(!moment.cut_short),
            ),
            Property::always(
                "a place is kept only while nobody else wants it, and is not renewed meanwhile",
                |model: &Self, moment: &Moment| model.violations.allow(!moment.kept_wrongly),
            ),
        ];
        let live = Property::always("all are served, and no row is left", Self::recovers);
        [safe, vec![live]].concat()
    }
}

impl Tell for Action {
    fn tell(&self) -> String {
        match self {
            Action::Pass => "time passes".to_owned(),
            Action::Nap => "much time passes at once".to_owned(),
            Action::Wakes(i) => format!("{i} wakes up"),
            Action::Stops(i) => format!("{i} is stopped"),
            Action::Continues(i) => format!("{i} continues"),
            Action::Dies(i) => format!("{i} dies"),
            Action::Fails(i) => format!("{i}: its task fails"),
            Action::Closes(i) => format!("{i} is shut down"),
            Action::Jumps(i) => format!("{i}: its clock is set ahead"),
            Action::Asks(i) => format!("{i}: a caller asks"),
            Action::GivesUp(i, number) => format!("{i}: caller {number} gives up"),
            Action::Returns(i, number) => format!("{i}: caller {number} returns its turn"),
            Action::Confirms(i, number) => format!("{i}: caller {number} asks for more time"),
            Action::Raises(i, number) => format!("{i}: caller {number} raises its TTL"),
            Action::Downgrades(i, number) => format!("{i}: caller {number} shares from now on"),
            Action::Operation(i, number, fate) => format!("{i}: request {number}: {fate:?}"),
            Action::Orphan(number) => format!("forgotten write {number} takes effect"),
            Action::Deliver(number) => format!("message {number} arrives"),
            Action::Repeat(number) => format!("message {number} arrives, and will once more"),
            Action::Lose(number) => format!("message {number} gets lost"),
            Action::Delay(number) => format!("message {number} is late"),
            Action::Revoke(i) => format!("{i} is asked to leave"),
        }
    }
}

impl Tell for Moment {
    fn tell(&self) -> String {
        let clients: Vec<_> = self.clients.iter().map(|client| client.tell()).collect();
        let frames: Vec<_> = self.frames.iter().map(Tell::tell).collect();
        let rows = self.table.live_rows(self.time());
        format!("{:2} | {} | {rows} rows | {}", self.now, clients.join(" | "), frames.join(", "))
    }
}
