//! Very many guests of one object.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bakery_lock::{LockClient, LockGuard};
use support::scene::Scene;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::process::{Process, Task, own_processor_time};
use crate::{MEMORY, peer};

/// This many clients are built at a time.
const BUILT_AT_ONCE: usize = 20;

/// This many guests come to the line at a time: a busy keeper does not answer within 20 ms.
const COME_AT_ONCE: usize = 8;

/// A guest that is not in the line by then tries again.
const IN_LINE_MAX: Duration = Duration::from_secs(2);

/// What they cost.
pub(crate) struct Guests {
    guests: usize,
    /// While all wait.
    waiting: Load,
    /// While they have their turns.
    served: Load,
    grants: u64,
    /// The grants of the worst-served guest, by the mean.
    worst_share: f64,
    /// Bytes in use in the process of the guests, for each of them.
    memory: usize,
}

/// What two processes use, a second.
struct Load {
    keeper: Use,
    guests: Use,
}

#[derive(Clone, Copy)]
struct Use {
    processor: f64,
    messages: f64,
}

/// A guest in the line.
pub(crate) struct Guest {
    pub(crate) client: LockClient,
    pub(crate) asking: JoinHandle<Result<LockGuard, bakery_lock::LockError>>,
}

/// Lets this many guests wait for one object, and then serves them.
pub(crate) async fn measure(scene: &Scene, guests: usize, length: Duration) -> Result<Guests> {
    let name = support::unique("guests");
    let mut keeper = Process::start(scene, Task::Keep, &name, guests + 1).await?;
    let before = MEMORY.current_usage();
    let clients = build(scene, guests).await?;
    let line = line(&clients, &name).await?;
    let memory = (MEMORY.current_usage() - before) / guests;
    let waiting = load(&mut keeper, &clients, length).await?;
    keeper.release().await?;
    let ends = Instant::now() + length;
    let serving: Vec<_> =
        line.into_iter().map(|guest| tokio::spawn(serve(guest, name.clone(), ends))).collect();
    let served = load(&mut keeper, &clients, length).await?;
    let mut grants = Vec::new();
    for guest in serving {
        grants.push(guest.await??);
    }
    for client in clients {
        client.shutdown().await?;
    }
    keeper.end().await?;
    let total: u64 = grants.iter().sum();
    let worst = *grants.iter().min().context("there are guests")?;
    let worst_share = (worst * guests as u64) as f64 / total as f64;
    Ok(Guests { guests, waiting, served, grants: total, worst_share, memory })
}

/// Clients that keep no place for others.
pub(crate) async fn build(scene: &Scene, guests: usize) -> Result<Vec<LockClient>> {
    let mut clients = Vec::new();
    while clients.len() < guests {
        let mut building = JoinSet::new();
        for _ in 0..BUILT_AT_ONCE.min(guests - clients.len()) {
            let scene = scene.clone();
            building.spawn(async move { peer(&scene, None).await });
        }
        for client in building.join_all().await {
            clients.push(client?);
        }
    }
    Ok(clients)
}

/// Lets all of them come to the line.
pub(crate) async fn line(clients: &[LockClient], name: &str) -> Result<Vec<Guest>> {
    let mut line = Vec::new();
    for some in clients.chunks(COME_AT_ONCE) {
        let mut coming = JoinSet::new();
        for client in some {
            coming.spawn(come(client.clone(), name.to_owned()));
        }
        for guest in coming.join_all().await {
            line.push(guest?);
        }
    }
    Ok(line)
}

/// Comes to the line. A guest that stands in it has deleted its rows.
async fn come(client: LockClient, name: String) -> Result<Guest> {
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        let before = client.statistics().deletes;
        let request = client.request(&name);
        let asking = tokio::spawn(request.acquire());
        let leaves_the_table = async {
            while client.statistics().deletes == before {
                sleep(Duration::from_millis(5)).await;
            }
        };
        if timeout(IN_LINE_MAX, leaves_the_table).await.is_ok() {
            return Ok(Guest { client, asking });
        }
        asking.abort();
        sleep(Duration::from_millis(200)).await;
    }
    anyhow::bail!("the keeper did not let a guest into its line")
}

/// Locks and unlocks until a moment; returns how often.
async fn serve(guest: Guest, name: String, ends: Instant) -> Result<u64> {
    let mut guard = guest.asking.await??;
    let mut grants = 0;
    loop {
        grants += 1;
        guard.unlock().await?;
        let Some(left) = ends.checked_duration_since(Instant::now()) else {
            return Ok(grants);
        };
        match timeout(left, guest.client.lock(&name)).await {
            Ok(locked) => guard = locked?,
            Err(_time_is_over) => return Ok(grants),
        }
    }
}

/// What both processes use for so long.
async fn load(keeper: &mut Process, clients: &[LockClient], length: Duration) -> Result<Load> {
    let began = Instant::now();
    let before = used(keeper, clients).await?;
    sleep(length).await;
    let after = used(keeper, clients).await?;
    let seconds = began.elapsed().as_secs_f64();
    let each = |after: Use, before: Use| Use {
        processor: (after.processor - before.processor) / seconds,
        messages: (after.messages - before.messages) / seconds,
    };
    let (keeper, guests) = (each(after.0, before.0), each(after.1, before.1));
    Ok(Load { keeper, guests })
}

async fn used(keeper: &mut Process, clients: &[LockClient]) -> Result<(Use, Use)> {
    let messages = keeper.messages().await? as f64;
    let by_keeper = Use { processor: keeper.processor_time()?, messages };
    let sent: u64 = clients.iter().map(|client| client.statistics().messages).sum();
    let by_guests = Use { processor: own_processor_time()?, messages: sent as f64 };
    Ok((by_keeper, by_guests))
}

impl fmt::Display for Guests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Guests { guests, waiting, served, grants, worst_share, memory } = self;
        writeln!(f, "{guests} guests of one object, in one process; the keeper in another one:")?;
        writeln!(f, "  {memory} bytes each, client and connection")?;
        writeln!(f, "  while all wait, a second: {waiting}")?;
        writeln!(f, "  while they have turns, a second: {served}")?;
        write!(f, "  {grants} grants, the worst-served guest has {worst_share:.2} of the mean")
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { keeper, guests } = self;
        write!(f, "keeper {keeper}; guests {guests}")
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Use { processor, messages } = self;
        write!(f, "{processor:.3} s of processor time and {messages:.0} messages")
    }
}
