//! Workers of one kind: as many as a measure needs, started when they are first needed.

use anyhow::{Context, Result, ensure};
use support::worker::Worker;

use crate::measures::orders::{Answer, Order, READY};
use crate::sides::{Setup, Tuning};

/// This many are started at a time: they share the processors with the servers that they connect
/// to.
const AT_ONCE: usize = 16;

/// This many stay for the next measure.
const KEPT: usize = 32;

pub(crate) struct Pool {
    setup: Setup,
    workers: Vec<Worker>,
}

impl Pool {
    pub(crate) fn new(setup: Setup) -> Self {
        Pool { setup, workers: Vec::new() }
    }

    /// Starts workers until there are this many, and lets all of them take these parameters.
    pub(crate) async fn ready(&mut self, number: usize, tuning: Tuning) -> Result<()> {
        if self.setup.tuning != tuning {
            self.setup.tuning = tuning;
            let order = serde_json::to_string(&Order::Tune(tuning))?;
            for worker in &mut self.workers {
                worker.tell(&order).await?;
            }
            for worker in &mut self.workers {
                hear_ready(worker).await?;
            }
        }
        while self.workers.len() < number {
            let mut started = Vec::new();
            for _ in 0..AT_ONCE.min(number - self.workers.len()) {
                let setup = serde_json::to_string(&self.setup)?;
                let arguments = ["--worker", setup.as_str()];
                let worker = match &self.setup.program {
                    Some(program) => Worker::start_other(program, &arguments),
                    None => Worker::start(&arguments, []),
                };
                started.push(worker.context("could not start a worker")?);
            }
            for mut worker in started {
                hear_ready(&mut worker).await?;
                self.workers.push(worker);
            }
        }
        Ok(())
    }

    /// Gives the first this many workers an order, and waits for what they answer.
    pub(crate) async fn order(&mut self, number: usize, order: &Order) -> Result<Vec<Answer>> {
        self.tell(0..number, order).await?;
        self.answers(0..number).await
    }

    pub(crate) async fn tell(
        &mut self,
        workers: std::ops::Range<usize>,
        order: &Order,
    ) -> Result<()> {
        let order = serde_json::to_string(order)?;
        for worker in &mut self.workers[workers] {
            worker.tell(&order).await?;
        }
        Ok(())
    }

    pub(crate) async fn answers(&mut self, workers: std::ops::Range<usize>) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        let kind = self.setup.kind.label();
        for worker in &mut self.workers[workers] {
            let answer = worker.answer().await.with_context(|| format!("{kind} failed"))?;
            answers.push(serde_json::from_str(&answer)?);
        }
        Ok(answers)
    }

    /// Kills a worker as `kill -9` does. It answers no more.
    pub(crate) fn kill(&mut self, worker: usize) -> Result<()> {
        // Dropping it kills its process.
        drop(self.workers.remove(worker));
        Ok(())
    }

    /// Lets those end that no measure of less than very many contenders needs.
    pub(crate) async fn shrink(&mut self) -> Result<()> {
        self.keep(KEPT).await
    }

    /// Lets all of them end.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.keep(0).await
    }

    async fn keep(&mut self, number: usize) -> Result<()> {
        for worker in self.workers.drain(number.min(self.workers.len())..) {
            worker.end().await.with_context(|| format!("{} failed", self.setup.kind.label()))?;
        }
        Ok(())
    }
}

async fn hear_ready(worker: &mut Worker) -> Result<()> {
    let said = worker.answer().await?;
    ensure!(said == READY, "a worker said: {said}");
    Ok(())
}
