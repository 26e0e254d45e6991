//! Three replicas and the network to them, nastier than a cluster, for simulations.
//!
//! Each message between a client and a replica is independent: it arrives soon, late or never. A
//! write is acknowledged when a quorum of replicas has it, and may or may not reach the others; a
//! read merges the first quorum of answers, given at different moments. Only new writes repair
//! replicas. Links can be cut; replicas can be slow, be down, or forget unsynced writes. Rows
//! expire by the replicas' clocks, which differ.
//!
//! Peers also send each other messages: see [`messages`].
//!
//! A cluster with a [`Geography`] is for predictions instead: nothing fails there, its messages
//! take as long as its zones are apart, and each request has a coordinator.
//!
//! The caller controls time and order. [`SimulatedCluster::process_next`] processes the next event,
//! and [`SimulatedCluster::horizon`] says how far a client may run on its own meanwhile. All
//! randomness comes from one seed, so the same calls give the same run.

mod coordinator;
mod geography;
mod harm;
mod link;
pub(crate) mod messages;
mod network;
mod node;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use self::link::{Door, Link, SimulatedClock};
use self::messages::{LineMessage, Messenger};
use self::network::Network;
use crate::store::Embedded;
use crate::store::memory::REPLICAS;
use crate::testing::entropy::SeededEntropy;

pub use self::geography::{Counted, Geography, Routing, Spread, Work};
pub use self::link::SimulatedClient;
pub use self::messages::Weather;
pub use self::record::{LineKind, LineRecord, LossRecord, WriteKind, WriteRecord};

/// A lock table on simulated replicas. Clones share one cluster.
#[derive(Clone)]
pub struct SimulatedCluster {
    network: Arc<Mutex<Network>>,
    messenger: Messenger,
}

/// The fixed properties of a cluster's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// How many replicas must answer. Two are a quorum; with one the lock is not safe.
    pub quorum: usize,
    /// How far the clock of each replica is ahead of the true time.
    pub ahead: [Duration; REPLICAS],
}

/// Random delays and faults of messages. Probabilities apply to each message or each request; times
/// are whole milliseconds, the resolution of tokio's timers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// A message takes from one to this many milliseconds.
    pub latency: u64,
    /// The probability that a write reaches a replica late.
    pub late: f64,
    /// By how many milliseconds at most.
    pub late_by: u64,
    /// The probability that a message is lost.
    pub lost: f64,
    /// The probability that a request waits at its coordinator before it goes to the replicas.
    pub queued: f64,
    /// How many milliseconds it waits at most.
    pub queued_for: u64,
    /// The probability that a request is refused, and so certainly has no effect.
    pub refused: f64,
    /// The probability that a request fails although it continues.
    pub unknown: f64,
}

impl Conditions {
    /// Every message arrives soon.
    pub const CALM: Self = Conditions {
        latency: 5,
        late: 0.0,
        late_by: 1,
        lost: 0.0,
        queued: 0.0,
        queued_for: 1,
        refused: 0.0,
        unknown: 0.0,
    };
}

/// Which messages between a client and a replica are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Messages to the replica.
    pub requests: bool,
    /// Messages from the replica.
    pub answers: bool,
}

impl SimulatedCluster {
    /// A cluster with all randomness from `seed`, and with `hosts` registered.
    #[must_use]
    pub fn new(seed: u64, replicas: Replicas, conditions: Conditions, hosts: &[String]) -> Self {
        let network = Network::new(seed, replicas, conditions, hosts);
        let messenger = Messenger::new(seed ^ 0x3E55, Weather::CALM);
        SimulatedCluster { network: Arc::new(Mutex::new(network)), messenger }
    }

    /// A cluster without faults, whose messages take as long as the geography says, with all
    /// randomness from `seed`, and with `hosts` registered. Nothing changes that: conditions,
    /// weather, cuts and slow replicas are those of clusters without a geography.
    #[must_use]
    pub fn with_geography(seed: u64, geography: Geography, hosts: &[String]) -> Self {
        let geography = Arc::new(geography);
        let network = Network::with_geography(seed, Arc::clone(&geography), hosts);
        let messenger = Messenger::new(seed ^ 0x3E55, Weather::CALM);
        messenger.set_geography(geography);
        SimulatedCluster { network: Arc::new(Mutex::new(network)), messenger }
    }

    /// Has nodes write and read in one round trip, or not. Said before clients are built.
    pub fn exchange(&self, exchanges: bool) {
        self.network().exchanges = exchanges;
    }

    /// Says in which zone of the geography a client is. Without this it is in zone 0.
    pub fn set_zone(&self, client: usize, zone: usize) {
        self.network().clients[client].zone = zone;
    }

    /// Connects a client, at `now` of the simulation, with a wall clock that is off by `wall_error`
    /// microseconds. Its jitter and its id come from `seed`. Called on the paused runtime on which
    /// the client is built, before time advances there.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn connect(&self, now: Duration, wall_error: i64, seed: u64) -> SimulatedClient {
        let wall_error = Arc::new(AtomicI64::new(wall_error));
        let (number, called) = self.network().connect(Arc::clone(&wall_error));
        let clock = Arc::new(SimulatedClock::new(now, wall_error));
        let network = Arc::clone(&self.network);
        let link = Link::new(network, number, Arc::clone(&clock), Arc::clone(&called));
        let door = Arc::new(Door {
            network: Arc::clone(&self.network),
            messenger: self.messenger.clone(),
            number,
            clock: Arc::clone(&clock),
            called: Arc::clone(&called),
        });
        let embedded = Embedded {
            store: Arc::new(link).into(),
            clock,
            entropy: Arc::new(SeededEntropy::new(seed)),
            lock_table: Uuid::nil(),
        };
        SimulatedClient { number, embedded, called, door }
    }

    /// The time of the next pending event, if any.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        let event = self.network().next_event();
        [event, self.messenger.next_arrival()].into_iter().flatten().min()
    }

    /// Processes the next event. All clients must have run up to its time, and none beyond its
    /// [horizon](Self::horizon).
    pub fn process_next(&self) {
        let event = self.network().next_event().unwrap_or(Duration::MAX);
        match self.messenger.next_arrival().filter(|arrival| *arrival < event) {
            Some(_) => self.messenger.deliver_next(),
            None => self.network().process_next(),
        }
    }

    /// The time up to which a client can run before it may get an answer, or a message that is on
    /// its way; `None` if it gets none.
    #[must_use]
    pub fn horizon(&self, client: usize) -> Option<Duration> {
        let network = self.network();
        let id = network.id_of(client);
        let arrival = id.and_then(|id| self.messenger.next_arrival_at(id));
        [network.horizon(client), arrival].into_iter().flatten().min()
    }

    /// Changes the conditions of messages from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.network().conditions = conditions;
    }

    /// Makes reads that meet more than this many dead rows warn of them from now on.
    pub fn warn_of_dead_rows(&self, many: usize) {
        self.network().many_dead = many;
    }

    /// Changes how messages between clients fare from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.messenger.set_weather(weather);
    }

    /// Cuts messages between a client and another one, or all others. `false` lets them through
    /// again, by new connections. Clients without messages are not concerned.
    pub fn set_cut_off(&self, client: usize, other: Option<usize>, cut_off: bool) {
        let ids = |number| self.network().id_of(number);
        let Some(client) = ids(client) else {
            return;
        };
        let other = match other.map(ids) {
            Some(None) => return,
            Some(Some(other)) => Some(other),
            None => None,
        };
        if cut_off {
            self.messenger.cut_off(client, other);
        } else {
            self.messenger.reconnect(client, other);
        }
    }

    /// Cuts messages between a client and a replica, or lets them through again.
    pub fn set_cut(&self, client: usize, replica: usize, cut: Cut) {
        self.network().set_cut(client, replica, cut);
    }

    /// Leaves all requests of a client to the registry of hosts unanswered from now on.
    pub fn silence_registry(&self, client: usize) {
        self.network().clients[client].registry_answers = false;
    }

    /// Makes each message to or from a replica take `by` more milliseconds.
    pub fn set_slow(&self, replica: usize, by: u64) {
        self.network().nodes[replica].slow_by = by;
    }

    /// Stops a replica, which forgets all writes after `synced`.
    pub fn crash(&self, replica: usize, synced: Duration) {
        self.network().crash(replica, synced);
    }

    /// Starts a stopped replica.
    pub fn start(&self, replica: usize) {
        self.network().nodes[replica].is_up = true;
    }

    /// Loses rows of a client on all replicas, as if they had expired before their time.
    pub fn lose_rows(&self, now: Duration, object: &str, client: usize) {
        self.network().lose_rows(now, object, client);
    }

    /// Loses rows of a client at its next renewal of them, which reaches the replicas `held_up`
    /// later: so they are gone between the client's last read and its write.
    pub fn lose_rows_at_renewal(&self, object: &str, client: usize, held_up: Duration) {
        self.network().lose_rows_at_renewal(object, client, held_up);
    }

    /// Cancels the losses of rows at renewals.
    pub fn spare_renewals(&self) {
        self.network().ambushes.clear();
    }

    /// Loses all rows and tombstones of an object on all replicas. Its fence stays.
    pub fn truncate(&self, now: Duration, object: &str) {
        self.network().truncate(now, object);
    }

    /// Raises the mark of an object on all replicas, as a client does that sweeps it while its wall
    /// clock is off by this many microseconds.
    pub fn raise_mark(&self, now: Duration, object: &str, off_by: i64) {
        self.network().raise_mark(now, object, link::unix_micros(now).saturating_add(off_by));
    }

    /// Raises the fence of an object on all replicas, as a client does that draws a token while its
    /// wall clock is off by this many microseconds.
    pub fn raise_fence(&self, now: Duration, object: &str, off_by: i64) {
        self.network().raise_fence(now, object, link::unix_micros(now).saturating_add(off_by));
    }

    /// Writes on all replicas that a client with rows of an object has left it, although it has
    /// not, and how long a handoff took; with a stamp that is off by this many microseconds.
    pub fn write_release(
        &self,
        now: Duration,
        object: &str,
        client: usize,
        handoff: Duration,
        off_by: i64,
    ) {
        let stamp = link::unix_micros(now).saturating_add(off_by);
        self.network().note_release(now, object, client, (handoff, stamp));
    }

    /// All live rows that were lost, in the order of loss.
    #[must_use]
    pub fn losses(&self) -> Vec<LossRecord> {
        self.network().losses.clone()
    }

    /// Sets by how many microseconds the wall clock of a client is off from now on.
    pub fn set_wall_error(&self, client: usize, micros: i64) {
        self.network().clients[client].wall_error.store(micros, Ordering::Relaxed);
    }

    /// All writes of lock rows, in the order of sending.
    #[must_use]
    pub fn writes(&self) -> Vec<WriteRecord> {
        self.network().records.clone()
    }

    /// What was said about places in the lines of keepers.
    #[must_use]
    pub fn lines(&self) -> Vec<LineRecord> {
        let network = self.network();
        // Clients that send messages have numbers.
        let record = |message: LineMessage| {
            let LineMessage { keeper, guest, object, request, at, kind } = message;
            let keeper = network.number_of(keeper)?;
            let guest = network.number_of(guest)?;
            Some(LineRecord { keeper, guest, object: messages::name(object), request, at, kind })
        };
        self.messenger.line().into_iter().filter_map(record).collect()
    }

    /// How often each kind of harm occurred.
    #[must_use]
    pub fn harm(&self) -> BTreeMap<&'static str, u64> {
        let mut harm = self.network().harm.counts();
        harm.extend(self.messenger.harm());
        harm
    }

    /// The number of the client with this id; `None` if it has never written a row and sends
    /// no messages.
    #[must_use]
    pub fn number_of(&self, client: Uuid) -> Option<usize> {
        self.network().number_of(client.as_u128())
    }

    /// The rows of an object that some quorum shows at `now`: the client and the name of each.
    #[must_use]
    pub fn rows(&self, object: &str, now: Duration) -> BTreeSet<(usize, String)> {
        self.network().rows(object, now)
    }

    fn network(&self) -> MutexGuard<'_, Network> {
        lock(&self.network)
    }
}

impl fmt::Debug for SimulatedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedCluster").finish_non_exhaustive()
    }
}

/// A simulation runs on one thread, so no other thread sees what a panic left behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
