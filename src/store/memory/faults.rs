//! Knobs of the memory store for tests: calls that fail or take their time, and a clock that
//! follows tokio's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{MemoryStore, Shared};
use crate::clock::{Clock, SystemClock};
use crate::entropy::{SeededEntropy, SystemEntropy};
use crate::protocol::Read;
use crate::store::{DatabaseError, Node, NodeReport, Outcome};

/// How a call of a [`MemoryStore`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It is certainly not applied; another try may help.
    NotApplied,
    /// It is not applied, but the caller can't know.
    UnknownNotApplied,
    /// It is applied, but the caller can't know.
    UnknownApplied,
    /// It is refused for good, as when the table is gone.
    Refused,
    /// It is not applied, and the task that makes it panics: what a bug would do.
    Panic,
}

impl MemoryStore {
    /// An empty store whose rows expire by tokio's clock, so that a test with paused time moves
    /// them too. Clients of the store use the same clock.
    #[must_use]
    pub fn with_tokio_clock() -> Self {
        let clock = TokioClock::new();
        let faults =
            Faults { wall_micros_behind: Arc::clone(&clock.micros_behind), ..Faults::default() };
        let shared = Shared::new(Arc::new(clock), Arc::new(SystemEntropy));
        Self::from(Shared { faults, ..shared })
    }

    /// The same store, whose clients draw from `seed` what tells them apart and how they spread
    /// their pauses. On [tokio's clock](Self::with_tokio_clock) a run is repeated by its seed then.
    ///
    /// # Panics
    ///
    /// When the store has been cloned, or has clients already.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        let shared = Arc::get_mut(&mut self.shared);
        let shared = shared.expect("a store is seeded before anything else is done with it");
        shared.entropy = Arc::new(SeededEntropy::new(seed));
        self
    }

    /// Sets the wall clock back by `by`, for a store made by
    /// [`with_tokio_clock`](Self::with_tokio_clock) and its clients. Elapsed time goes on.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_wall_clock_back(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).expect("a clock is set back by some years");
        self.shared.faults.wall_micros_behind.fetch_add(by, Ordering::Relaxed);
    }

    /// Sets the wall clock ahead by `by`, for a store made by
    /// [`with_tokio_clock`](Self::with_tokio_clock) and its clients. Elapsed time goes on.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_wall_clock_ahead(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).expect("a clock is set ahead by some years");
        self.shared.faults.wall_micros_behind.fetch_sub(by, Ordering::Relaxed);
    }

    /// Lets the next `calls` calls fail, whatever they are but looks at clocks and table; replaces
    /// what was asked for before, so that 0 ends it.
    pub fn fail_next(&self, calls: usize, fault: Fault) {
        self.shared.faults.set(|plan| plan.failing = (calls > 0).then_some((calls, fault)));
    }

    /// How many rows of an object a read would show now.
    #[must_use]
    pub fn live_rows(&self, object: &str) -> usize {
        self.tables().read(object, Read::Object, self.shared.clock.elapsed()).len()
    }

    /// Forgets the rows of an object, as replicas do that lose what they had acknowledged. The
    /// fence stays, and nothing is remembered as deleted.
    pub fn lose_rows(&self, object: &str) {
        for replica in &mut self.tables().replicas {
            replica.objects.remove(object);
        }
    }

    /// Raises the fence of an object to `ahead` of the clock, as a client whose clock is wrong by
    /// as much would.
    ///
    /// # Panics
    ///
    /// When that is more than 290,000 years.
    pub fn set_fence_ahead(&self, object: &str, ahead: Duration) {
        let ahead = i64::try_from(ahead.as_micros()).expect("a clock is wrong by some years");
        let (clock, mut tables) = (&self.shared.clock, self.tables());
        tables.write_fence(object, clock.unix_micros() + ahead, clock.elapsed());
    }

    /// Lets the clock of the second of two nodes be so far ahead. With `None` no node answers when
    /// it is asked for its clock and the table.
    pub fn set_clocks_apart(&self, apart: Option<Duration>) {
        self.shared.faults.set(|plan| {
            plan.silent = apart.is_none();
            plan.clocks_apart = apart.unwrap_or_default();
        });
    }

    /// Lets clocks be measured no more exactly than this, as far from their nodes.
    pub fn set_clock_error(&self, error: Duration) {
        self.shared.faults.set(|plan| plan.clock_error = error);
    }

    /// Drops the lock table: its rows are gone, and all calls are refused.
    pub fn drop_table(&self) {
        self.tables().replicas = Default::default();
        self.shared.faults.set(|plan| plan.table_dropped = true);
        self.fail_next(usize::MAX, Fault::Refused);
    }

    /// Makes the lock table again after it was [dropped](Self::drop_table): an empty one, whose id
    /// is another one.
    pub fn make_table_again(&self) {
        let another = self.lock_table_id().as_u128() + 1;
        self.tables().lock_table = Uuid::from_u128(another);
        self.shared.faults.set(|plan| plan.table_dropped = false);
        self.fail_next(0, Fault::Refused);
    }

    /// How often clients have looked at clocks and table since they were built.
    #[must_use]
    pub fn looks(&self) -> usize {
        self.shared.faults.set(|plan| plan.looks)
    }

    /// Lets reads of the registry go unanswered, and nothing else, or lets them be answered again.
    pub fn silence_registry(&self, silent: bool) {
        self.shared.faults.set(|plan| plan.registry_silent = silent);
    }

    /// How many hosts one read of the registry has brought at most, since this was asked for last.
    #[must_use]
    pub fn most_hosts_read(&self) -> usize {
        self.shared.faults.set(|plan| std::mem::take(&mut plan.most_hosts_read))
    }

    /// Lets each call take `delay`: half of it passes before the call is applied, half after.
    pub fn delay_calls(&self, delay: Duration) {
        self.shared.faults.set(|plan| plan.delay = delay);
    }
}

/// What was asked for.
#[derive(Default)]
pub(super) struct Faults {
    plan: Mutex<Plan>,
    /// By how much the wall clock was set back; a [`TokioClock`] looks at it.
    wall_micros_behind: Arc<AtomicI64>,
}

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
    most_hosts_read: usize,
}

impl Faults {
    /// Called before the registry is read; an error when it does not answer.
    pub(super) fn ask_registry(&self) -> Result<(), DatabaseError> {
        if self.set(|plan| plan.registry_silent) {
            return Err(DatabaseError::new(Outcome::Unknown, INJECTED));
        }
        Ok(())
    }

    /// Notes that one read has brought so many hosts.
    pub(super) fn hosts_read(&self, hosts: usize) {
        self.set(|plan| plan.most_hosts_read = plan.most_hosts_read.max(hosts));
    }

    /// Called before a call is applied; an error when it must not be. What it returns is to be
    /// given to [`Faults::end`].
    pub(super) async fn begin(&self) -> Result<Option<Fault>, DatabaseError> {
        let (fault, delay) = self.set(|plan| (plan.next_fault(), plan.delay));
        pass(delay / 2).await;
        match fault {
            None | Some(Fault::UnknownApplied) => Ok(fault),
            Some(Fault::NotApplied) => Err(DatabaseError::new(Outcome::NotApplied, INJECTED)),
            Some(Fault::UnknownNotApplied) => Err(DatabaseError::new(Outcome::Unknown, INJECTED)),
            Some(Fault::Refused) => Err(DatabaseError::permanent(INJECTED)),
            Some(Fault::Panic) => panic!("{INJECTED}"),
        }
    }

    /// Called after a call was applied.
    pub(super) async fn end(&self, fault: Option<Fault>) -> Result<(), DatabaseError> {
        let delay = self.set(|plan| plan.delay);
        pass(delay / 2).await;
        match fault {
            None => Ok(()),
            Some(_) => Err(DatabaseError::new(Outcome::Unknown, INJECTED)),
        }
    }

    /// What is seen instead of what there is.
    pub(super) async fn disturb(
        &self,
        mut seen: Vec<(Node, Option<NodeReport>)>,
    ) -> Vec<(Node, Option<NodeReport>)> {
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
    }

    fn set<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Plan {
    fn next_fault(&mut self) -> Option<Fault> {
        let (calls, fault) = self.failing?;
        self.failing = (calls > 1).then_some((calls - 1, fault));
        Some(fault)
    }
}

const INJECTED: &str = "a fault that a test asked for";

async fn pass(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// A clock that follows tokio's, paused or not.
#[derive(Debug)]
struct TokioClock {
    origin: Instant,
    unix_origin_micros: i64,
    micros_behind: Arc<AtomicI64>,
}

impl TokioClock {
    fn new() -> Self {
        TokioClock {
            origin: Instant::now(),
            unix_origin_micros: SystemClock::new().unix_micros(),
            micros_behind: Arc::default(),
        }
    }
}

impl Clock for TokioClock {
    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    fn since_boot(&self) -> Duration {
        self.origin.elapsed()
    }

    fn unix_micros(&self) -> i64 {
        let elapsed = i64::try_from(self.elapsed().as_micros());
        let elapsed = elapsed.expect("a test does not run for a thousand years");
        self.unix_origin_micros + elapsed - self.micros_behind.load(Ordering::Relaxed)
    }
}
