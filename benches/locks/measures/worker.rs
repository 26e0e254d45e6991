//! A contender in a process of its own, which takes turns of others.
//!
//! It reads orders from its standard input and answers on its standard output, a line of JSON each.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::time::{Duration, timeout};

use crate::servers::cassandra::connect;
use crate::sides::bakery::BakeryLock;
use crate::sides::{Operations, Side};
use support::monotonic::now;
use support::worker::{next_order, say};

/// Lock and unlock a name until a moment.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) name: String,
    /// By the clock that all processes share, in nanoseconds.
    pub(crate) ends: u64,
}

/// What a worker says when it can begin.
pub(crate) const READY: &str = "ready";

/// What a worker got.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Served {
    pub(crate) holds: Vec<Hold>,
    /// How long it had waited in vain when the time was over, in nanoseconds.
    pub(crate) waited: u64,
    pub(crate) errors: Vec<String>,
    pub(crate) operations: Operations,
}

/// When a lock was asked for, granted and about to be released, by the clock that all processes
/// share, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Hold {
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) released: u64,
}

/// Does what it is ordered, until its standard input ends.
pub(crate) async fn run(nodes: &[String]) -> Result<()> {
    let session = connect(nodes).await?.into();
    let lock = Arc::new(BakeryLock::build_peer(&session).await?);
    say(READY)?;
    while let Some(order) = next_order().await? {
        let order = serde_json::from_str(&order)?;
        // In a task, as services do: each grant would have to wake up the main thread.
        let served = tokio::spawn(contend(Arc::clone(&lock), order)).await??;
        say(&serde_json::to_string(&served)?)?;
    }
    lock.shut_down().await
}

async fn contend(lock: Arc<BakeryLock>, order: Order) -> Result<Served> {
    let before = lock.operations();
    let mut served = Served::default();
    loop {
        let asked = now();
        let left = Duration::from_nanos(order.ends.saturating_sub(asked));
        if left.is_zero() {
            break;
        }
        match timeout(left, lock.lock(&order.name)).await {
            Ok(Ok(held)) => {
                let granted = now();
                let released = now();
                served.holds.push(Hold { asked, granted, released });
                if let Err(error) = lock.unlock(held).await {
                    served.errors.push(format!("{error:#}"));
                }
            }
            Ok(Err(error)) => served.errors.push(format!("{error:#}")),
            Err(_time_is_over) => served.waited = now() - asked,
        }
    }
    served.operations = lock.operations() - before;
    ensure!(served.errors.len() < 1_000, "nothing but errors: {:?}", served.errors.last());
    Ok(served)
}
