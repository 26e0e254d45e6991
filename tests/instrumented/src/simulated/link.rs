//! A client's end of a simulated cluster: its store, its clock and its randomness.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::lock;
use super::messages::Messenger;
use super::network::Network;
use super::node;
use super::node::Ask;
use crate::builder::LockClientBuilder;
use crate::clock::{Clock, Lead};
use crate::core::bakery::{ContenderId, Read, Seen, StoredRow, Write};
use crate::peers::{Entrance, NetworkEnd};
use crate::store::{
    Cursor, DatabaseError, Embedded, Exchanges, HostRow, HostTable, LockRows, NodeProbe, Outcome,
    Page, Part, PeerRow, PeerTable, RowStamp, StoreFuture, StoredMark, Testimonies, TimedRow,
};

/// The wall clock at the beginning of each simulation.
const UNIX_ORIGIN_MICROS: i64 = 1_700_000_000_000_000;

/// The true time, in µs since the Unix epoch.
pub(super) fn unix_micros(now: Duration) -> i64 {
    UNIX_ORIGIN_MICROS
        + i64::try_from(now.as_micros()).expect("a simulation does not run for a thousand years")
}

/// A client of a [`SimulatedCluster`](super::SimulatedCluster).
#[derive(Clone, Debug)]
pub struct SimulatedClient {
    pub(super) number: usize,
    pub(super) embedded: Embedded,
    pub(super) called: Arc<Notify>,
    pub(super) door: Arc<Door>,
}

impl SimulatedClient {
    /// The client's number in the cluster, in the order of connecting.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Builds the client.
    pub fn client_builder(&self) -> LockClientBuilder {
        LockClientBuilder::embedded(self.embedded.clone())
    }

    /// Builds the client, as a peer of others that are built so.
    pub fn peer_builder(&self) -> LockClientBuilder {
        self.client_builder().entrance(Arc::clone(&self.door) as Arc<dyn Entrance>)
    }

    /// Resolves once the client has sent a request or a message since this last resolved: then its
    /// [horizon](super::SimulatedCluster::horizon) may be nearer.
    pub async fn called(&self) {
        self.called.notified().await;
    }
}

/// Where one client joins those that send each other messages.
pub(super) struct Door {
    pub(super) network: Arc<Mutex<Network>>,
    pub(super) messenger: Messenger,
    pub(super) number: usize,
    pub(super) clock: Arc<SimulatedClock>,
    pub(super) called: Arc<Notify>,
}

impl Entrance for Door {
    fn join(&self, client: u128) -> NetworkEnd {
        let mut network = lock(&self.network);
        network.know(client, self.number);
        self.messenger.settle(client, network.clients[self.number].zone);
        self.messenger.join(client, self.clock.true_time(), Arc::clone(&self.called))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The store of one client. It sends requests; the network decides their outcome.
pub(super) struct Link {
    network: Arc<Mutex<Network>>,
    client: usize,
    clock: Arc<SimulatedClock>,
    called: Arc<Notify>,
}

impl Link {
    pub(super) fn new(
        network: Arc<Mutex<Network>>,
        client: usize,
        clock: Arc<SimulatedClock>,
        called: Arc<Notify>,
    ) -> Self {
        Link { network, client, clock, called }
    }

    async fn ask(&self, object: &str, ask: Ask<'_>) -> Result<Vec<node::Seen>, DatabaseError> {
        let answer = lock(&self.network).send(self.client, self.clock.true_time(), object, ask);
        self.called.notify_one();
        answer.await.expect("every request is answered in the end, as long as the network is there")
    }

    /// What contenders look at, as those replicas show it that answer.
    async fn seen(&self, object: &str, ask: Ask<'_>) -> Result<Seen, DatabaseError> {
        let seen = node::Seen::merge(self.ask(object, ask).await?);
        let met = seen.rows.len();
        let statics = seen.statics;
        let rows: Vec<_> = seen.live().into_iter().map(|timed| timed.row).collect();
        let many_dead = met - rows.len() > lock(&self.network).many_dead;
        Ok(Seen { rows, statics, many_dead })
    }

    /// Rows, as those replicas show them that answer.
    async fn rows(&self, object: &str, read: Ask<'_>) -> Result<Vec<TimedRow>, DatabaseError> {
        Ok(node::Seen::merge(self.ask(object, read).await?).live())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Exchanges for Link {
    fn exchange<'a>(
        &'a self,
        object: &'a str,
        write: &'a Write,
        read: Read,
    ) -> StoreFuture<'a, Seen> {
        Box::pin(self.seen(object, Ask::Exchange(write, read)))
    }
}

impl LockRows for Link {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.ask(object, Ask::Write(write)).await.map(|_| ()) })
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        Box::pin(self.seen(object, Ask::Read(read)))
    }

    fn exchanges(&self) -> Option<&dyn Exchanges> {
        lock(&self.network).exchanges.then_some(self)
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        Box::pin(self.rows(object, Ask::Read(Read::Object)))
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn read_page<'a>(&'a self, _: Part, _: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        Box::pin(async { Err(DatabaseError::permanent(ONE_OBJECT_IS_READ)) })
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        Box::pin(async move {
            let rows = self.rows(object, Ask::OneReplica).await?;
            Ok(rows.into_iter().map(|timed| timed.row).collect())
        })
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        Box::pin(async move {
            let rows = self.rows(object, Ask::Read(Read::Contender(contender))).await?;
            Ok(rows.into_iter().filter_map(RowStamp::of).collect())
        })
    }

    fn read_mark<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        Box::pin(async { Err(DatabaseError::permanent(NO_MARK_IS_WRITTEN_BY_HAND)) })
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        Box::pin(async move {
            let seen = self.ask(object, Ask::ReadFence).await?;
            Ok(seen.into_iter().filter_map(|seen| seen.fence).max())
        })
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.ask(object, Ask::WriteFence(value)).await.map(|_| ()) })
    }
}

// The registry answers at once or not at all: no request to it is urgent, and no simulation changes
// it.
impl HostTable for Link {
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async move {
            let answers = lock(&self.network).clients[self.client].registry_answers;
            if !answers {
                sleep(SILENCE).await;
                return Err(DatabaseError::new(Outcome::Unknown, "the registry is silent"));
            }
            let network = lock(&self.network);
            Ok(network.hosts.iter().find(|host| host.name == name).cloned())
        })
    }

    fn read_host_nearby<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async { Ok(None) })
    }

    fn read_hosts<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Vec<HostRow>> {
        Box::pin(async { Err(DatabaseError::permanent(HOSTS_ARE_GIVEN)) })
    }

    fn read_next(&self) -> StoreFuture<'_, i32> {
        Box::pin(async { Err(DatabaseError::permanent(HOSTS_ARE_GIVEN)) })
    }

    fn raise_next(&self, _: i32) -> StoreFuture<'_, ()> {
        Box::pin(async { Err(DatabaseError::permanent(HOSTS_ARE_GIVEN)) })
    }

    fn write_host<'a>(&'a self, _: &'a HostRow) -> StoreFuture<'a, ()> {
        Box::pin(async { Err(DatabaseError::permanent(HOSTS_ARE_GIVEN)) })
    }

    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>> {
        Box::pin(async { Ok(Some(0)) })
    }

    fn write_last_seen<'a>(&'a self, _: &'a str, _: i64) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

// The table of peers always answers, too: a client that can't read it continues without.
impl PeerTable for Link {
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let now = self.clock.true_time();
            lock(&self.network).peers.write(peer, ttl_seconds, now);
            Ok(())
        })
    }

    fn read_peer(&self, client: Uuid) -> StoreFuture<'_, Option<PeerRow>> {
        Box::pin(async move { Ok(lock(&self.network).peers.read(client, self.clock.true_time())) })
    }

    fn delete_peer(&self, client: Uuid, stamp: i64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let now = self.clock.true_time();
            lock(&self.network).peers.delete(client, stamp, now);
            Ok(())
        })
    }
}

impl NodeProbe for Link {
    /// No node answers: what a check verifies holds here, or is broken on purpose.
    fn probe_nodes(&self) -> Testimonies<'_> {
        Box::pin(async { Vec::new() })
    }
}

/// How long a request to a silent registry takes.
const SILENCE: Duration = Duration::from_secs(1);

const HOSTS_ARE_GIVEN: &str = "the hosts of a simulation are given when it begins";

const NO_MARK_IS_WRITTEN_BY_HAND: &str = "a simulation repairs no mark";

const ONE_OBJECT_IS_READ: &str = "a simulation reads objects one by one";

/// The clock of one client: tokio's, counted from the moment when the client connected.
#[derive(Debug)]
pub(super) struct SimulatedClock {
    origin: Instant,
    started: Duration,
    /// By how many µs the wall clock is off, and was when the client connected.
    wall_error: Arc<AtomicI64>,
    first_wall_error: i64,
    lead: Lead,
}

impl SimulatedClock {
    pub(super) fn new(started: Duration, wall_error: Arc<AtomicI64>) -> Self {
        let first_wall_error = wall_error.load(Ordering::Relaxed);
        SimulatedClock {
            origin: Instant::now(),
            started,
            wall_error,
            first_wall_error,
            lead: Lead::default(),
        }
    }

    fn true_time(&self) -> Duration {
        self.started + self.origin.elapsed()
    }
}

/// Elapsed time as the system's clock computes it.
impl Clock for SimulatedClock {
    fn elapsed(&self) -> Duration {
        let boot = self.since_boot();
        let stepped = self.wall_error.load(Ordering::Relaxed) - self.first_wall_error;
        let ahead = Duration::from_micros(u64::try_from(stepped).unwrap_or(0));
        self.lead.elapsed(boot, boot + ahead)
    }

    fn since_boot(&self) -> Duration {
        self.origin.elapsed()
    }

    fn unix_micros(&self) -> i64 {
        unix_micros(self.true_time()) + self.wall_error.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Conditions, Replicas, SimulatedCluster};
    use super::*;
    use crate::testing::instrumented::conformance::peers::peers_are_kept;

    #[tokio::test(start_paused = true)]
    async fn peers_are_kept_as_on_a_cluster() {
        let replicas = Replicas { quorum: 2, ahead: [Duration::ZERO; 3] };
        let cluster = SimulatedCluster::new(1, replicas, Conditions::CALM, &[]);
        let client = cluster.connect(Duration::from_secs(7), 0, 1);
        peers_are_kept(&*client.embedded.store.peers, 100).await;
    }
}
