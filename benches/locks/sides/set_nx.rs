//! `SET NX` with a time to live on one Redis server, and a script that deletes only one's own.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult, Script};
use uuid::Uuid;

use crate::sides::backoff::Backoff;
use crate::sides::{Setup, Side};

const RELEASE: &str = r#"
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0
"#;

/// One client. It polls, with pauses that grow.
pub(crate) struct SetNx {
    connection: ConnectionManager,
    release: Script,
    backoff: Backoff,
    ttl: Duration,
    patience: Duration,
}

/// A held lock.
#[derive(Debug)]
pub(crate) struct SetNxHeld {
    name: String,
    owner: String,
}

impl SetNx {
    pub(crate) async fn connect(setup: &Setup) -> Result<Self> {
        let client = Client::open(format!("redis://{}/", setup.servers[0]))?;
        let config = ConnectionManagerConfig::new().set_max_delay(Duration::from_millis(200));
        Ok(SetNx {
            connection: ConnectionManager::new_with_config(client, config).await?,
            release: Script::new(RELEASE),
            backoff: setup.tuning.polling(),
            ttl: setup.ttl,
            patience: setup.patience,
        })
    }

    /// Whether the lock is this owner's now.
    async fn try_set(&self, name: &str, owner: &str) -> RedisResult<bool> {
        let milliseconds = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let mut set = redis::cmd("SET");
        set.arg(name).arg(owner).arg("NX").arg("PX").arg(milliseconds);
        let answer: Option<String> = set.query_async(&mut self.connection.clone()).await?;
        Ok(answer.is_some())
    }

    async fn owner(&self, name: &str) -> RedisResult<Option<String>> {
        redis::cmd("GET").arg(name).query_async(&mut self.connection.clone()).await
    }
}

impl Side for SetNx {
    type Held = SetNxHeld;

    async fn lock(&self, name: &str) -> Result<SetNxHeld> {
        let deadline = Instant::now() + self.patience;
        let owner = Uuid::new_v4().to_string();
        let mut pauses = self.backoff.pauses();
        let mut unknown = false;
        loop {
            let tried = self.try_set(name, &owner).await;
            let mut locked = matches!(tried, Ok(true));
            // A try whose outcome was unknown may have set it.
            if matches!(tried, Ok(false)) && unknown {
                locked = self.owner(name).await.is_ok_and(|holder| holder == Some(owner.clone()));
            }
            unknown |= tried.is_err();
            if locked {
                return Ok(SetNxHeld { name: name.to_owned(), owner });
            }
            if Instant::now() >= deadline {
                tried?;
                bail!("not obtained within {:?}", self.patience);
            }
            pauses.pause().await;
        }
    }

    async fn unlock(&self, SetNxHeld { name, owner }: SetNxHeld) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        loop {
            let mut connection = self.connection.clone();
            let release = self.release.key(&name).arg(&owner).invoke_async(&mut connection).await;
            match release {
                Ok(0 | 1) => return Ok(()),
                Ok(other) => bail!("a release answered {other}"),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}
