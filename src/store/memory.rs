//! A lock table in memory, for tests and for programs that run in one process.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use self::peers::Peers;
use self::replica::{Cell, Fence, Key, Release, Replica, Sweep, cells};
use super::{
    ClockReading, Cursor, Exchanges, HOSTS_PER_PAGE, HostRow, HostTable, LockRows, Node, NodeProbe,
    NodeReport, Page, Part, PeerRow, PeerTable, RowStamp, Store, StoreFuture, StoredMark,
    Testimonies, TimedRow,
};
use crate::clock::{Clock, TokioClock};
use crate::core::bakery::{
    Change, ContenderId, FENCE_TTL_SECONDS, Read, Seen, Statics, StoredRow, Write,
};
use crate::entropy::{Entropy, SystemEntropy};

pub(crate) mod peers;
pub(crate) mod replica;

/// The number of copies of each row, as on a usual cluster.
pub(crate) const REPLICAS: usize = 3;

/// The number of copies that a read merges: any two such sets have a copy in common.
const QUORUM: usize = REPLICAS / 2 + 1;

/// The number of objects on a page of the whole table.
const OBJECTS_PER_PAGE: usize = 1_000;

/// With more dead rows than this a read warns of them, as one of Cassandra does by default.
pub(crate) const MANY_DEAD: usize = 1_000;

/// How long a dead row is remembered, so that an older write does not bring it back.
const GRACE: Duration = Duration::from_secs(2 * Embedded::MAX_TTL.as_secs());

/// A lock table in the memory of this process, with a registry of hosts.
///
/// It treats rows as a cluster does: three replicas, reads that merge a changing majority of them,
/// writes ordered by their timestamps, rows that expire. Clones share the rows. Clients built on
/// clones of one store exclude each other; nothing outside the process sees the rows.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<MemoryState>,
}

struct MemoryState {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    tables: Mutex<Tables>,
}

/// The base of a client that runs without a cluster: rows, and the clock and the randomness that
/// belong to them.
#[derive(Clone, Debug)]
pub(crate) struct Embedded {
    /// Where the rows live.
    pub(crate) store: Store,
    /// The clock that rows expire by.
    pub(crate) clock: Arc<dyn Clock>,
    /// The randomness of clients.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The id of the lock table.
    pub(crate) lock_table: Uuid,
}

impl Embedded {
    /// The longest TTL that clients may use, as a lock table has by default.
    pub(crate) const MAX_TTL: Duration = Duration::from_secs(120);
}

impl MemoryStore {
    /// An empty store. Its rows expire by tokio's clock, paused or not.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Arc::new(TokioClock::new()), Arc::new(SystemEntropy))
    }

    /// An empty store whose rows expire by `clock`.
    pub(crate) fn on(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let shared = MemoryState { clock, entropy, tables: Mutex::default() };
        MemoryStore { shared: Arc::new(shared) }
    }

    /// The base of a client.
    pub(crate) fn embedded(&self) -> Embedded {
        Embedded {
            store: Arc::new(self.clone()).into(),
            clock: Arc::clone(&self.shared.clock),
            entropy: Arc::clone(&self.shared.entropy),
            lock_table: self.tables().lock_table,
        }
    }

    /// The rows.
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic of another thread leaves whole rows behind.
        self.shared.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&mut Tables, Duration) -> T + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { Ok(call(&mut self.tables(), self.shared.clock.elapsed())) })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl LockRows for MemoryStore {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        self.answer(move |tables, now| tables.write(object, write, now))
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        self.answer(move |tables, now| tables.read(object, read, now))
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        self.answer(move |tables, now| tables.live_rows(object, Read::Object, now))
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::WHOLE]
    }

    fn read_page<'a>(&'a self, _: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        self.answer(move |tables, now| tables.read_page(from, now))
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        self.answer(move |tables, now| tables.read(object, Read::Object, now).rows)
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        self.answer(move |tables, now| tables.read_stamps(object, contender, now))
    }

    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        self.answer(move |tables, _| tables.mark(object))
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        self.answer(move |tables, now| tables.read_fence(object, now))
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        self.answer(move |tables, now| tables.write_fence(object, value, now))
    }
}

impl Exchanges for MemoryStore {
    fn exchange<'a>(
        &'a self,
        object: &'a str,
        write: &'a Write,
        read: Read,
    ) -> StoreFuture<'a, Seen> {
        self.answer(move |tables, now| {
            tables.write(object, write, now);
            tables.read(object, read, now)
        })
    }
}

impl HostTable for MemoryStore {
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        self.answer(|tables, _| tables.hosts.get(name).cloned())
    }

    fn read_host_nearby<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async { Ok(None) })
    }

    fn read_hosts<'a>(&'a self, after: &'a str) -> StoreFuture<'a, Vec<HostRow>> {
        self.answer(move |tables, _| {
            let page = tables.hosts.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
            page.take(HOSTS_PER_PAGE).map(|(_, host)| host.clone()).collect()
        })
    }

    fn read_next(&self) -> StoreFuture<'_, i32> {
        self.answer(|tables, _| tables.next)
    }

    fn raise_next(&self, next: i32) -> StoreFuture<'_, ()> {
        self.answer(move |tables, _| tables.next = tables.next.max(next))
    }

    fn write_host<'a>(&'a self, host: &'a HostRow) -> StoreFuture<'a, ()> {
        self.answer(move |tables, _| tables.write_host(host))
    }

    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>> {
        self.answer(|_, _| Some(0))
    }

    fn write_last_seen<'a>(&'a self, name: &'a str, at_micros: i64) -> StoreFuture<'a, ()> {
        self.answer(move |tables, _| tables.write_last_seen(name, at_micros / 1000))
    }
}

impl PeerTable for MemoryStore {
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> StoreFuture<'a, ()> {
        self.answer(move |tables, now| tables.write_peer(peer, ttl_seconds, now))
    }

    fn read_peer(&self, client: Uuid) -> StoreFuture<'_, Option<PeerRow>> {
        self.answer(move |tables, now| tables.peers.read(client, now))
    }

    fn delete_peer(&self, client: Uuid, stamp: i64) -> StoreFuture<'_, ()> {
        self.answer(move |tables, now| tables.peers.delete(client, stamp, now))
    }
}

impl NodeProbe for MemoryStore {
    /// Two nodes, as if the rows were on a cluster.
    fn probe_nodes(&self) -> Testimonies<'_> {
        let lock_table = Some(self.tables().lock_table);
        let report = NodeReport { clock: ClockReading::OURS, lock_table };
        let seen = [1, 2].map(|number| (node(number), Some(report))).to_vec();
        Box::pin(async { seen })
    }
}

fn node(number: u8) -> Node {
    Node {
        host_id: Uuid::from_u128(number.into()),
        address: format!("memory {number}"),
        datacenter: "memory".to_owned(),
        connected: true,
    }
}

/// The lock table, the registry and the peers. The latter two have one copy: no request to them is
/// urgent.
#[derive(Default)]
pub(crate) struct Tables {
    /// The id of the lock table.
    pub(crate) lock_table: Uuid,
    /// The copies of its rows.
    pub(crate) replicas: [Replica; REPLICAS],
    /// The replica that the next read asks first.
    first: usize,
    /// When to look next for dead rows of objects that are no longer used.
    sweep_due: Duration,
    next: i32,
    hosts: BTreeMap<String, HostRow>,
    /// What clients publish of themselves.
    pub(crate) peers: Peers,
}

impl Tables {
    fn write(&mut self, object: &str, write: &Write, now: Duration) {
        self.sweep(now);
        for (key, cell) in cells(write, now) {
            for replica in &mut self.replicas {
                replica.apply(object, &key, &cell);
            }
        }
        if let Some(release) = Release::of(write, now) {
            for replica in &mut self.replicas {
                replica.note_release(object, release);
            }
        }
        for replica in &mut self.replicas {
            match &write.change {
                Change::Mark => replica.raise_mark(object, StoredMark::of(write.stamp)),
                Change::Sweep { spared } => {
                    replica.sweep(object, Sweep::new(write.stamp, spared, now));
                }
                Change::Put { .. } | Change::Revoke { .. } | Change::Delete { .. } => {}
            }
        }
    }

    /// The rows that a quorum shows.
    pub(crate) fn read(&mut self, object: &str, read: Read, now: Duration) -> Seen {
        let known = self.replicas.iter().filter_map(|replica| replica.last_release(object, now));
        let last_release = known.max_by_key(|last| last.stamp);
        let mark = self.mark(object).map(|mark| mark.value);
        let rows = self.live_rows(object, read, now).into_iter();
        let rows: Vec<_> = rows.map(|timed| timed.row).collect();
        let kept = self.replicas[0].objects.get(object).map_or(0, BTreeMap::len);
        let many_dead = kept > rows.len() + MANY_DEAD;
        Seen { rows, statics: Statics { last_release, mark }, many_dead }
    }

    fn mark(&self, object: &str) -> Option<StoredMark> {
        self.replicas.iter().filter_map(|replica| replica.marks.get(object)).max().copied()
    }

    fn read_stamps(
        &mut self,
        object: &str,
        contender: ContenderId,
        now: Duration,
    ) -> Vec<RowStamp> {
        let rows = self.live_rows(object, Read::Contender(contender), now);
        rows.into_iter().filter_map(RowStamp::of).collect()
    }

    /// The rows that a quorum shows, with their times.
    fn live_rows(&mut self, object: &str, read: Read, now: Duration) -> Vec<TimedRow> {
        let mut merged = BTreeMap::<&Key, &Cell>::new();
        for replica in self.next_quorum() {
            let rows = self.replicas[replica].objects.get(object).into_iter().flatten();
            for (key, cell) in rows.filter(|((name, id), _)| read.asks_for(name, *id)) {
                let newest = merged.entry(key).or_insert(cell);
                if cell.beats(newest) {
                    *newest = cell;
                }
            }
        }
        merged.into_values().filter_map(|cell| cell.timed(now)).collect()
    }

    /// Rows of some objects, in the order of their names; the cursor is the last one's.
    fn read_page(&mut self, from: Option<&Cursor>, now: Duration) -> Page {
        let is_next = |name: &&String| from.is_none_or(|from| name.as_bytes() > &*from.0);
        let names = self.replicas.iter().flat_map(|replica| replica.objects.keys());
        let mut names: Vec<_> = names.filter(is_next).cloned().collect();
        names.sort_unstable();
        names.dedup();
        let more = names.len() > OBJECTS_PER_PAGE;
        names.truncate(OBJECTS_PER_PAGE);
        let last = names.last().filter(|_| more).map(|name| Cursor(name.as_bytes().into()));
        let mut rows = Vec::new();
        for name in names {
            let live = self.live_rows(&name, Read::Object, now).into_iter();
            rows.extend(live.map(|row| (name.clone(), row)));
        }
        Page { rows, next: last }
    }

    fn read_fence(&mut self, object: &str, now: Duration) -> Option<i64> {
        let fences =
            self.next_quorum().filter_map(|replica| self.replicas[replica].fences.get(object));
        fences.max().filter(|fence| now < fence.dead_from).map(|fence| fence.value)
    }

    /// Raises the fence of an object, unless it is already higher.
    pub(crate) fn write_fence(&mut self, object: &str, value: i64, now: Duration) {
        self.sweep(now);
        let ttl = Duration::from_secs(u64::from(FENCE_TTL_SECONDS.unsigned_abs()));
        let fence = Fence { value, dead_from: now + ttl };
        for replica in &mut self.replicas {
            replica.raise_fence(object, fence);
        }
    }

    /// The replicas that a read asks; the next read asks others.
    fn next_quorum(&mut self) -> impl Iterator<Item = usize> + use<> {
        let first = self.first;
        self.first = (first + 1) % REPLICAS;
        (first..first + QUORUM).map(|asked| asked % REPLICAS)
    }

    fn write_host(&mut self, host: &HostRow) {
        let newest = self.hosts.get(&host.name);
        if newest.is_none_or(|newest| host.stamp > newest.stamp) {
            let seen_at_millis = newest.and_then(|newest| newest.seen_at_millis);
            self.hosts.insert(host.name.clone(), HostRow { seen_at_millis, ..host.clone() });
        }
    }

    fn write_last_seen(&mut self, name: &str, at_millis: i64) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.seen_at_millis = host.seen_at_millis.max(Some(at_millis));
        }
    }

    fn write_peer(&mut self, peer: &PeerRow, ttl_seconds: i32, now: Duration) {
        self.sweep(now);
        self.peers.write(peer, ttl_seconds, now);
    }

    fn sweep(&mut self, now: Duration) {
        if now < self.sweep_due {
            return;
        }
        self.sweep_due = now + GRACE;
        for replica in &mut self.replicas {
            replica.objects.retain(|_, rows| {
                rows.retain(|_, cell| now < cell.dead_from + GRACE);
                !rows.is_empty()
            });
            replica.fences.retain(|_, fence| now < fence.dead_from + GRACE);
            replica.releases.retain(|_, release| release.is_live(now));
            for sweeps in replica.sweeps.values_mut() {
                sweeps.retain(|sweep| now < sweep.dead_from + GRACE);
            }
            replica.sweeps.retain(|_, sweeps| !sweeps.is_empty());
        }
        self.peers.sweep(GRACE, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::bakery::{Change, LastRelease};
    use crate::testing::instrumented::conformance::conforms;

    #[tokio::test(start_paused = true)]
    async fn store_keeps_the_promises_of_the_trait() {
        conforms(&MemoryStore::new().embedded().store, "test").await;
    }

    #[tokio::test(start_paused = true)]
    async fn dead_rows_are_forgotten_in_the_end() {
        let store = MemoryStore::new();
        let contender = ContenderId { host: 1, client: 2, slot: 3 };
        let change = Change::Delete { contender, revoked: false, last_release: None };
        let delete = |stamp| Write { stamp, change: change.clone() };
        store.write("a", &delete(1)).await.expect("memory does not fail");
        tokio::time::advance(GRACE).await;
        store.write("b", &delete(1)).await.expect("memory does not fail");
        let tables = store.tables();
        let names = tables.replicas.iter().flat_map(|replica| replica.objects.keys());
        assert_eq!(names.collect::<Vec<_>>(), ["b", "b", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn last_release_is_known_for_a_minute() {
        let store = MemoryStore::new();
        let last = LastRelease { client: 2, round: 1, handoff: Duration::ZERO, stamp: 1 };
        let contender = ContenderId { host: 1, client: 2, slot: 3 };
        let last_release = Some(last);
        let change = Change::Delete { contender, revoked: false, last_release };
        store.write("a", &Write { stamp: 1, change }).await.expect("memory does not fail");
        for (seconds, expected) in [(59, Some(last)), (1, None)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let seen = store.read("a", Read::Object).await.expect("memory does not fail");
            assert_eq!(seen.statics.last_release, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fence_outlives_the_rows_by_weeks() {
        let store = MemoryStore::new();
        let day = Duration::from_secs(24 * 60 * 60);
        store.write_fence("a", 7).await.expect("memory does not fail");
        for (days, expected) in [(29, Some(7)), (2, None)] {
            tokio::time::advance(day * days).await;
            store.write_fence("b", 1).await.expect("memory does not fail");
            let fence = store.read_fence("a").await.expect("memory does not fail");
            assert_eq!(fence, expected);
        }
        assert!(!store.tables().replicas[0].fences.contains_key("a"), "it is not forgotten");
    }
}
