//! What one grant costs when very many callers of one client wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::sides::Side;

/// How many callers wait at once.
pub(crate) const CROWDS: [usize; 3] = [100, 1_000, 10_000];

/// How long a crowd took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crowd {
    /// How many callers there were.
    pub(crate) callers: usize,
    /// From the first grant to the last release.
    pub(crate) time: Duration,
}

impl Crowd {
    /// The time of one grant, in microseconds.
    pub(crate) fn micros_per_grant(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.callers as f64
    }
}

/// Lets so many tasks wait for one lock, each for one grant, and serves them all.
pub(crate) async fn crowd<S: Side>(side: &Arc<S>, name: &str, callers: usize) -> Result<Crowd> {
    let held = side.lock(name).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (side, name) = (Arc::clone(side), name.to_owned());
        tasks.spawn(async move { side.unlock(side.lock(&name).await?).await });
    }
    // Until all wait: spawned tasks run in the order in which they were spawned.
    let last = tokio::spawn(async {});
    last.await?;
    let began = Instant::now();
    side.unlock(held).await?;
    while let Some(served) = tasks.join_next().await {
        served??;
    }
    Ok(Crowd { callers, time: began.elapsed() })
}
