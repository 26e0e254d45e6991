//! Requests and their messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, oneshot};

use super::coordinator::Coordination;
use super::geography::Geography;
use super::harm::Harm;
use super::node::{Ask, Lost, Node, Order, Seen};
use super::record::{LossRecord, WriteKind, WriteRecord};
use super::{Conditions, Cut, Replicas};
use crate::core::bakery::{Change, LastRelease, Read, row_name};
use crate::store::memory::peers::Peers;
use crate::store::memory::{MANY_DEAD, REPLICAS};
use crate::store::{DatabaseError, HostRow, Outcome, TimedRow};

/// A client gives up a request after this time, like the real one.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The probability that a message on a cut link, or to a replica that is down, is kept for later
/// instead of lost.
const KEPT: f64 = 0.3;

/// The pending answers of a quorum.
pub(super) type Answers = oneshot::Receiver<Result<Vec<Seen>, DatabaseError>>;

/// The replicas, and the messages in flight.
pub(super) struct Network {
    pub(super) rng: StdRng,
    quorum: usize,
    pub(super) conditions: Conditions,
    /// With more dead rows than this a read warns of them.
    pub(super) many_dead: usize,
    /// Whether nodes write and read in one round trip.
    pub(super) exchanges: bool,
    /// Where nodes are, if that decides how long messages take, instead of chance.
    pub(super) geography: Option<Arc<Geography>>,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) hosts: Vec<HostRow>,
    pub(super) peers: Peers,
    pub(super) records: Vec<WriteRecord>,
    pub(super) losses: Vec<LossRecord>,
    pub(super) ambushes: Vec<Ambush>,
    pub(super) harm: Harm,
    /// The client number of each client id in the rows and messages.
    numbers: BTreeMap<u128, usize>,
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) last_request: u64,
    /// Events by time, in random order at the same time.
    events: BTreeMap<(Duration, u64), Event>,
}

/// What the network knows of a client.
pub(super) struct Client {
    cuts: [Cut; REPLICAS],
    pub(super) zone: usize,
    pub(super) wall_error: Arc<AtomicI64>,
    /// Whether the registry answers it.
    pub(super) registry_answers: bool,
}

/// Rows that are lost when a client renews them.
pub(super) struct Ambush {
    object: String,
    client: usize,
    /// How much later the renewal reaches the replicas.
    held_up: Duration,
}

/// Who waits for the answers of a quorum.
type Reply = oneshot::Sender<Result<Vec<Seen>, DatabaseError>>;

/// A pending request.
pub(super) struct Request {
    pub(super) client: usize,
    reply: Reply,
    fails: Duration,
    pub(super) seen: Vec<Seen>,
    /// Which replicas have answered, in the order of `seen`.
    pub(super) answered: Vec<usize>,
    /// How many answers complete it.
    pub(super) needed: usize,
    /// When the answers arrive that may still arrive.
    pub(super) expected: Vec<Duration>,
    record: Option<usize>,
    /// What its coordinator knows of it, if it has one.
    pub(super) coordination: Option<Coordination>,
}

pub(super) enum Event {
    /// A message reaches a replica; its answer, if not lost, arrives at `answer`.
    Arrives { request: u64, replica: usize, order: Arc<Order>, answer: Option<Duration> },
    /// An answer reaches the client, or the coordinator.
    Answered { request: u64, replica: usize, seen: Seen },
    /// The answer of the coordinator reaches the client.
    Replied { reply: Reply, seen: Vec<Seen> },
    /// The client gives up the request, or learns that it failed.
    Fails { request: u64, outcome: Outcome },
    /// Rows of a client are lost.
    Loses { object: String, client: usize },
}

impl Network {
    pub(super) fn new(
        seed: u64,
        replicas: Replicas,
        conditions: Conditions,
        hosts: &[String],
    ) -> Self {
        Network {
            rng: StdRng::seed_from_u64(seed),
            quorum: replicas.quorum,
            conditions,
            many_dead: MANY_DEAD,
            exchanges: false,
            geography: None,
            nodes: replicas.ahead.into_iter().map(Node::new).collect(),
            clients: Vec::new(),
            hosts: registered(hosts),
            peers: Peers::default(),
            records: Vec::new(),
            losses: Vec::new(),
            ambushes: Vec::new(),
            harm: Harm::default(),
            numbers: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            events: BTreeMap::new(),
        }
    }

    /// A network without faults, on which messages take their time.
    pub(super) fn with_geography(seed: u64, geography: Arc<Geography>, hosts: &[String]) -> Self {
        let replicas = Replicas { quorum: geography.quorum(), ahead: [ZERO; REPLICAS] };
        let nodes = geography.replicas.iter().map(|_| Node::new(ZERO)).collect();
        let network = Network::new(seed, replicas, Conditions::CALM, hosts);
        Network { nodes, geography: Some(geography), ..network }
    }

    /// Connects a client. Returns its number, and the `Notify` for its requests.
    pub(super) fn connect(&mut self, wall_error: Arc<AtomicI64>) -> (usize, Arc<Notify>) {
        let cuts = [Cut::default(); REPLICAS];
        self.clients.push(Client { cuts, zone: 0, wall_error, registry_answers: true });
        (self.clients.len() - 1, Arc::new(Notify::new()))
    }

    pub(super) fn set_cut(&mut self, client: usize, replica: usize, cut: Cut) {
        self.clients[client].cuts[replica] = cut;
    }

    /// Takes a request of a client, and sends its messages.
    pub(super) fn send(
        &mut self,
        client: usize,
        now: Duration,
        object: &str,
        ask: Ask<'_>,
    ) -> Answers {
        self.last_request += 1;
        let (reply, answers) = oneshot::channel();
        let request = Request {
            client,
            reply,
            fails: now + REQUEST_TIMEOUT,
            seen: Vec::new(),
            answered: Vec::new(),
            needed: if matches!(ask, Ask::OneReplica) { 1 } else { self.quorum },
            expected: Vec::new(),
            record: self.note(client, now, object, ask),
            coordination: None,
        };
        self.requests.insert(self.last_request, request);
        if let Some(geography) = self.geography.clone() {
            self.coordinate(&geography, now, object, ask);
            return answers;
        }
        let held_up = self.renewal_held_up(client, now, object);
        if self.happens(self.conditions.refused, "requests refused") {
            let told = now + self.latency();
            self.fail(self.last_request, told, Outcome::NotApplied);
        } else {
            self.deliver(client, now, held_up, object, ask);
        }
        answers
    }

    /// The time of the next event.
    pub(super) fn next_event(&self) -> Option<Duration> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn process_next(&mut self) {
        let Some(((now, _), event)) = self.events.pop_first() else {
            return;
        };
        match event {
            Event::Arrives { request, replica, order, answer } => {
                self.arrive(now, request, replica, &order, answer);
            }
            Event::Answered { request, replica, seen } => {
                self.answered(now, request, replica, seen);
            }
            Event::Replied { reply: to, seen } => reply(to, seen),
            Event::Loses { object, client } => self.lose_rows(now, &object, client),
            Event::Fails { request, outcome } => {
                if let Some(failed) = self.requests.remove(&request) {
                    // The client may have stopped waiting.
                    let _ = failed.reply.send(Err(DatabaseError::new(outcome, "simulated")));
                }
            }
        }
    }

    /// The time before which a client certainly gets no answer.
    pub(super) fn horizon(&self, client: usize) -> Option<Duration> {
        let own = self.requests.values().filter(|request| request.client == client);
        own.map(Request::earliest).min()
    }

    /// Stops a replica, which forgets all writes after `synced`.
    pub(super) fn crash(&mut self, replica: usize, synced: Duration) {
        let node = &mut self.nodes[replica];
        node.is_up = false;
        let forgotten = node.forget(synced);
        if forgotten > 0 {
            self.harm.count("writes forgotten", forgotten as u64);
        }
    }

    /// Notes the number of a client with this id.
    pub(super) fn know(&mut self, client: u128, number: usize) {
        self.numbers.insert(client, number);
    }

    /// The id of the client with this number, if it has written a row or joined the others.
    pub(super) fn id_of(&self, number: usize) -> Option<u128> {
        let mut known = self.numbers.iter();
        known.find(|(_, of)| **of == number).map(|(client, _)| *client)
    }

    /// The number of the client with this id, if it has written a row or joined the others.
    pub(super) fn number_of(&self, client: u128) -> Option<usize> {
        self.numbers.get(&client).copied()
    }

    /// The rows that some quorum shows: the client and the name of each.
    pub(super) fn rows(&self, object: &str, now: Duration) -> BTreeSet<(usize, String)> {
        let shown: Vec<_> = self.nodes.iter().map(|n| n.seen(object, Read::Object, now)).collect();
        let pairs = (0..REPLICAS).flat_map(|first| (0..first).map(move |other| (first, other)));
        let rows =
            pairs.flat_map(|(a, b)| Seen::merge([&shown[a], &shown[b]].map(Clone::clone)).live());
        let name = |TimedRow { row, .. }| (self.numbers[&row.contender.client], row.row_name);
        rows.map(name).collect()
    }

    // Loss of rows.

    pub(super) fn lose_rows(&mut self, now: Duration, object: &str, client: usize) {
        let shown = self.nodes.iter().flat_map(|node| node.seen(object, Read::Object, now).rows);
        let keys = shown.map(|seen| seen.key).filter(|(name, contender)| {
            name == row_name::ENTERING && self.number_of(contender.client) == Some(client)
        });
        let keys = keys.collect();
        self.lose(now, object, Lost::Rows(keys), "rows lost");
    }

    pub(super) fn truncate(&mut self, now: Duration, object: &str) {
        self.lose(now, object, Lost::Object, "objects truncated");
    }

    // Values that one client writes and others compare.

    pub(super) fn raise_mark(&mut self, now: Duration, object: &str, mark: i64) {
        self.order_all(now, |_| Order::raise_mark(object, mark));
    }

    pub(super) fn raise_fence(&mut self, now: Duration, object: &str, value: i64) {
        self.order_all(now, |clock| Order::raise_fence(object, value, clock));
    }

    /// Notes that a client has left, in the round that its rows state now; if it has none, nothing.
    pub(super) fn note_release(
        &mut self,
        now: Duration,
        object: &str,
        client: usize,
        (handoff, stamp): (Duration, i64),
    ) {
        let shown = self.nodes.iter().flat_map(|node| node.seen(object, Read::Object, now).rows);
        let of_client = shown.filter(|seen| self.number_of(seen.key.1.client) == Some(client));
        let rounds = of_client.filter_map(|seen| {
            let row = seen.cell.row?;
            Some((row.contender.client, row.round?))
        });
        if let Some((client, round)) = rounds.max_by_key(|(_, round)| *round) {
            let last = LastRelease { client, round, handoff, stamp };
            self.order_all(now, |clock| Order::note_release(object, last, clock));
        }
    }

    /// Gives all nodes an order, each by its own clock.
    fn order_all(&mut self, now: Duration, order: impl Fn(Duration) -> Order) {
        for node in &mut self.nodes {
            let order = Arc::new(order(node.clock(now)));
            node.perform(now, &order);
        }
    }

    pub(super) fn lose_rows_at_renewal(&mut self, object: &str, client: usize, held_up: Duration) {
        self.ambushes.push(Ambush { object: object.to_owned(), client, held_up });
    }

    fn lose(&mut self, now: Duration, object: &str, lost: Lost, harm: &'static str) {
        let order = Arc::new(Order::lose(object, lost));
        let lost = self.nodes.iter_mut().flat_map(|node| node.lose(now, &order));
        let lost: BTreeSet<_> = lost.collect();
        if !lost.is_empty() {
            self.harm.count(harm, 1);
        }
        for (row_name, contender) in lost {
            let (client, object) = (self.numbers[&contender.client], object.to_owned());
            self.losses.push(LossRecord { client, object, row_name, at: now });
        }
    }

    /// How long the request just noted is held up, if its client is to lose rows at a renewal.
    fn renewal_held_up(&mut self, client: usize, now: Duration, object: &str) -> Duration {
        let waits = |ambush: &Ambush| ambush.client == client && ambush.object == object;
        let Some(place) = self.ambushes.iter().position(waits) else {
            return ZERO;
        };
        if !self.is_renewal() {
            return ZERO;
        }
        let Ambush { object, held_up, .. } = self.ambushes.swap_remove(place);
        self.harm.count("rows lost at a renewal", 1);
        // Other clients have not reached this time yet.
        self.schedule(now, Event::Loses { object, client });
        held_up
    }

    /// Whether the request just noted is the first attempt of a renewal: the same rows were
    /// acknowledged before.
    fn is_renewal(&mut self) -> bool {
        let Some(number) = self.open_request().record else {
            return false;
        };
        let (before, now) = (&self.records[..number], &self.records[number]);
        let WriteKind::Put { round, ticket, .. } = now.kind else {
            return false;
        };
        let own = before.iter().filter(|write| {
            (write.client, &write.object) == (now.client, &now.object)
                && matches!(write.kind, WriteKind::Put { round: of, ticket: with, .. }
                    if (of, with) == (round, ticket))
        });
        let is_first_try = own.clone().all(|write| write.stamp != now.stamp);
        is_first_try && own.into_iter().any(|write| write.acknowledged.is_some())
    }

    // Delivery of requests.

    fn note(&mut self, client: usize, now: Duration, object: &str, ask: Ask<'_>) -> Option<usize> {
        let (Ask::Write(write) | Ask::Exchange(write, _)) = ask else {
            return None;
        };
        match &write.change {
            // They are writes of no contender.
            Change::Mark => return None,
            Change::Sweep { .. } => {
                self.harm.count("objects swept", 1);
                return None;
            }
            Change::Put { claim, .. } => self.know(claim.contender.client, client),
            // Rows of its own that it was about to write: the caller left just then.
            Change::Delete { contender, .. } if !self.numbers.contains_key(&contender.client) => {
                self.know(contender.client, client);
            }
            Change::Delete { .. } | Change::Revoke { .. } => {}
        }
        self.records.push(WriteRecord::new(client, object, now, write, &self.numbers));
        Some(self.records.len() - 1)
    }

    fn deliver(
        &mut self,
        client: usize,
        now: Duration,
        held_up: Duration,
        object: &str,
        ask: Ask<'_>,
    ) {
        let is_write = matches!(ask, Ask::Write(_) | Ask::Exchange(..) | Ask::WriteFence(_));
        let is_queued = self.happens(self.conditions.queued, "requests queued");
        let coordinated =
            now + held_up + if is_queued { self.up_to(self.conditions.queued_for) } else { ZERO };
        let coordinator = self.rng.random_range(0..REPLICAS);
        let clock = self.nodes[coordinator].clock(coordinated);
        let order = Arc::new(Order::new(object, ask, clock));
        let fails_early = self.happens(self.conditions.unknown, "outcomes unknown");
        for replica in 0..REPLICAS {
            let Some(there) = self.way_there(client, replica, is_write) else {
                continue;
            };
            let arrives = coordinated + there;
            let back = if fails_early { None } else { self.way_back(client, replica) };
            let answer = back.map(|back| arrives + back);
            let request = self.last_request;
            self.open_request().expected.extend(answer);
            self.schedule(
                arrives,
                Event::Arrives { request, replica, order: order.clone(), answer },
            );
        }
        let fails = if fails_early { now + self.up_to(999) } else { now + REQUEST_TIMEOUT };
        self.fail(self.last_request, fails, Outcome::Unknown);
    }

    pub(super) fn open_request(&mut self) -> &mut Request {
        self.requests.get_mut(&self.last_request).expect("it was made a moment ago")
    }

    pub(super) fn fail(&mut self, request: u64, at: Duration, outcome: Outcome) {
        self.open_request().fails = at;
        self.schedule(at, Event::Fails { request, outcome });
    }

    /// How long a message to a replica takes, if it arrives at all.
    fn way_there(&mut self, client: usize, replica: usize, is_write: bool) -> Option<Duration> {
        let Conditions { late, late_by, lost, .. } = self.conditions;
        if self.clients[client].cuts[replica].requests {
            self.harm.count("messages cut off", 1);
            let is_kept = is_write && self.rng.random_bool(KEPT);
            return is_kept.then(|| self.up_to(late_by));
        }
        if self.happens(lost, "messages lost") {
            return None;
        }
        let is_late = is_write && self.happens(late, "writes late");
        Some(if is_late { self.up_to(late_by) } else { self.latency_of(replica) })
    }

    fn way_back(&mut self, client: usize, replica: usize) -> Option<Duration> {
        if self.clients[client].cuts[replica].answers {
            self.harm.count("messages cut off", 1);
            return None;
        }
        if self.happens(self.conditions.lost, "messages lost") {
            return None;
        }
        Some(self.latency_of(replica))
    }

    fn arrive(
        &mut self,
        now: Duration,
        request: u64,
        replica: usize,
        order: &Arc<Order>,
        answer: Option<Duration>,
    ) {
        let node = &mut self.nodes[replica];
        if !node.is_up {
            self.harm.count("messages to a dead replica", 1);
            self.expect_no_more(request, answer);
            if order.writes() && self.rng.random_bool(KEPT) {
                let later = now + self.up_to(self.conditions.late_by.max(1_000));
                let order = Arc::clone(order);
                self.schedule(later, Event::Arrives { request, replica, order, answer: None });
            }
            return;
        }
        let seen = node.perform(now, order);
        if let Some(at) = answer {
            self.schedule(at, Event::Answered { request, replica, seen });
        }
    }

    fn expect_no_more(&mut self, request: u64, answer: Option<Duration>) {
        if let (Some(open), Some(at)) = (self.requests.get_mut(&request), answer) {
            let expected = open.expected.iter().position(|expected| *expected == at);
            open.expected.swap_remove(expected.expect("an answer is expected once it is sent"));
        }
    }

    fn answered(&mut self, now: Duration, request: u64, replica: usize, seen: Seen) {
        self.expect_no_more(request, Some(now));
        let Some(open) = self.requests.get_mut(&request) else {
            return;
        };
        open.seen.push(seen);
        open.answered.push(replica);
        let is_answered = open.seen.len() >= open.needed;
        if is_answered && !self.goes_on(now, request) {
            self.complete(now, request);
        }
    }

    /// Completes a request that a quorum has answered.
    fn complete(&mut self, now: Duration, request: u64) {
        let done = self.requests.remove(&request).expect("it was there a moment ago");
        if let Some(record) = done.record {
            self.records[record].acknowledged = Some(now);
        }
        match self.way_to_client(&done) {
            Some(way) => {
                self.schedule(now + way, Event::Replied { reply: done.reply, seen: done.seen });
            }
            None => reply(done.reply, done.seen),
        }
    }

    // Randomness.

    fn happens(&mut self, probability: f64, kind: &'static str) -> bool {
        self.harm.happens(&mut self.rng, probability, kind)
    }

    fn latency(&mut self) -> Duration {
        self.up_to(self.conditions.latency)
    }

    fn latency_of(&mut self, replica: usize) -> Duration {
        self.latency() + Duration::from_millis(self.nodes[replica].slow_by)
    }

    fn up_to(&mut self, milliseconds: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(1..=milliseconds))
    }

    pub(super) fn schedule(&mut self, at: Duration, event: Event) {
        // Two events don't get the same key in any run that ends.
        self.events.insert((at, self.rng.random()), event);
    }
}

const ZERO: Duration = Duration::ZERO;

fn reply(to: Reply, seen: Vec<Seen>) {
    // The client may have stopped waiting.
    let _ = to.send(Ok(seen));
}

impl Request {
    /// The time before which it is certainly not answered.
    fn earliest(&self) -> Duration {
        let mut expected = self.expected.clone();
        expected.sort_unstable();
        let completing = expected.get(self.needed - self.seen.len() - 1);
        completing.map_or(self.fails, |completing| self.fails.min(*completing))
    }
}

/// The hosts of a simulation, numbered in their order.
fn registered(hosts: &[String]) -> Vec<HostRow> {
    let row = |(name, number): (&String, i32)| HostRow {
        name: name.clone(),
        number,
        added_at_millis: 0,
        removed_at_millis: None,
        seen_at_millis: None,
        stamp: 1,
    };
    hosts.iter().zip(1..).map(row).collect()
}
