//! A client without peers, beside processes that keep a name busy.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use support::scene::Scene;
use tokio::time::sleep;

use crate::builder;
use crate::process::{Process, Task};

/// Between two of its locks.
const PAUSE: Duration = Duration::from_millis(100);

/// Until the lines of the processes have become one.
const SETTLE: Duration = Duration::from_secs(3);

/// How long it waited.
pub(crate) struct Beside {
    processes: usize,
    /// In order.
    waits: Vec<Duration>,
    /// Messages of the others while it did, a second.
    messages: f64,
}

/// Lets one client lock a name this often, while this many processes do all the time.
pub(crate) async fn measure(scene: &Scene, processes: usize, locks: usize) -> Result<Beside> {
    let name = support::unique("beside");
    let mut busy = Vec::new();
    for _ in 0..processes {
        busy.push(Process::start(scene, Task::Busy, &name, processes).await?);
    }
    sleep(SETTLE).await;
    let client = builder(scene).build().await?;
    let (began, before) = (Instant::now(), sent(&mut busy).await?);
    let mut waits = Vec::new();
    for _ in 0..locks {
        let asked = Instant::now();
        let guard = client.lock(&name).await?;
        waits.push(asked.elapsed());
        guard.unlock().await?;
        sleep(PAUSE).await;
    }
    let messages = (sent(&mut busy).await? - before) as f64 / began.elapsed().as_secs_f64();
    for process in busy {
        process.end().await?;
    }
    client.shutdown().await?;
    waits.sort();
    Ok(Beside { processes, waits, messages })
}

async fn sent(processes: &mut [Process]) -> Result<u64> {
    let mut sent = 0;
    for process in processes {
        sent += process.messages().await?;
    }
    Ok(sent)
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Beside { processes, waits, messages } = self;
        let at = |share: usize| waits[(waits.len() * share / 100).min(waits.len() - 1)];
        writeln!(f, "A client without peers beside {processes} busy processes with peers:")?;
        writeln!(f, "  {} locks, the others sent {messages:.0} messages a second", waits.len())?;
        write!(f, "  waited {:.0?} (median), {:.0?} (99 %), {:.0?} (most)", at(50), at(99), at(100))
    }
}
