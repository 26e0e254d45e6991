//! Clients in processes of their own.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use bakery_lock::LockClient;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::processor;
use support::scene::Scene;
use support::worker::{Worker, next_order, say};
use tokio::task::JoinHandle;

use crate::peer;

/// What a process does.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    task: Task,
    keyspace: String,
    name: String,
    /// How many guests it lets in.
    guests: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Locks and unlocks a name all the time.
    Busy,
    /// Holds a name until it is told to release it.
    Keep,
}

impl Role {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let [task, keyspace, name, guests] = arguments else {
            bail!("a worker has four arguments");
        };
        let task = if task == "busy" { Task::Busy } else { Task::Keep };
        let (keyspace, name) = (keyspace.clone(), name.clone());
        Ok(Role { task, keyspace, name, guests: guests.parse()? })
    }
}

/// A client in another process.
pub(crate) struct Process(Worker);

impl Process {
    /// Starts one. It has locked the name when this returns.
    pub(crate) async fn start(
        scene: &Scene,
        task: Task,
        name: &str,
        guests: usize,
    ) -> Result<Self> {
        let task = match task {
            Task::Busy => "busy",
            Task::Keep => "keep",
        };
        let nodes: Vec<_> = support::nodes().await.iter().map(SocketAddr::to_string).collect();
        let environment = [("BAKERY_LOCK_TEST_NODES", nodes.join(","))];
        let arguments = ["--worker", task, &scene.keyspace, name, &guests.to_string()];
        let mut worker = Worker::start(&arguments, environment)?;
        worker.answer().await?;
        Ok(Process(worker))
    }

    /// Lets it release the name.
    pub(crate) async fn release(&mut self) -> Result<()> {
        self.0.tell("release").await?;
        self.0.answer().await?;
        Ok(())
    }

    /// Lets it lock the name again and again: its line is never empty.
    pub(crate) async fn join(&mut self) -> Result<()> {
        self.0.tell("join").await?;
        self.0.answer().await?;
        Ok(())
    }

    /// How many messages it has sent.
    pub(crate) async fn messages(&mut self) -> Result<u64> {
        self.0.tell("messages").await?;
        Ok(self.0.answer().await?.parse()?)
    }

    /// How often its own callers had a lock.
    pub(crate) async fn grants(&mut self) -> Result<u64> {
        self.0.tell("grants").await?;
        Ok(self.0.answer().await?.parse()?)
    }

    /// The processor time that it has used, in seconds.
    pub(crate) fn processor_time(&self) -> Result<f64> {
        let id = self.0.id().context("it runs")?;
        Ok(processor::time_of(id)?.as_secs_f64())
    }

    pub(crate) async fn end(self) -> Result<()> {
        Ok(self.0.end().await?)
    }
}

/// The processor time that this process has used, in seconds.
pub(crate) fn own_processor_time() -> Result<f64> {
    Ok(processor::time_of(std::process::id())?.as_secs_f64())
}

/// A connection is an open file, and there are thousands.
pub(crate) fn allow_open_files() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Does what the role says, until its standard input ends.
pub(crate) async fn run(role: &Role) -> Result<()> {
    let scene = Scene::in_keyspace(&role.keyspace).await;
    let client = peer(&scene, Some(role.guests)).await?;
    let mut kept = Some(client.lock(&role.name).await?);
    let mut busy = None;
    say("locked")?;
    if let Task::Busy = role.task {
        kept.take().context("it was locked")?.unlock().await?;
        busy = Some(keep_busy(client.clone(), role.name.clone()));
    }
    while let Some(order) = next_order().await? {
        match order.trim() {
            "release" => {
                kept.take().context("it is kept")?.unlock().await?;
                say("released")?;
            }
            "join" => {
                busy = Some(keep_busy(client.clone(), role.name.clone()));
                say("joined")?;
            }
            "messages" => say(&client.statistics().messages.to_string())?,
            "grants" => say(&client.statistics().grants.to_string())?,
            other => bail!("unknown order {other}"),
        }
    }
    if let Some(busy) = busy {
        busy.abort();
    }
    Ok(client.shutdown().await?)
}

fn keep_busy(client: LockClient, name: String) -> JoinHandle<Result<()>> {
    tokio::spawn(async move {
        loop {
            client.lock(&name).await?.unlock().await?;
        }
    })
}
