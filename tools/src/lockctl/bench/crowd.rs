//! What clients get when all of them want one lock.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bakery_lock::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::report::nanos;
use crate::output::chain;

/// What they got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// How long they tried.
    pub(super) time: Duration,
    /// How often each got the lock.
    pub(super) grants: Vec<u64>,
    /// How often it went from one to another.
    pub(super) handoffs: u64,
    /// How long they waited, in nanoseconds. One that still waits when the time is over counts with
    /// its wait until then.
    pub(super) waits: Vec<u64>,
    /// Operations of the database.
    pub(super) operations: u64,
    /// What was said, and how often.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Served {
    pub(super) fn new(clients: u16) -> Self {
        Served {
            time: Duration::ZERO,
            grants: vec![0; usize::from(clients)],
            handoffs: 0,
            waits: Vec::new(),
            operations: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Adds what the same clients got in another block.
    pub(super) fn add(&mut self, other: Served) {
        let Served { time, grants, handoffs, waits, operations, errors } = other;
        self.time += time;
        self.grants.iter_mut().zip(grants).for_each(|(sum, grants)| *sum += grants);
        self.handoffs += handoffs;
        self.waits.extend(waits);
        self.operations += operations;
        for (error, count) in errors {
            *self.errors.entry(error).or_default() += count;
        }
    }

    fn fail(&mut self, error: &dyn Error) {
        *self.errors.entry(chain(error)).or_default() += 1;
    }

    pub(super) fn total(&self) -> u64 {
        self.grants.iter().sum()
    }

    pub(super) fn per_second(&self, count: u64) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// The grants of the worst-served client, of the mean; `None` of too few grants.
    pub(super) fn worst_share(&self) -> Option<f64> {
        const MEAN_MIN: u64 = 10;
        let worst = self.grants.iter().copied().min()?;
        let (total, clients) = (self.total(), self.grants.len() as u64);
        (total >= MEAN_MIN * clients).then(|| (worst * clients) as f64 / total as f64)
    }

    pub(super) fn operations_per_grant(&self) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| self.operations as f64 / total as f64)
    }
}

/// Lets all clients lock and unlock a name for so long.
///
/// # Cancel safety
///
/// If the future is dropped, the clients stop, and give back what they hold.
pub(super) async fn contend(clients: &[LockClient], name: &str, length: Duration) -> Served {
    let before = operations(clients);
    // No client was inside yet.
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let end = Instant::now() + length;
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let (client, name, last) = (client.clone(), name.to_owned(), Arc::clone(&last));
        tasks.spawn(async move { (number, lock_until(&client, &name, number, &last, end).await) });
    }
    let mut served = Served::new(0);
    served.grants = vec![0; clients.len()];
    while let Some(one) = tasks.join_next().await {
        let (number, mut one) = one.expect("a client does not panic");
        let mut grants = vec![0; clients.len()];
        grants[number] = one.total();
        one.grants = grants;
        served.add(one);
    }
    served.time = length;
    served.operations = operations(clients) - before;
    served
}

/// What one client gets.
async fn lock_until(
    client: &LockClient,
    name: &str,
    number: usize,
    last: &AtomicUsize,
    end: Instant,
) -> Served {
    let mut served = Served::new(1);
    while Instant::now() < end {
        let asked = Instant::now();
        let acquired = timeout_at(end, client.lock(name)).await;
        served.waits.push(nanos(asked.elapsed()));
        match acquired {
            Ok(Ok(guard)) => {
                served.grants[0] += 1;
                let last = last.swap(number, Ordering::Relaxed);
                served.handoffs += u64::from(last != number && last != usize::MAX);
                if let Err(error) = guard.unlock().await {
                    served.fail(&error);
                }
            }
            Ok(Err(error)) => served.fail(&error),
            Err(_time_is_over) => break,
        }
    }
    served
}

/// What clients have asked of the database so far.
fn operations(clients: &[LockClient]) -> u64 {
    clients.iter().map(|client| client.statistics().operations()).sum()
}

#[cfg(test)]
mod tests {
    use bakery_lock::MemoryStore;

    use super::*;

    // Goal: what clients of one lock get is counted: grants of each, handoffs, waits.
    // Method: three clients on a store in memory, in as many blocks as it takes to serve them all.
    #[tokio::test]
    async fn clients_are_served_and_counted() {
        let store = MemoryStore::new();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let builder = LockClient::builder_in_memory(&store);
            clients.push(builder.build().await.expect("the store is ready"));
        }
        let block = Duration::from_millis(100);
        let (mut all, mut blocks) = (Served::new(3), 0);
        while blocks < 2 || all.grants.contains(&0) {
            all.add(contend(&clients, "a", block).await);
            blocks += 1;
        }
        assert_eq!((all.time, &all.errors), (block * blocks, &BTreeMap::new()));
        assert!(all.handoffs > 0 && all.handoffs < all.total(), "{all:?}");
        assert!(all.waits.len() as u64 >= all.total(), "{all:?}");
        assert!(all.operations >= 3 * all.handoffs, "{all:?}");
    }

    #[test]
    fn shares_are_of_the_mean() {
        let mut served = Served::new(2);
        assert_eq!((served.worst_share(), served.operations_per_grant()), (None, None));
        served.grants = vec![10, 30];
        served.operations = 120;
        served.time = Duration::from_secs(4);
        assert_eq!(served.worst_share(), Some(0.5));
        assert_eq!(served.operations_per_grant(), Some(3.0));
        assert_eq!(Served { grants: vec![5, 14], ..served.clone() }.worst_share(), None);
        assert!((served.per_second(served.total()) - 10.0).abs() < 1e-9);
    }
}
