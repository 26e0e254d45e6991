//! A client: the machine of the object, its requests, and its callers.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Write as _};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use super::message::{Content, Frame};
use super::operation::Operation;
use super::{CallerPlan, MAX_CLOCK_SKEW, MEAN_GAP, Moment, NEED, Objects, Plan, TICK, Ticks};
use crate::core::bakery::{
    Acquire, Change, ContenderId, Lease, LeaseTerms, Mode, Read, StoredRow, row_name,
};
use crate::core::object::io::{
    self, Granted, HolderEvent, HolderRequest, Input, Now, Origin, Output, Reply, Report,
};
use crate::core::object::{Memory, Object, Settings};
use crate::core::turns::{HoldLimit, KeptEnd, TurnId};
use crate::sightings::Sight;

/// When a history begins, by the clocks of the machines.
pub(super) const ORIGIN: Duration = Duration::from_secs(1_000);

/// The same by wall clocks, in µs since the Unix epoch.
const WALL_ORIGIN: i64 = 1_700_000_000_000_000;

/// How long callers wait.
const PATIENCE: Duration = Duration::from_secs(10_000);

/// A client.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: ContenderId,
    /// `None` while the object is not in use.
    pub(super) object: Option<Object>,
    memory: Memory,
    pub(super) is_dead: bool,
    pub(super) is_stopped: bool,
    pub(super) is_closed: bool,
    /// A holder waits until it has more time.
    pub(super) is_confirming: bool,
    /// How far the library's clock is ahead of the machine's.
    pub(super) ahead: Duration,
    last_stamp: i64,
    pub(super) operations: Vec<Operation>,
    pub(super) callers: Vec<Caller>,
    /// 0: it has changed.
    pub(super) fingerprint: u64,
}

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Outside,
    Waiting,
    Inside { turn: TurnId, lease: Lease, limit: Option<HoldLimit>, shares: bool },
    Gone,
}

/// On which terms a caller wants its rows.
/// To what a holder raises its TTL.
pub(super) fn raised() -> LeaseTerms {
    LeaseTerms::new(Duration::from_secs(8), MAX_CLOCK_SKEW)
}

fn terms(plan: CallerPlan) -> LeaseTerms {
    LeaseTerms::new(Duration::from_secs(plan.ttl), MAX_CLOCK_SKEW)
}

/// What a caller of a plan asks.
pub(super) fn caller(number: usize, plan: CallerPlan, asked: Duration) -> io::Caller {
    let CallerPlan { mode, patience, min_hold, at_least, yields, .. } = plan;
    let deadline = asked + PATIENCE;
    let acquire = Acquire {
        mode,
        terms: terms(plan),
        patience,
        renew: true,
        gives_up: Some(deadline),
        owner: "caller".into(),
    };
    io::Caller {
        number: number as u64,
        acquire,
        hold_terms: None,
        yields: yields.then_some(PATIENCE),
        min_hold: TICK * min_hold,
        at_least: TICK * at_least,
        asked,
        deadline,
    }
}

impl Client {
    /// One of its callers shares the object from now on, which it had alone; or none does, after
    /// all.
    pub(super) fn set_shares(&mut self, number: Option<usize>) {
        for (i, caller) in self.callers.iter_mut().enumerate() {
            if let Caller::Inside { shares, .. } = caller {
                *shares = number == Some(i);
            }
        }
    }

    /// How a caller holds that wanted the object like this.
    pub(super) fn mode_of(&self, number: usize, wanted: Mode) -> Mode {
        match self.callers[number] {
            Caller::Inside { shares: true, .. } => Mode::Shared,
            Caller::Inside { .. } | Caller::Outside | Caller::Waiting | Caller::Gone => wanted,
        }
    }

    pub(super) fn new(i: usize, callers: usize, plan: &Plan) -> Self {
        let is_kept = plan.keep_idle > 0;
        let memory = if is_kept { Memory::of_use(MEAN_GAP) } else { Memory::default() };
        // As clients choose their ids.
        let id = ContenderId { host: 1, client: 4 << 76 | (i as u128 + 1), slot: 0 };
        Client {
            id,
            object: None,
            memory,
            is_dead: false,
            is_stopped: false,
            is_closed: false,
            is_confirming: false,
            ahead: Duration::ZERO,
            last_stamp: 0,
            operations: Vec::new(),
            callers: vec![Caller::Outside; callers],
            fingerprint: 0,
        }
    }

    /// The object is in use, if it was not.
    pub(super) fn begin(&mut self, plan: &Plan) {
        if self.object.is_none() {
            let memory = std::mem::take(&mut self.memory);
            self.object = Some(Object::new(self.id, settings(plan), memory));
        }
    }

    /// The caller that asks next, if one has not.
    pub(super) fn next_caller(&self) -> Option<usize> {
        self.callers.iter().position(|caller| *caller == Caller::Outside)
    }

    /// The turn of a caller that is inside, as far as it knows.
    pub(super) fn turn_of(&self, number: usize) -> Option<TurnId> {
        match self.callers[number] {
            Caller::Inside { turn, .. } => Some(turn),
            Caller::Outside | Caller::Waiting | Caller::Gone => None,
        }
    }

    /// Whether a caller holds, by its client's clock.
    pub(super) fn holds(&self, number: usize, now: Duration) -> bool {
        match self.callers[number] {
            Caller::Inside { lease, limit, .. } => {
                lease.is_valid(now) && limit.is_none_or(|limit| now < limit.ends)
            }
            Caller::Outside | Caller::Waiting | Caller::Gone => false,
        }
    }

    /// Whether something is due.
    pub(super) fn is_due(&self, now: Now) -> bool {
        let sleep = self.object.as_ref().and_then(|object| object.sleep(now.of_turns()));
        sleep.is_some_and(|sleep| sleep.is_zero())
    }

    fn inside(&mut self, turn: TurnId) -> Option<&mut Caller> {
        self.callers
            .iter_mut()
            .find(|caller| matches!(caller, Caller::Inside { turn: inside, .. } if *inside == turn))
    }

    /// The object is forgotten if there is nothing left to do.
    fn forget_if_idle(&mut self, now: Now) {
        if let Some(object) = self.object.take_if(|object| object.is_idle()) {
            let memory = object.memory(now);
            self.memory = if memory.is_of_use(now) { memory } else { Memory::default() };
            // Looks of which nothing follows any more.
            self.operations.clear();
        }
    }

    pub(super) fn tell(&self) -> String {
        let callers = self.callers.iter().map(|caller| match caller {
            Caller::Outside => '.',
            Caller::Waiting => 'w',
            Caller::Inside { .. } => 'I',
            Caller::Gone => '-',
        });
        let state = match &self.object {
            _ if self.is_dead => "dead",
            _ if self.is_stopped => "stopped",
            Some(_) => "in use",
            None => "idle",
        };
        format!("{} {state}, {} requests", callers.collect::<String>(), self.operations.len())
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Client { object, memory, is_dead, is_stopped, is_closed, is_confirming, .. } = self;
        let flags = (is_dead, is_stopped, is_closed, is_confirming, self.ahead, self.last_stamp);
        (object, memory, flags, &self.operations, &self.callers).fmt(f)
    }
}

fn settings(plan: &Plan) -> Settings {
    Settings {
        patience: PATIENCE,
        turns: true,
        has_network: plan.has_network,
        exchanges: false,
        guest_hold_max: None,
        max_clock_skew: MAX_CLOCK_SKEW,
        keep_idle: TICK * plan.keep_idle,
    }
}

/// Whether rows show another contender, or a request to leave: then the place must not be kept.
fn shows_others(rows: &[StoredRow], own: ContenderId) -> bool {
    let (own, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.contender == own);
    let is_request = |row: &&StoredRow| row.row_name == row_name::REVOKED;
    let round = own.iter().find(|row| !is_request(row)).and_then(|row| row.round);
    let is_revoked = own.iter().any(|row| is_request(row) && row.round == round);
    is_revoked || !others.iter().all(is_request)
}

/// Whether rows are written with it.
fn is_put(output: &Output) -> bool {
    let Output::Write { write, .. } = output else {
        return false;
    };
    matches!(write.change, Change::Put { .. })
}

/// A hash of all that is printed of a value: no two that differ are taken for one.
pub(super) fn fingerprint_of(value: &impl Debug) -> u64 {
    struct Hashed(DefaultHasher);
    impl fmt::Write for Hashed {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut hashed = Hashed(DefaultHasher::new());
    write!(hashed, "{value:?}").expect("hashing does not fail");
    hashed.0.finish()
}

impl Moment {
    /// The moment as a client knows it.
    pub(super) fn now_of(&self, i: usize) -> Now {
        let client = &self.clients[i];
        let boot = self.time();
        let passed = i64::try_from((TICK * self.now).as_micros()).expect("a history is short");
        let wall = WALL_ORIGIN + passed;
        let stamp = wall.max(client.last_stamp + 1);
        let elapsed = boot + client.ahead;
        Now { elapsed, boot, wall, stamp, jitter: 0.5, chance: 0.5 }
    }

    fn number_of(&self, client: u128) -> usize {
        let number = self.clients.iter().position(|it| it.id.client == client);
        number.expect("clients know each other alone")
    }

    /// A client dies. Its writes may take effect.
    pub(super) fn dies(&mut self, i: usize) {
        self.frames.retain(|frame| frame.to != i);
        let client = self.client(i);
        (client.is_dead, client.object, client.is_confirming) = (true, None, false);
        client.memory = Memory::default();
        client.callers.fill(Caller::Gone);
        self.forget_operations(i);
    }

    /// The task of an object fails. Its callers are refused, and its guards are lost.
    pub(super) fn fails(&mut self, i: usize) {
        let now = self.now_of(i);
        let client = self.client(i);
        let object = client.object.take().expect("only a task fails");
        client.memory = object.memory_of_failed(now);
        client.is_confirming = false;
        for caller in &mut client.callers {
            if matches!(caller, Caller::Waiting | Caller::Inside { .. }) {
                *caller = Caller::Gone;
            }
        }
        self.forget_operations(i);
    }

    fn forget_operations(&mut self, i: usize) {
        let operations = std::mem::take(&mut self.client(i).operations);
        self.orphans.extend(operations.into_iter().filter_map(Operation::into_write));
    }
}

impl Objects {
    /// A message comes. Without a task it is answered for an object that is not in use.
    pub(super) fn receive(&self, moment: &mut Moment, i: usize, input: Input) {
        if moment.clients[i].is_dead {
            return;
        }
        if moment.clients[i].object.is_some() {
            return self.feed(moment, i, input);
        }
        let now = moment.now_of(i);
        let settings = settings(&self.plan);
        let mut object = Object::new(moment.clients[i].id, settings, Memory::default());
        object.handle(now, input);
        while let Some(output) = object.poll() {
            if matches!(output, Output::Answer { .. } | Output::Ask { .. }) {
                let nothing = self.perform(moment, i, output);
                assert!(nothing.is_none(), "a message is sent");
            }
        }
    }

    /// Feeds the object of a client, and does what it asks for.
    pub(super) fn feed(&self, moment: &mut Moment, i: usize, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = moment.now_of(i);
            let client = moment.client(i);
            let Some(object) = &mut client.object else {
                return;
            };
            let rows = if let Input::OneReplicaRead { rows, .. } = &input { rows } else { &vec![] };
            let is_wanted = client.is_closed || shows_others(rows, client.id);
            object.handle(now, input);
            let outputs: Vec<_> = std::iter::from_fn(|| object.poll()).collect();
            let is_kept = object.is_kept();
            if !outputs.is_empty() {
                client.last_stamp = now.stamp;
            }
            moment.kept_wrongly |= is_kept && (is_wanted || outputs.iter().any(is_put));
            for output in outputs {
                inputs.extend(self.perform(moment, i, output));
            }
        }
        let now = moment.now_of(i);
        moment.client(i).forget_if_idle(now);
    }

    /// Does what the object asks for. Looks that may come at any time come at once.
    fn perform(&self, moment: &mut Moment, i: usize, output: Output) -> Option<Input> {
        let time = moment.time();
        match output {
            Output::Write { slot, op, write } => {
                moment.request(i, Operation::write(slot, op, write));
                None
            }
            Output::Read { slot, op, read } => {
                moment.request(i, Operation::read(slot, op, *read));
                None
            }
            Output::Exchange { .. } => unreachable!("the store does not exchange"),
            Output::ReadOneReplica { slot } => {
                let rows = moment.table.read(time, Read::Object).map(|seen| seen.rows);
                Some(Input::OneReplicaRead { slot, rows: rows.unwrap_or_default() })
            }
            Output::Look => Some(Input::Looked(moment.table.read(time, Read::Object))),
            Output::SweepRead => Some(Input::SweepRead(None)),
            Output::SweepWrite(_) => unreachable!("a sweep begins with a read"),
            Output::IssueBlock { .. } => unreachable!("no tokens are drawn here"),
            Output::Connect { keeper, .. } => {
                let is_reachable = !moment.clients[moment.number_of(keeper)].is_dead;
                Some(Input::Connected { keeper, is_reachable })
            }
            Output::Ask { keeper, request } => {
                let (to, content) = (moment.number_of(keeper), Content::Request(request));
                moment.send(i, to, content);
                None
            }
            Output::Answer { guest, response, .. } => {
                let (to, content) = (moment.number_of(guest), Content::Response(response));
                moment.send(i, to, content);
                None
            }
            Output::Granted(granted) => self.granted(moment, i, &granted),
            Output::Refused { caller, .. } => {
                let number = usize::try_from(caller).expect("callers are few");
                self.note(moment, Sight::CallerRefused);
                moment.client(i).callers[number] = Caller::Gone;
                None
            }
            Output::Holder { turn, event } => {
                self.holder_event(moment, i, turn, &event);
                None
            }
            Output::Reply { reply, .. } => {
                moment.client(i).is_confirming = false;
                // A guest has a place on the terms of its keeper's callers.
                let mut callers = self.plan.clients.iter().flat_map(|callers| callers.iter());
                let has_time = callers.all(|it| terms(*it).deadline(Duration::ZERO) >= NEED);
                moment.cut_short |= has_time && matches!(reply, Reply::TooLong { .. });
                if reply == Reply::Unchangeable {
                    moment.client(i).set_shares(None);
                }
                None
            }
            Output::Report(report) => {
                match report {
                    Report::Lent { .. } => self.note(moment, Sight::GuestsTurn),
                    Report::Kept => self.note(moment, Sight::PlaceKept),
                    Report::KeptEnds(KeptEnd::Used) => self.note(moment, Sight::KeptPlaceUsed),
                    Report::Check(_)
                    | Report::Held
                    | Report::OutsidersWait
                    | Report::MarkAhead(_)
                    | Report::KeptEnds(_)
                    | Report::Swept { .. } => {}
                }
                None
            }
        }
    }

    /// A caller that has given up returns its turn at once.
    fn granted(&self, moment: &mut Moment, i: usize, granted: &Granted) -> Option<Input> {
        let Granted { caller, turn, lease, limit, origin, .. } = *granted;
        let number = usize::try_from(caller).expect("callers are few");
        let sight = match origin {
            Origin::Table => Sight::CallersTurn,
            Origin::Turn => Sight::NextTurn,
            Origin::Keeper => Sight::GuestTurn,
        };
        self.note(moment, sight);
        let plan = self.callers_of(i)[number];
        let until = moment.now_of(i).elapsed + TICK * plan.at_least;
        // The message of a keeper may be late; then the guest asks for more.
        moment.cut_short |= origin != Origin::Keeper && lease.deadline() < until;
        let is_taken = |(by, until): (usize, Ticks)| {
            moment.now < until && (by != i || plan.mode != Mode::Shared)
        };
        moment.freed_early |= moment.taken.is_some_and(is_taken);
        if plan.min_hold > 0 {
            moment.taken = Some((i, moment.now + plan.min_hold));
        }
        let client = moment.client(i);
        if client.callers[number] == Caller::Waiting {
            client.callers[number] = Caller::Inside { turn, lease, limit, shares: false };
            None
        } else {
            let request = HolderRequest::Return { request: None };
            Some(Input::Holder { turn, request })
        }
    }

    fn holder_event(&self, moment: &mut Moment, i: usize, turn: TurnId, event: &HolderEvent) {
        let client = moment.client(i);
        let Some(caller) = client.inside(turn) else {
            return;
        };
        match event {
            HolderEvent::Renewed(renewed) => {
                if let Caller::Inside { lease, .. } = caller {
                    *lease = *renewed;
                }
            }
            HolderEvent::Lost(_) => {
                *caller = Caller::Gone;
                self.note(moment, Sight::TurnLost);
            }
            HolderEvent::Expiring(_) => self.note(moment, Sight::AskedToFinish),
            HolderEvent::AtRisk { .. } | HolderEvent::AskWhetherCollected => {}
        }
    }
}

impl Moment {
    /// A client makes a request. What it asked before for the same slot is of no use any more.
    fn request(&mut self, i: usize, operation: Operation) {
        let slot = operation.slot;
        let operations = &mut self.client(i).operations;
        let superseded: Vec<_> = operations.extract_if(.., |it| it.slot == slot).collect();
        operations.push(operation);
        self.orphans.extend(superseded.into_iter().filter_map(Operation::into_write));
    }

    fn send(&mut self, from: usize, to: usize, content: Content) {
        if !self.clients[to].is_dead {
            self.frames.push(Frame { from, to, content, is_late: false });
        }
    }
}
