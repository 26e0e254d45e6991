//! Very many objects that two clients use in turn.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use bakery_lock::{LockClient, LockGuard};
use support::scene::Scene;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{MEMORY, peer};

/// This many objects are in use at a time.
const AT_ONCE: usize = 1_000;

/// The second client need not stand in the line of each object: a busy keeper does not answer at
/// once.
const IN_LINE_MAX: Duration = Duration::from_secs(2);

/// Until what is remembered for a while is forgotten.
const FORGET: Duration = Duration::from_secs(5);

/// What they take.
pub(crate) struct Objects {
    objects: usize,
    time: Duration,
    /// Turns that one client gave to the other.
    subleases: u64,
    /// Bytes for each object that one client holds,
    held: usize,
    /// and the other one waits for,
    waited_for: usize,
    /// Bytes in use afterwards, more than before.
    left: isize,
}

/// Lets two clients use this many objects in turn.
pub(crate) async fn measure(scene: &Scene, objects: usize) -> Result<Objects> {
    let clients = [peer(scene, Some(1)).await?, peer(scene, Some(1)).await?];
    // What is made once, such as the connections.
    use_in_turn(&clients, AT_ONCE).await?;
    sleep(FORGET).await;
    let (began, before) = (Instant::now(), MEMORY.current_usage());
    let mut total =
        Objects { objects, time: Duration::ZERO, subleases: 0, held: 0, waited_for: 0, left: 0 };
    for _ in 0..objects / AT_ONCE {
        let Used { subleases, held, waited_for } = use_in_turn(&clients, AT_ONCE).await?;
        total.subleases += subleases;
        total.held = total.held.max(held / AT_ONCE);
        total.waited_for = total.waited_for.max(waited_for / AT_ONCE);
    }
    total.time = began.elapsed();
    sleep(FORGET).await;
    total.left = MEMORY.current_usage().cast_signed() - before.cast_signed();
    for client in clients {
        client.shutdown().await?;
    }
    Ok(total)
}

struct Used {
    subleases: u64,
    /// Bytes more than before, while one client holds all of them,
    held: usize,
    /// and while the other one waits for all of them.
    waited_for: usize,
}

/// One client holds new objects; the other one waits for all of them, and has them next.
async fn use_in_turn([one, other]: &[LockClient; 2], objects: usize) -> Result<Used> {
    let names: Vec<_> = (0..objects).map(|_| support::unique("objects")).collect();
    let before = MEMORY.current_usage();
    let mut locking = lock_all(one, &names);
    let held_by_one = guards(&mut locking).await?;
    let held = MEMORY.current_usage().saturating_sub(before);
    let left = other.statistics().deletes;
    let mut waiting = lock_all(other, &names);
    let asked = Instant::now();
    let all = objects as u64;
    while other.statistics().deletes - left < all && asked.elapsed() < IN_LINE_MAX {
        sleep(Duration::from_millis(10)).await;
    }
    // Those that do not wait in the table.
    let subleases = other.statistics().deletes - left;
    let waited_for = MEMORY.current_usage().saturating_sub(before);
    unlock_all(held_by_one).await?;
    let held_by_other = guards(&mut waiting).await?;
    unlock_all(held_by_other).await?;
    Ok(Used { subleases, held, waited_for })
}

fn lock_all(client: &LockClient, names: &[String]) -> JoinSet<Result<LockGuard>> {
    let mut locking = JoinSet::new();
    for name in names {
        let (client, name) = (client.clone(), name.clone());
        locking.spawn(async move { Ok(client.lock(&name).await?) });
    }
    locking
}

async fn guards(locking: &mut JoinSet<Result<LockGuard>>) -> Result<Vec<LockGuard>> {
    let mut guards = Vec::new();
    while let Some(guard) = locking.join_next().await {
        guards.push(guard??);
    }
    Ok(guards)
}

async fn unlock_all(guards: Vec<LockGuard>) -> Result<()> {
    let mut unlocking = JoinSet::new();
    for guard in guards {
        unlocking.spawn(guard.unlock());
    }
    while let Some(unlocked) = unlocking.join_next().await {
        unlocked??;
    }
    Ok(())
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Objects { objects, time, subleases, held, waited_for, left } = self;
        writeln!(f, "{objects} objects that two clients use in turn, {AT_ONCE} at a time:")?;
        writeln!(f, "  {subleases} turns of guests, in {time:.0?}")?;
        writeln!(f, "  {held} bytes for each that one holds, {waited_for} with one that waits")?;
        write!(f, "  {left} bytes left when all are idle")
    }
}
