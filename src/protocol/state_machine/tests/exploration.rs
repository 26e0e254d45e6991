//! Three contenders of one object against a linearizable store, in thousands of random histories.
//!
//! Each operation takes effect at some moment after it was sent, mostly before it is answered;
//! fates are unknown, writes come late, contenders give up, fall asleep past their leases, and
//! clocks differ. Whatever happens: conflicting contenders never hold together, the queue is kept,
//! every contender is served in the end, and no row is left. A seed reproduces a history.

use std::collections::BTreeMap;

use super::super::super::admission::admits;
use super::super::super::row::row_name::{ENTERING, REVOKED, TICKETS};
use super::*;

#[test]
fn histories_in_fair_weather() {
    let tally = explore(1_000, FAIR);
    assert!(tally.served > 2_000 && tally.gave_up > 100 && tally.taken > 100, "{tally:?}");
    assert!(tally.renewed > 100 && tally.confirmed > 100 && tally.revoked > 50, "{tally:?}");
}

#[test]
fn histories_with_unknown_fates_and_late_writes() {
    let tally = explore(800, Weather { faults_in_100: 20, ..FAIR });
    assert!(tally.served > 1_500, "{tally:?}");
}

/// Requests take seconds, and locks are held for longer than a lease lasts.
#[test]
fn histories_of_renewals_and_sleepers() {
    let slow = Weather { latency_max: s(2), hold_max: s(60), ..FAIR };
    let tally = explore(400, Weather { faults_in_100: 2, ..slow });
    assert!(tally.renewed > 400 && tally.lost > 10, "{tally:?}");
    let tally = explore(400, Weather { faults_in_100: 10, sleeps_in_1000: 10, ..slow });
    assert!(tally.lost > 50 && tally.restarted > 20, "{tally:?}");
}

fn explore(histories: u64, weather: Weather) -> Tally {
    let histories = (0..histories).map(|seed| World::new(seed, weather).run());
    histories.fold(Tally::default(), Tally::plus)
}

/// How often what happened, lest the histories be dull.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    served: u32,
    gave_up: u32,
    taken: u32,
    renewed: u32,
    confirmed: u32,
    revoked: u32,
    lost: u32,
    restarted: u32,
}

/// How fast things go, and how often they go wrong.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// How long a request takes to the store, and its answer back.
    latency_max: Duration,
    hold_max: Duration,
    faults_in_100: u64,
    sleeps_in_1000: u64,
}

const FAIR: Weather =
    Weather { latency_max: ms(8), hold_max: ms(50), faults_in_100: 0, sleeps_in_1000: 0 };

impl Tally {
    fn plus(self, other: Tally) -> Self {
        Tally {
            served: self.served + other.served,
            gave_up: self.gave_up + other.gave_up,
            taken: self.taken + other.taken,
            renewed: self.renewed + other.renewed,
            confirmed: self.confirmed + other.confirmed,
            revoked: self.revoked + other.revoked,
            lost: self.lost + other.lost,
            restarted: self.restarted + other.restarted,
        }
    }
}

struct World {
    seed: u64,
    weather: Weather,
    chance: Chance,
    now: Duration,
    store: Store,
    peers: Vec<Peer>,
    flights: Vec<Flight>,
    tally: Tally,
}

/// A contender, and what its caller wants.
struct Peer {
    contender: StateMachine,
    id: ContenderId,
    mode: Mode,
    /// How far its wall clock is off, in µs.
    clock_offset: i64,
    last_stamp: i64,
    asleep_until: Duration,
    /// The contender's deadline.
    wakes_at: Option<Duration>,
    acquisitions_left: u32,
    /// When its caller wants it next, to begin or to end.
    acts_at: Option<Duration>,
    last_op: Option<OpId>,
    round: Option<Round>,
    /// While it holds: until when without renewal.
    lease: Option<Lease>,
    /// What became of the acquisition.
    ended: Option<End>,
}

/// What the others have to respect of a contender that wants in.
struct Round {
    number: i64,
    announced: Duration,
    ticket_acknowledged: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Served,
    GaveUp,
    Taken,
    Revoked,
}

/// A request on its way.
struct Flight {
    peer: usize,
    op: OpId,
    request: Request,
    /// When it takes effect, unless it never does or has.
    takes_effect: Option<Duration>,
    /// When its answer arrives, unless that has.
    answered: Option<Duration>,
    answer: Input,
}

enum Request {
    Write(Write),
    Read(Read),
}

/// What happens next.
#[derive(Clone, Copy)]
enum Step {
    TakeEffect(usize),
    Answer(usize),
    Wake(usize),
    Act(usize),
}

impl World {
    fn new(seed: u64, weather: Weather) -> Self {
        let mut chance = Chance::new(seed);
        let modes = match chance.below(6) {
            0 => [Mode::Shared, Mode::Shared, Mode::Exclusive],
            1 => [Mode::Limited(1), Mode::Limited(1), Mode::Limited(1)],
            2 => [Mode::Limited(2), Mode::Limited(2), Mode::Limited(2)],
            3 => [Mode::Limited(2), Mode::Exclusive, Mode::Limited(2)],
            _ => [Mode::Exclusive; 3],
        };
        let peers = (1..).zip(modes).map(|(host, mode)| Peer {
            contender: StateMachine::new(id(host)),
            id: id(host),
            mode,
            clock_offset: i64::try_from(chance.below(10_000_000)).expect("ten seconds fit"),
            last_stamp: 0,
            asleep_until: Duration::ZERO,
            wakes_at: None,
            acquisitions_left: 2,
            acts_at: Some(s(1_000) + chance.up_to(ms(20))),
            last_op: None,
            round: None,
            lease: None,
            ended: None,
        });
        let peers = peers.collect();
        World {
            seed,
            weather,
            chance,
            now: s(1_000),
            store: Store::default(),
            peers,
            flights: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn run(mut self) -> Tally {
        for _ in 0..20_000 {
            let Some((due, step)) = self.next_step() else {
                self.check_end();
                return self.tally;
            };
            self.now = self.now.max(due);
            self.take(step);
        }
        panic!("a contender is never served");
    }

    fn next_step(&self) -> Option<(Duration, Step)> {
        let flights = self.flights.iter().enumerate().flat_map(|(i, flight)| {
            let awake = self.peers[flight.peer].asleep_until;
            let effect = flight.takes_effect.map(|due| (due, Step::TakeEffect(i)));
            let answer = flight.answered.map(|due| (due.max(awake), Step::Answer(i)));
            [effect, answer]
        });
        let peers = self.peers.iter().enumerate().flat_map(|(i, peer)| {
            let wake = peer.wakes_at.map(|due| (due, Step::Wake(i)));
            let act = peer.acts_at.map(|due| (due, Step::Act(i)));
            [wake, act].map(|step| step.map(|(due, step)| (due.max(peer.asleep_until), step)))
        });
        flights.chain(peers).flatten().min_by_key(|(due, _)| *due)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::TakeEffect(flight) => self.take_effect(flight),
            Step::Answer(flight) => self.answer(flight),
            Step::Wake(peer) => self.tell(peer, Input::Tick),
            Step::Act(peer) => self.act(peer),
        }
        self.flights.retain(|flight| flight.takes_effect.is_some() || flight.answered.is_some());
    }

    // The caller of a contender.

    fn act(&mut self, index: usize) {
        if self.chance.happens(20, 100) {
            self.revoke((index + 1) % self.peers.len());
        }
        let peer = &mut self.peers[index];
        peer.acts_at = None;
        if peer.lease.is_some() && self.chance.happens(30, 100) {
            let ask = if self.chance.happens(50, 100) { Input::Renew } else { Input::Confirm };
            peer.acts_at = Some(self.now + self.chance.up_to(self.weather.hold_max));
            return self.tell(index, ask);
        }
        if !peer.contender.is_idle() {
            // Before it was let in, this is giving up.
            self.tally.gave_up += u32::from(peer.ended.is_none());
            peer.ended = peer.ended.or(Some(End::GaveUp));
            peer.lease = None;
            return self.tell(index, Input::Release);
        }
        peer.ended = None;
        peer.acquisitions_left -= 1;
        let mode = peer.mode;
        let patience = if self.chance.happens(20, 100) { Patience::Try } else { Patience::Wait };
        let renew = self.chance.happens(80, 100);
        if self.chance.happens(15, 100) {
            self.peers[index].acts_at =
                Some(self.now + self.chance.up_to(self.weather.hold_max * 2));
        }
        let acquire = Acquire { mode, patience, renew, ..exclusive() };
        self.tell(index, Input::Acquire(acquire));
    }

    /// Asks a contender to leave, if it is there.
    fn revoke(&mut self, index: usize) {
        let (contender, clock) = (self.peers[index].id, self.now);
        let key = (ENTERING, contender);
        let Some(Cell { stamp, live: Some((row, _)) }) = self.store.cells.get(&key) else {
            return;
        };
        let round = row.round.expect("rows are written whole");
        let revocation = Revocation { contender, ..revocation(round) };
        let change = Change::Revoke { revocation, ttl_seconds: 120 };
        let write = Write { stamp: stamp + 1, change };
        self.store.write(clock, &write);
    }

    fn tell(&mut self, index: usize, input: Input) {
        if self.chance.happens(self.weather.sleeps_in_1000, 1_000) {
            self.peers[index].asleep_until = self.now + self.chance.up_to(s(100));
        }
        let jitter = f64::from(u32::try_from(self.chance.below(100)).expect("small")) / 100.0;
        let peer = &mut self.peers[index];
        let micros = i64::try_from(self.now.as_micros()).expect("the test does not run for ages");
        peer.last_stamp = (peer.last_stamp + 1).max(micros + peer.clock_offset);
        let now = Now { elapsed: self.now, stamp: peer.last_stamp, jitter };
        peer.contender.handle(now, input);
        peer.wakes_at = peer.contender.deadline();
        while let Some(output) = self.peers[index].contender.poll() {
            match output {
                Output::Write { op, write } => self.send(index, op, Request::Write(write)),
                Output::Read { op, read } => self.send(index, op, Request::Read(read)),
                Output::Event(event) => self.event(index, &event),
            }
        }
    }

    fn event(&mut self, index: usize, event: &Event) {
        let peer = &mut self.peers[index];
        match event {
            Event::Held { lease, .. } => {
                peer.lease = Some(*lease);
                peer.ended = Some(End::Served);
                self.tally.served += 1;
                peer.acts_at = Some(self.now + self.chance.up_to(self.weather.hold_max));
                self.check_exclusion();
                self.check_queue(index);
            }
            Event::Renewed { lease } => {
                peer.lease = Some(*lease);
                self.tally.renewed += 1;
            }
            Event::Confirmed => {
                assert!(peer.lease.is_some(), "what is not held was confirmed");
                self.tally.confirmed += 1;
            }
            Event::Taken => {
                peer.ended = Some(End::Taken);
                self.tally.taken += 1;
            }
            Event::Lost(Loss::Expired) => {
                peer.lease = None;
                self.tally.lost += 1;
            }
            Event::Lost(Loss::Revoked(_)) => {
                peer.lease = None;
                self.tally.revoked += 1;
            }
            Event::Failed(Failure::Revoked(_)) => {
                peer.ended = Some(End::Revoked);
                self.tally.revoked += 1;
            }
            Event::Released => {
                assert_ne!(peer.ended, None, "a contender was sent away without being served");
                let again = peer.acquisitions_left > 0;
                peer.acts_at = again.then(|| self.now + self.chance.up_to(ms(20)));
            }
            Event::Failed(Failure::RowMissing | Failure::Rejected | Failure::NoTicketLeft)
            | Event::Lost(Loss::RowMissing | Loss::Conflict { .. }) => {
                panic!("{event:?} although the store loses nothing");
            }
        }
    }

    // The way to the store and back.

    fn send(&mut self, index: usize, op: OpId, request: Request) {
        let peer = &mut self.peers[index];
        peer.last_op = Some(op);
        let round = &mut peer.round;
        match &request {
            Request::Write(Write { change: Change::Put { claim, .. }, .. }) => {
                if round.as_ref().is_none_or(|round| round.number != claim.round) {
                    let (number, announced) = (claim.round, self.now);
                    *round = Some(Round { number, announced, ticket_acknowledged: None });
                }
            }
            Request::Write(Write { change: Change::Revoke { .. }, .. }) => {
                unreachable!("a contender revokes no other")
            }
            Request::Write(Write { change: Change::Delete { .. }, .. }) => {
                self.tally.restarted += u32::from(round.is_some() && peer.ended.is_none());
                *round = None;
            }
            Request::Read(_) => {}
        }
        let flight = self.fate(index, op, request);
        self.flights.push(flight);
    }

    /// Decides what will become of a request.
    fn fate(&mut self, peer: usize, op: OpId, request: Request) -> Flight {
        let slowly = self.chance.happens(self.weather.faults_in_100, 200);
        let longest = if slowly { s(1) } else { ms(0) }.max(self.weather.latency_max);
        let effect = self.now + self.chance.up_to(longest);
        let answered = effect + self.chance.up_to(longest);
        let fault = self.chance.happens(self.weather.faults_in_100, 100);
        let (takes_effect, answer) = match &request {
            Request::Read(_) if fault => (None, Input::Read { op, rows: Err(ReadFailure::Failed) }),
            // What it shows is filled in when it takes effect.
            Request::Read(_) => (Some(effect), Input::Read { op, rows: Ok(Vec::new()) }),
            Request::Write(_) => {
                let (outcome, takes_effect) = match self.chance.below(4) {
                    _ if !fault => (WriteOutcome::Applied, Some(effect)),
                    0 => (WriteOutcome::NotApplied, None),
                    1 => (WriteOutcome::Unknown, None),
                    2 => (WriteOutcome::Unknown, Some(effect)),
                    _ => {
                        let late = self.now + self.chance.up_to(TIME_IN_FLIGHT - s(1));
                        (WriteOutcome::Unknown, Some(late))
                    }
                };
                (takes_effect, Input::Written { op, outcome })
            }
        };
        Flight { peer, op, request, takes_effect, answered: Some(answered), answer }
    }

    fn take_effect(&mut self, index: usize) {
        // Nodes' clocks differ by the bound of a second at most.
        let clock = self.now - ms(500) + self.chance.up_to(SKEW);
        let flight = &mut self.flights[index];
        flight.takes_effect = None;
        match &flight.request {
            Request::Write(write) => self.store.write(clock, write),
            Request::Read(read) => {
                let rows = Ok(self.store.read(clock, *read));
                flight.answer = Input::Read { op: flight.op, rows };
            }
        }
    }

    fn answer(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        flight.answered = None;
        let (peer, op, answer) = (flight.peer, flight.op, flight.answer.clone());
        let applied = matches!(answer, Input::Written { outcome: WriteOutcome::Applied, .. });
        let drew = match &flight.request {
            Request::Write(Write { change: Change::Put { claim, .. }, .. }) => {
                claim.ticket.is_some()
            }
            Request::Write(_) | Request::Read(_) => false,
        };
        let current = self.peers[peer].last_op == Some(op);
        if let Some(round) = &mut self.peers[peer].round
            && (applied && drew && current)
        {
            round.ticket_acknowledged.get_or_insert(self.now);
        }
        self.tell(peer, answer);
    }

    // What must be true.

    fn check_exclusion(&self) {
        let inside = self.peers.iter().filter(|peer| peer.is_inside(self.now));
        let inside: Vec<_> = inside.map(|peer| (peer.id.host, peer.mode)).collect();
        for &(host, mode) in &inside {
            let others = inside.iter().filter(|(other, _)| *other != host);
            let others = others.filter(|(_, other)| (mode, *other) != (Mode::Shared, Mode::Shared));
            assert!(admits(mode, others.map(|(_, mode)| Some(*mode))), "{inside:?} are all inside");
        }
    }

    /// A contender whose ticket was acknowledged before `index` was announced is let in before it.
    fn check_queue(&self, index: usize) {
        let served = &self.peers[index];
        let announced = served
            .round
            .as_ref()
            .expect("a contender that is let in has announced itself")
            .announced;
        for other in &self.peers {
            let Some(round) = &other.round else { continue };
            let first = round.ticket_acknowledged.is_some_and(|ticket| ticket < announced);
            let waits = other.ended.is_none() && self.store.has(self.now, other.id, round.number);
            let together = other.mode == served.mode && served.mode != Mode::Exclusive;
            assert!(
                !(first && waits) || together,
                "{:?} was let in before {:?}",
                served.id,
                other.id
            );
        }
    }

    fn check_end(&self) {
        for peer in &self.peers {
            assert!(peer.contender.is_idle());
            assert_eq!(peer.acquisitions_left, 0);
        }
        let mut left = self.store.read(self.now, Read::Object);
        // Of one that left before it knew, such a row stays for a TTL, and names no contender.
        left.retain(|row| row.row_name != REVOKED);
        assert_eq!(left, [], "rows are left");
    }
}

impl Peer {
    fn is_inside(&self, now: Duration) -> bool {
        self.lease.is_some_and(|lease| lease.is_valid(now))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was seed {} in {:?}", self.seed, self.weather);
        }
    }
}

/// The rows of one object, with stamps and TTLs as Cassandra treats them.
#[derive(Default)]
struct Store {
    cells: BTreeMap<(&'static str, ContenderId), Cell>,
}

struct Cell {
    stamp: i64,
    /// The row and when it is over, unless it was deleted.
    live: Option<(StoredRow, Duration)>,
}

impl Store {
    fn write(&mut self, clock: Duration, write: &Write) {
        let stamp = write.stamp;
        match &write.change {
            Change::Put { claim, ttl_seconds } => {
                for row in rows_of(claim) {
                    let name = if row.ticket.is_some() { TICKETS } else { ENTERING };
                    let live = Some((row, over(clock, *ttl_seconds)));
                    self.set((name, claim.contender), Cell { stamp, live });
                }
            }
            Change::Revoke { revocation, ttl_seconds } => {
                let row = StoredRow::revoked(revocation);
                let live = Some((row, over(clock, *ttl_seconds)));
                self.set((REVOKED, revocation.contender), Cell { stamp, live });
            }
            Change::Delete { contender, .. } => {
                for name in write.change.deleted_rows() {
                    self.set((name, *contender), Cell { stamp, live: None });
                }
            }
        }
    }

    /// The higher stamp wins; of equal ones a delete, then the longer life.
    fn set(&mut self, key: (&'static str, ContenderId), cell: Cell) {
        let order = |cell: &Cell| {
            let over = cell.live.as_ref().map(|(_, over)| *over);
            (cell.stamp, over.is_none(), over)
        };
        let stale = self.cells.get(&key).is_some_and(|before| order(before) > order(&cell));
        if !stale {
            self.cells.insert(key, cell);
        }
    }

    fn read(&self, clock: Duration, read: Read) -> Vec<StoredRow> {
        let asked = |row: &StoredRow| match read {
            Read::Object => true,
            Read::Contender(contender) => row.contender == contender,
            Read::Entering(contender) => row.contender == contender && row.row_name == ENTERING,
        };
        let live = self.cells.values().filter_map(|cell| cell.live.as_ref());
        let live = live.filter(|(_, over)| clock < *over).map(|(row, _)| row);
        live.filter(|row| asked(row)).cloned().collect()
    }

    /// Whether every clock agrees that a contender's round is there.
    fn has(&self, now: Duration, contender: ContenderId, round: i64) -> bool {
        let rows = self.read(now + SKEW, Read::Entering(contender));
        rows.iter().any(|row| row.round == Some(round))
    }
}

/// When a row is over, in whole seconds as Cassandra counts them.
fn over(clock: Duration, ttl_seconds: i32) -> Duration {
    s(clock.as_secs()) + s(u64::try_from(ttl_seconds).expect("it is positive"))
}

/// A generator of random numbers: xorshift64*, by S. Vigna.
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        // The state must not be zero, and neighbours should not look alike.
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.below(1);
        chance.below(1);
        chance
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }

    fn happens(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).expect("the test does not run for ages");
        Duration::from_nanos(nanos / 1_000 * self.below(1_000))
    }
}
