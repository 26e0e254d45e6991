//! What contenders get when all of them want one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::measures::uncontended::{nanoseconds, record};
use crate::sides::{Operations, Side};
use support::monotonic::now;

/// After a slot the last releases and withdrawals are still on their way.
pub(crate) const SETTLE: Duration = Duration::from_millis(500);

/// What contenders got in one slot.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// How long it was.
    pub(crate) length: Duration,
    /// How often each contender got the lock.
    pub(crate) grants: Vec<u64>,
    /// How often the lock went from one contender to another.
    pub(crate) handoffs: u64,
    /// How long that took: from one that is about to unlock to the other's guard, in nanoseconds.
    pub(crate) gaps: Histogram<u64>,
    /// How long they waited, in nanoseconds. A contender that still waited when the slot ended
    /// counts with its wait until then.
    pub(crate) waits: Histogram<u64>,
    /// Acquisitions and releases that ended with an error, and what they said.
    pub(crate) errors: Vec<String>,
    /// What they asked of the database.
    pub(crate) operations: Operations,
}

impl Slot {
    pub(crate) fn new(length: Duration) -> Self {
        Slot {
            length,
            grants: Vec::new(),
            handoffs: 0,
            gaps: nanoseconds(),
            waits: nanoseconds(),
            errors: Vec::new(),
            operations: Operations::default(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.grants.iter().sum()
    }

    pub(crate) fn grants_per_second(&self) -> f64 {
        self.total() as f64 / self.length.as_secs_f64()
    }

    pub(crate) fn handoffs_per_second(&self) -> f64 {
        self.handoffs as f64 / self.length.as_secs_f64()
    }

    /// The grants of the worst-served contender, of the mean; 0 where no contender got any.
    pub(crate) fn worst_share(&self) -> f64 {
        let worst = self.grants.iter().copied().min().unwrap_or(0);
        let mean = self.total() as f64 / self.grants.len() as f64;
        if worst == 0 { 0.0 } else { worst as f64 / mean }
    }
}

/// Lets all contenders, each a client of its own or all tasks of one client, lock and unlock `name`
/// until the slot is over.
/// They do nothing while they hold it, so that only the lock is measured.
pub(crate) async fn slot<S: Side>(
    contenders: &[Arc<S>],
    name: &str,
    length: Duration,
) -> Result<Slot> {
    let before = operations(contenders);
    let stage = Arc::new(Stage {
        occupied: AtomicBool::new(false),
        last: AtomicUsize::new(NO_CONTENDER),
        left: AtomicU64::new(0),
    });
    let end = Instant::now() + length;
    let mut tasks = JoinSet::new();
    for (number, contender) in contenders.iter().enumerate() {
        let contention = Contention {
            number,
            side: Arc::clone(contender),
            name: Arc::from(name),
            stage: Arc::clone(&stage),
            end,
        };
        tasks.spawn(contention.run());
    }
    let mut slot = Slot::new(length);
    while let Some(served) = tasks.join_next().await {
        let served = served??;
        slot.grants.push(served.grants);
        slot.handoffs += served.handoffs;
        slot.gaps.add(&served.gaps)?;
        slot.waits.add(&served.waits)?;
        slot.errors.extend(served.errors);
    }
    slot.operations = operations(contenders) - before;
    tokio::time::sleep(SETTLE).await;
    Ok(slot)
}

/// What contenders have asked of the database so far. Several may be tasks of one client.
fn operations<S: Side>(contenders: &[Arc<S>]) -> Operations {
    let is_first = |i: usize, client: &Arc<S>| {
        !contenders[..i].iter().any(|earlier| Arc::ptr_eq(earlier, client))
    };
    let clients = contenders.iter().enumerate().filter(|(i, client)| is_first(*i, client));
    clients.map(|(_, client)| client.operations()).sum()
}

/// One contender in a slot.
struct Contention<S> {
    number: usize,
    side: Arc<S>,
    name: Arc<str>,
    stage: Arc<Stage>,
    end: Instant,
}

/// What the lock protects.
struct Stage {
    /// Whether a contender is inside.
    occupied: AtomicBool,
    /// The contender that was inside last.
    last: AtomicUsize,
    /// When it was about to unlock, by the monotonic clock.
    left: AtomicU64,
}

/// Stands for no contender.
const NO_CONTENDER: usize = usize::MAX;

/// What one contender got.
struct Served {
    grants: u64,
    handoffs: u64,
    gaps: Histogram<u64>,
    waits: Histogram<u64>,
    errors: Vec<String>,
}

impl<S: Side> Contention<S> {
    async fn run(self) -> Result<Served> {
        let (gaps, waits, errors) = (nanoseconds(), nanoseconds(), Vec::new());
        let mut served = Served { grants: 0, handoffs: 0, gaps, waits, errors };
        while Instant::now() < self.end {
            let asked = Instant::now();
            let answer = timeout_at(self.end, self.side.lock(&self.name)).await;
            record(&mut served.waits, asked.elapsed());
            match answer {
                Ok(Ok(held)) => {
                    served.grants += 1;
                    let alone = !self.stage.occupied.swap(true, Ordering::SeqCst);
                    ensure!(alone, "two contenders held {} at once", self.name);
                    let last = self.stage.last.swap(self.number, Ordering::SeqCst);
                    if last != self.number && last != NO_CONTENDER {
                        served.handoffs += 1;
                        let left = self.stage.left.load(Ordering::SeqCst);
                        record(&mut served.gaps, Duration::from_nanos(now() - left));
                    }
                    self.stage.occupied.store(false, Ordering::SeqCst);
                    self.stage.left.store(now(), Ordering::SeqCst);
                    served.note(self.side.unlock(held).await);
                }
                Ok(Err(error)) => served.note(Err(error)),
                Err(_slot_is_over) => break,
            }
        }
        Ok(served)
    }
}

impl Served {
    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.errors.push(format!("{error:#}"));
        }
    }
}
