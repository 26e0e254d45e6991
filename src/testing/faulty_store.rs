//! A store in memory that fails and delays calls on demand.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::builder::LockClientBuilder;
use crate::clock::{Clock, TokioClock};
use crate::core::bakery::{Change, ContenderId, Read, Seen, StoredRow, Write};
use crate::entropy::{Entropy, SystemEntropy};
use crate::setup::hosts::HostRegistry;
use crate::store::{
    Cursor, DatabaseError, Denial, Embedded, Exchanges, HostRow, HostTable, LockRows, MemoryStore,
    NodeProbe, Outcome, Page, Part, PeerRow, PeerTable, RowStamp, StoreFuture, StoredMark,
    Testimonies, TimedRow,
};
use crate::testing::entropy::SeededEntropy;

/// How a call of a [`FaultyStore`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It is certainly not applied; a retry may help.
    NotApplied,
    /// It is not applied, but the caller can't know.
    UnknownNotApplied,
    /// It is applied, but the caller can't know.
    UnknownApplied,
    /// It is refused permanently, as when the table is gone.
    Refused,
    /// It is refused because the nodes refuse the login of the session, as after its password was
    /// changed.
    LoginRefused,
    /// It is not applied, and the calling task panics, as a bug would make it.
    Panic,
}

/// A [`MemoryStore`] that fails on demand, for tests of programs that use locks.
///
/// Its rows expire by tokio's clock, so a test with paused time controls them too. Clones share one
/// store.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use bakery_lock::LockError;
/// use bakery_lock::testing::{Fault, FaultyStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = FaultyStore::new();
/// let client = store.client_builder().host("web1").build().await?;
///
/// store.fail_next(usize::MAX, Fault::NotApplied);
/// let request = client.request("users::snap").timeout(Duration::from_millis(50));
/// let error = request.acquire().await.expect_err("the database is down");
/// assert!(matches!(error, LockError::TimedOut { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FaultyStore {
    memory: MemoryStore,
    clock: Arc<TokioClock>,
    plan: Arc<Mutex<Plan>>,
}

/// The requested faults, and the counters.
#[derive(Clone, Copy, Default)]
struct Plan {
    failing: Option<(usize, Fault)>,
    delay: Duration,
    clocks_apart: Duration,
    clock_error: Duration,
    silent: bool,
    table_dropped: bool,
    looks: usize,
    registry_silent: bool,
    registry_reads: usize,
    most_hosts_read: usize,
    last_seen_writes: usize,
    sweeps: usize,
    failing_last_seen: Option<Fault>,
    exchanges: bool,
}

impl FaultyStore {
    /// An empty store without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::with_entropy(Arc::new(SystemEntropy))
    }

    /// An empty store. Its clients draw their ids and the jitter of their pauses from `seed`. With
    /// paused time, the seed reproduces a run.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::with_entropy(Arc::new(SeededEntropy::new(seed)))
    }

    fn with_entropy(entropy: Arc<dyn Entropy>) -> Self {
        let clock = Arc::new(TokioClock::new());
        let memory = MemoryStore::on(Arc::clone(&clock) as Arc<dyn Clock>, entropy);
        FaultyStore { memory, clock, plan: Arc::default() }
    }

    /// Builds a client on the store.
    pub fn client_builder(&self) -> LockClientBuilder {
        LockClientBuilder::embedded(self.embedded())
    }

    /// The store's registry of hosts.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use]
    pub fn host_registry(&self) -> HostRegistry {
        HostRegistry::embedded(self.embedded())
    }

    /// What clients are built on.
    pub(crate) fn embedded(&self) -> Embedded {
        Embedded { store: Arc::new(self.clone()).into(), ..self.memory.embedded() }
    }

    /// Sets the wall clock of all clients back by `by`. Elapsed time continues.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_wall_clock_back(&self, by: Duration) {
        self.clock.set_ahead(-signed_micros(by));
    }

    /// Sets the wall clock of all clients ahead by `by`. Elapsed time continues.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_wall_clock_ahead(&self, by: Duration) {
        self.clock.set_ahead(signed_micros(by));
    }

    /// Makes the next `calls` calls fail, of any kind except checks of clocks and table and
    /// writes of when a host was seen. Replaces the previous request; 0 ends it.
    pub fn fail_next(&self, calls: usize, fault: Fault) {
        self.set(|plan| plan.failing = (calls > 0).then_some((calls, fault)));
    }

    /// Makes each call take `delay`, also those that fail: half of it passes before the call is
    /// applied, half after.
    pub fn delay_calls(&self, delay: Duration) {
        self.set(|plan| plan.delay = delay);
    }

    /// Has clients that are built from now on write and read in one call, as on masters, or not.
    pub fn exchange(&self, exchanges: bool) {
        self.set(|plan| plan.exchanges = exchanges);
    }

    /// How many rows of an object a read would show now.
    #[must_use]
    pub fn live_rows(&self, object: &str) -> usize {
        self.memory.tables().read(object, Read::Object, self.clock.elapsed()).rows.len()
    }

    /// How many clients have published where they listen for others.
    #[must_use]
    pub fn live_peers(&self) -> usize {
        self.memory.tables().peers.count(self.clock.elapsed())
    }

    /// Forgets the rows of an object, like replicas that lose acknowledged writes. The fence stays,
    /// and no tombstone is left.
    pub fn lose_rows(&self, object: &str) {
        for replica in &mut self.memory.tables().replicas {
            replica.objects.remove(object);
        }
    }

    /// Raises the fence of an object to `ahead` of the clock, as a client with a clock wrong by
    /// that much would.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_fence_ahead(&self, object: &str, ahead: Duration) {
        let value = self.clock.unix_micros() + signed_micros(ahead);
        self.memory.tables().write_fence(object, value, self.clock.elapsed());
    }

    /// Raises the mark of an object to `ahead` of the clock, as a client does that sweeps it while
    /// its clock is wrong by that much.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_mark_ahead(&self, object: &str, ahead: Duration) {
        self.write_mark(object, StoredMark::of(self.clock.unix_micros() + signed_micros(ahead)));
    }

    /// Writes the mark of an object by hand: any value, stamped by the clock.
    pub fn set_mark(&self, object: &str, value: i64) {
        self.write_mark(object, StoredMark { stamp: self.clock.unix_micros(), value });
    }

    fn write_mark(&self, object: &str, mark: StoredMark) {
        for replica in &mut self.memory.tables().replicas {
            replica.raise_mark(object, mark);
        }
    }

    /// Sets the clock of the second of two nodes ahead by `apart`.
    pub fn set_clocks_apart(&self, apart: Duration) {
        self.set(|plan| plan.clocks_apart = apart);
    }

    /// Leaves requests to nodes for their clocks and the table unanswered, or answers them again.
    pub fn silence_nodes(&self, silent: bool) {
        self.set(|plan| plan.silent = silent);
    }

    /// Adds `error` to the error of each clock reading, as when the nodes are far away.
    pub fn set_clock_error(&self, error: Duration) {
        self.set(|plan| plan.clock_error = error);
    }

    /// Drops the lock table: its rows are gone, and all calls are refused.
    pub fn drop_table(&self) {
        self.memory.tables().replicas = Default::default();
        self.set(|plan| plan.table_dropped = true);
    }

    /// Creates the [dropped](Self::drop_table) lock table again: an empty one with another id.
    pub fn make_table_again(&self) {
        let id = &mut self.memory.tables().lock_table;
        *id = Uuid::from_u128(id.as_u128() + 1);
        self.set(|plan| plan.table_dropped = false);
    }

    /// How often clients have checked clocks and table since they were built.
    #[must_use]
    pub fn looks(&self) -> usize {
        self.set(|plan| plan.looks)
    }

    /// Leaves reads of the registry unanswered, and nothing else, or answers them again. Each try
    /// fails after a second, as on a cluster.
    pub fn silence_registry(&self, silent: bool) {
        self.set(|plan| plan.registry_silent = silent);
    }

    /// How often the registry was read, by clients and by tools, whether it answered or not.
    #[must_use]
    pub fn registry_reads(&self) -> usize {
        self.set(|plan| plan.registry_reads)
    }

    /// Makes writes of when a host was seen fail, or succeed again. No other fault affects them:
    /// clients write them in the background, at times that tests don't choose.
    pub fn fail_last_seen(&self, fault: Option<Fault>) {
        self.set(|plan| plan.failing_last_seen = fault);
    }

    /// How often clients have tried to write that their host was seen.
    #[must_use]
    pub fn last_seen_writes(&self) -> usize {
        self.set(|plan| plan.last_seen_writes)
    }

    /// The most hosts that one read of the registry has returned since the last call of this.
    #[must_use]
    pub fn most_hosts_read(&self) -> usize {
        self.set(|plan| std::mem::take(&mut plan.most_hosts_read))
    }

    /// How often clients have begun to sweep an object, by writing its mark.
    #[must_use]
    pub fn sweeps(&self) -> usize {
        self.set(|plan| plan.sweeps)
    }

    /// Makes a call, unless it fails first; its answer may be lost.
    fn call<'a, T: Send + 'a>(&'a self, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let (fault, delay) = self.set(|plan| (plan.next_fault(), plan.delay));
            pass(delay / 2).await;
            let answer = meet(fault, call).await;
            let delay = self.set(|plan| plan.delay);
            pass(delay / 2).await;
            answer
        })
    }

    /// An error after some time if the registry does not answer.
    async fn ask_registry(&self) -> Result<(), DatabaseError> {
        let silent = self.set(|plan| {
            plan.registry_reads += 1;
            plan.registry_silent
        });
        if silent {
            pass(SILENCE).await;
            return Err(DatabaseError::new(Outcome::Unknown, INJECTED));
        }
        Ok(())
    }

    fn hosts_read(&self, hosts: usize) {
        self.set(|plan| plan.most_hosts_read = plan.most_hosts_read.max(hosts));
    }

    fn set<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for FaultyStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").finish_non_exhaustive()
    }
}

impl LockRows for FaultyStore {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        self.set(|plan| plan.sweeps += usize::from(write.change == Change::Mark));
        self.call(self.memory.write(object, write))
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        self.call(self.memory.read(object, read))
    }

    fn exchanges(&self) -> Option<&dyn Exchanges> {
        self.set(|plan| plan.exchanges).then_some(self)
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        self.call(self.memory.read_with_times(object))
    }

    fn parts(&self) -> Vec<Part> {
        self.memory.parts()
    }

    fn read_page<'a>(&'a self, part: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        self.call(self.memory.read_page(part, from))
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        self.call(self.memory.read_one_replica(object))
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        self.call(self.memory.read_stamps(object, contender))
    }

    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        self.call(self.memory.read_mark(object))
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        self.call(self.memory.read_fence(object))
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        self.call(self.memory.write_fence(object, value))
    }
}

impl Exchanges for FaultyStore {
    fn exchange<'a>(
        &'a self,
        object: &'a str,
        write: &'a Write,
        read: Read,
    ) -> StoreFuture<'a, Seen> {
        self.call(self.memory.exchange(object, write, read))
    }
}

impl HostTable for FaultyStore {
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async move {
            self.ask_registry().await?;
            let host = self.call(self.memory.read_host(name)).await?;
            self.hosts_read(host.iter().len());
            Ok(host)
        })
    }

    fn read_host_nearby<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        self.memory.read_host_nearby(name)
    }

    fn read_hosts<'a>(&'a self, after: &'a str) -> StoreFuture<'a, Vec<HostRow>> {
        Box::pin(async move {
            self.ask_registry().await?;
            let hosts = self.call(self.memory.read_hosts(after)).await?;
            self.hosts_read(hosts.len());
            Ok(hosts)
        })
    }

    fn read_next(&self) -> StoreFuture<'_, i32> {
        self.call(self.memory.read_next())
    }

    fn raise_next(&self, next: i32) -> StoreFuture<'_, ()> {
        self.call(self.memory.raise_next(next))
    }

    fn write_host<'a>(&'a self, host: &'a HostRow) -> StoreFuture<'a, ()> {
        self.call(self.memory.write_host(host))
    }

    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>> {
        self.call(self.memory.read_seen_since())
    }

    fn write_last_seen<'a>(&'a self, name: &'a str, at_micros: i64) -> StoreFuture<'a, ()> {
        let fault = self.set(|plan| {
            plan.last_seen_writes += 1;
            plan.failing_last_seen
        });
        Box::pin(meet(fault, self.memory.write_last_seen(name, at_micros)))
    }
}

impl PeerTable for FaultyStore {
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> StoreFuture<'a, ()> {
        self.call(self.memory.write_peer(peer, ttl_seconds))
    }

    fn read_peer(&self, client: Uuid) -> StoreFuture<'_, Option<PeerRow>> {
        self.call(self.memory.read_peer(client))
    }

    fn delete_peer(&self, client: Uuid, stamp: i64) -> StoreFuture<'_, ()> {
        self.call(self.memory.delete_peer(client, stamp))
    }
}

impl NodeProbe for FaultyStore {
    fn probe_nodes(&self) -> Testimonies<'_> {
        Box::pin(async move {
            let mut seen = self.memory.probe_nodes().await;
            let plan = self.set(|plan| {
                plan.looks += 1;
                *plan
            });
            pass(plan.delay).await;
            let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
            let (ahead, error) = (micros(plan.clocks_apart), micros(plan.clock_error));
            for ((_, report), ahead) in seen.iter_mut().zip([0, ahead]) {
                *report = report.filter(|_| !plan.silent).map(|mut told| {
                    told.clock.offset_micros += ahead;
                    told.clock.error_micros += error;
                    told.lock_table = told.lock_table.filter(|_| !plan.table_dropped);
                    told
                });
            }
            seen
        })
    }
}

impl Plan {
    fn next_fault(&mut self) -> Option<Fault> {
        if self.table_dropped {
            return Some(Fault::Refused);
        }
        let (calls, fault) = self.failing?;
        self.failing = (calls > 1).then_some((calls - 1, fault));
        Some(fault)
    }
}

/// Makes a call with the given fault.
async fn meet<T>(fault: Option<Fault>, call: StoreFuture<'_, T>) -> Result<T, DatabaseError> {
    match fault {
        None => call.await,
        Some(Fault::UnknownApplied) => {
            call.await?;
            Err(DatabaseError::new(Outcome::Unknown, INJECTED))
        }
        Some(Fault::NotApplied) => Err(DatabaseError::new(Outcome::NotApplied, INJECTED)),
        Some(Fault::UnknownNotApplied) => Err(DatabaseError::new(Outcome::Unknown, INJECTED)),
        Some(Fault::Refused) => Err(DatabaseError::permanent(INJECTED)),
        Some(Fault::LoginRefused) => {
            Err(DatabaseError::permanent(INJECTED).denied(Some(Denial::Login)))
        }
        Some(Fault::Panic) => panic!("{INJECTED}"),
    }
}

const INJECTED: &str = "a fault that a test asked for";

/// How long a try takes that gets no answer.
const SILENCE: Duration = Duration::from_secs(1);

async fn pass(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn signed_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("a clock is wrong by some years")
}
