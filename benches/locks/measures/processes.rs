//! Contenders in processes of their own, which pass a lock on by message.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::measures::contended::{SETTLE, Slot};
use crate::measures::uncontended::record;
use crate::measures::worker::{Hold, Order, READY, Served};
use support::monotonic::now;
use support::worker::Worker;

/// Workers learn of an order one after the other, and begin together.
pub(crate) struct Processes(Vec<Worker>);

impl Processes {
    /// Starts so many processes, and waits until all can begin.
    pub(crate) async fn start(number: usize, nodes: &[String]) -> Result<Self> {
        let mut workers = Vec::new();
        for _ in 0..number {
            let worker = Worker::start(&["--worker", "--nodes", &nodes.join(",")], []);
            workers.push(worker.context("could not start a worker")?);
        }
        for worker in &mut workers {
            let said = worker.answer().await?;
            ensure!(said == READY, "a worker said: {said}");
        }
        Ok(Processes(workers))
    }

    /// Lets the first `contenders` of them lock and unlock `name` until the slot is over.
    pub(crate) async fn slot(
        &mut self,
        contenders: usize,
        name: &str,
        length: Duration,
    ) -> Result<Slot> {
        let ends = now() + u64::try_from(length.as_nanos())?;
        let order = serde_json::to_string(&Order { name: name.to_owned(), ends })?;
        let workers = &mut self.0[..contenders];
        for worker in &mut *workers {
            worker.tell(&order).await?;
        }
        let mut served = Vec::new();
        for worker in workers {
            served.push(serde_json::from_str(&worker.answer().await?)?);
        }
        tokio::time::sleep(SETTLE).await;
        slot_of(length, name, served)
    }

    /// Lets all of them end.
    pub(crate) async fn end(self) -> Result<()> {
        for worker in self.0 {
            worker.end().await?;
        }
        Ok(())
    }
}

/// What processes got in a slot. Those that hold the lock in turn are told by the order of grants.
fn slot_of(length: Duration, name: &str, served: Vec<Served>) -> Result<Slot> {
    let mut slot = Slot::new(length);
    let mut holds: Vec<(usize, Hold)> = Vec::new();
    for (worker, served) in served.into_iter().enumerate() {
        slot.grants.push(served.holds.len() as u64);
        for hold in &served.holds {
            record(&mut slot.waits, Duration::from_nanos(hold.granted - hold.asked));
        }
        if served.waited > 0 {
            record(&mut slot.waits, Duration::from_nanos(served.waited));
        }
        holds.extend(served.holds.into_iter().map(|hold| (worker, hold)));
        slot.errors.extend(served.errors);
        slot.operations = slot.operations + served.operations;
    }
    holds.sort_by_key(|(_, hold)| hold.granted);
    for pair in holds.windows(2) {
        let [(last, before), (next, after)] = pair else { continue };
        ensure!(before.released <= after.granted, "two processes held {name} at once");
        if last != next {
            slot.handoffs += 1;
            record(&mut slot.gaps, Duration::from_nanos(after.granted - before.released));
        }
    }
    Ok(slot)
}
