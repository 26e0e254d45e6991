//! Three replicas and the ways to them, nastier than a cluster, for simulations.
//!
//! Each message between a client and a replica goes its own way: it arrives soon, late or never.
//! A write is acknowledged when a quorum of replicas has it, and goes on to the others, or not; a
//! read merges the first quorum of answers, given at different moments. Nothing is repaired but by
//! new writes. Links can be cut, replicas be slow, down, or forget what they had not synced; the
//! replicas' clocks, by which rows expire, differ.
//!
//! Time and order are the caller's. [`SimulatedCluster::process_next`] does what comes next, and
//! [`SimulatedCluster::horizon`] tells how far a client may run on its own meanwhile. All chance
//! comes from one seed, so that the same calls give the same run.

mod link;
mod network;
mod node;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use self::link::{Link, SimulatedClock};
use self::network::Network;
use super::entropy::SeededEntropy;
use crate::store::Embedded;
use crate::store::memory::REPLICAS;

pub use self::link::SimulatedClient;
pub use self::record::{LossRecord, WriteKind, WriteRecord};

/// A lock table on simulated replicas. Clones are the same cluster.
#[derive(Clone)]
pub struct SimulatedCluster {
    network: Arc<Mutex<Network>>,
}

/// What the replicas of a cluster are like, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// How many replicas have to answer. Two are a quorum; with one the lock is not safe.
    pub quorum: usize,
    /// How far the clock of each replica is ahead of the true time.
    pub ahead: [Duration; REPLICAS],
}

/// What happens to messages by chance. Probabilities are of each message or each request; times
/// are whole milliseconds, as tokio's timers know no less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// A message takes from one to so many milliseconds.
    pub latency: u64,
    /// How probably a write reaches a replica late.
    pub late: f64,
    /// How many milliseconds later at most.
    pub late_by: u64,
    /// How probably a message is lost.
    pub lost: f64,
    /// How probably a request waits at its coordinator before it goes to the replicas.
    pub queued: f64,
    /// How many milliseconds it waits at most.
    pub queued_for: u64,
    /// How probably a request is refused, so that it certainly has no effect.
    pub refused: f64,
    /// How probably a request fails although it goes on.
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
    /// Those to the replica.
    pub requests: bool,
    /// Those from it.
    pub answers: bool,
}

/// Which rows of a client are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRows {
    /// The `entering::` row.
    Entering,
    /// The `tickets::` row.
    Ticket,
    /// Both.
    Both,
}

impl SimulatedCluster {
    /// A cluster where all chance comes from `seed`, with hosts that are registered already.
    #[must_use]
    pub fn new(seed: u64, replicas: Replicas, conditions: Conditions, hosts: &[String]) -> Self {
        let network = Network::new(seed, replicas, conditions, hosts);
        SimulatedCluster { network: Arc::new(Mutex::new(network)) }
    }

    /// Lets a client in, at `now` of the simulation, whose wall clock is off by so many
    /// microseconds. Its jitter and its id come from `seed`. Called on the paused runtime on which
    /// the client is built, before time goes on there.
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
        let embedded = Embedded {
            store: Arc::new(link),
            clock,
            entropy: Arc::new(SeededEntropy::new(seed)),
            lock_table: Uuid::nil(),
        };
        SimulatedClient { number, embedded, called }
    }

    /// When something happens next, if anything does by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.network().next_event()
    }

    /// Lets the next thing happen. All clients must have run up to its time, and none beyond its
    /// [horizon](Self::horizon).
    pub fn process_next(&self) {
        self.network().process_next();
    }

    /// Up to when a client can run before it may get an answer; `None` when it waits for none.
    #[must_use]
    pub fn horizon(&self, client: usize) -> Option<Duration> {
        self.network().horizon(client)
    }

    /// Changes what happens to messages from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.network().conditions = conditions;
    }

    /// Cuts messages between a client and a replica, or lets them through again.
    pub fn set_cut(&self, client: usize, replica: usize, cut: Cut) {
        self.network().set_cut(client, replica, cut);
    }

    /// Lets each message to or from a replica take so many milliseconds more.
    pub fn set_slow(&self, replica: usize, by: u64) {
        self.network().nodes[replica].slow_by = by;
    }

    /// Stops a replica, which forgets what was written to it after `synced`.
    pub fn crash(&self, replica: usize, synced: Duration) {
        self.network().crash(replica, synced);
    }

    /// Lets a replica go on.
    pub fn start(&self, replica: usize) {
        self.network().nodes[replica].is_up = true;
    }

    /// Loses rows of a client on all replicas, as if they had expired before their time.
    pub fn lose_rows(&self, now: Duration, object: &str, client: usize, rows: LostRows) {
        self.network().lose_rows(now, object, client, rows);
    }

    /// Loses rows of a client when it next sends a renewal of them, which reaches the replicas
    /// `held_up` later: so they are gone between what the client read before and what it writes.
    pub fn lose_rows_at_renewal(
        &self,
        object: &str,
        client: usize,
        rows: LostRows,
        held_up: Duration,
    ) {
        self.network().lose_rows_at_renewal(object, client, rows, held_up);
    }

    /// Loses no rows at renewals any more.
    pub fn spare_renewals(&self) {
        self.network().ambushes.clear();
    }

    /// Loses all rows of an object on all replicas, and what they remember of deleted ones. Its
    /// fence stays.
    pub fn truncate(&self, now: Duration, object: &str) {
        self.network().truncate(now, object);
    }

    /// Every row that was lost while it was live, in that order.
    #[must_use]
    pub fn losses(&self) -> Vec<LossRecord> {
        self.network().losses.clone()
    }

    /// Lets the wall clock of a client be off by so many microseconds from now on.
    pub fn set_wall_error(&self, client: usize, micros: i64) {
        self.network().clients[client].wall_error.store(micros, Ordering::Relaxed);
    }

    /// Every write of lock rows that was sent, in that order.
    #[must_use]
    pub fn writes(&self) -> Vec<WriteRecord> {
        self.network().records.clone()
    }

    /// How often chance did each kind of harm.
    #[must_use]
    pub fn harm(&self) -> BTreeMap<&'static str, u64> {
        self.network().harm.clone()
    }

    /// Which client has this id; `None` for one that has never written a row.
    #[must_use]
    pub fn number_of(&self, client: Uuid) -> Option<usize> {
        self.network().number_of(client.as_u128())
    }

    /// The rows of an object that some quorum shows at `now`: whose each of them is, and its name.
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
