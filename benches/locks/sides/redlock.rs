//! Redlock on three Redis servers, by the crate `rslock`.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rslock::{Lock, LockError, LockManager};

use crate::servers::redis::urls;
use crate::sides::backoff::Backoff;
use crate::sides::{Setup, Side};

/// How often its own loop tries, so that the patience is looked at now and then.
const TRIES: u32 = 16;

/// One client. It polls, with pauses between none and the longest one.
#[derive(Debug)]
pub(crate) struct Redlock {
    manager: LockManager,
    backoff: Backoff,
    ttl: Duration,
    patience: Duration,
}

impl Redlock {
    pub(crate) fn connect(setup: &Setup) -> Self {
        let mut manager = LockManager::new(urls(&setup.servers));
        let backoff = setup.tuning.polling();
        manager.set_retry(TRIES, backoff.longest);
        Redlock { manager, backoff, ttl: setup.ttl, patience: setup.patience }
    }
}

impl Side for Redlock {
    type Held = Lock;

    async fn lock(&self, name: &str) -> Result<Lock> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.manager.lock(name, self.ttl).await {
                Ok(lock) => return Ok(lock),
                Err(LockError::Unavailable) if Instant::now() < deadline => {
                    // It does not pause after its last try.
                    tokio::time::sleep(self.backoff.longest.mul_f64(rand::random())).await;
                }
                Err(LockError::Unavailable) => bail!("not obtained within {:?}", self.patience),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn unlock(&self, lock: Lock) -> Result<()> {
        self.manager.unlock(&lock).await;
        Ok(())
    }
}
