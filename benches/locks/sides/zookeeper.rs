//! Curator's recipe on ZooKeeper: an ephemeral node in a queue, which waits for the one before it.
//!
//! A client has one session. Its acquisition is a create and a look at the queue, its release a
//! delete.

use std::sync::RwLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, LockOptions, LockPrefix};

use crate::sides::{Setup, Side};

/// The parent of all queues.
const ROOT: &str = "/bench";

/// One client, with a session of its own.
#[derive(Debug)]
pub(crate) struct ZookeeperLock {
    servers: String,
    client: RwLock<Client>,
    ttl: Duration,
    patience: Duration,
}

/// The node of a held lock.
#[derive(Debug)]
pub(crate) struct ZookeeperHeld(String);

impl ZookeeperLock {
    pub(crate) async fn connect(setup: &Setup) -> Result<Self> {
        let servers = setup.servers.join(",");
        let client = RwLock::new(session(&servers, setup.ttl).await?);
        Ok(ZookeeperLock { servers, client, ttl: setup.ttl, patience: setup.patience })
    }

    fn client(&self) -> Client {
        self.client.read().expect("no thread panics meanwhile").clone()
    }

    /// Replaces a session that ran out, as Curator does, and one with an unknown outcome: with it
    /// ends what it may have left in the queue.
    async fn renew(&self) -> Result<()> {
        let client = session(&self.servers, self.ttl).await?;
        *self.client.write().expect("no thread panics meanwhile") = client;
        Ok(())
    }
}

async fn session(servers: &str, ttl: Duration) -> Result<Client> {
    Ok(Client::connector().with_session_timeout(ttl).connect(servers).await?)
}

impl Side for ZookeeperLock {
    type Held = ZookeeperHeld;

    async fn lock(&self, name: &str) -> Result<ZookeeperHeld> {
        let directory = format!("{ROOT}/{name}");
        let container = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(container)?;
        let prefix = LockPrefix::new_curator(&directory, "lock-")?;
        let client = self.client();
        let locked = timeout(self.patience, client.lock(prefix, b"", options)).await;
        let locked = locked.with_context(|| {
            format!("not obtained within {:?}, session {:?}", self.patience, client.state())
        })?;
        if locked.is_err() {
            self.renew().await?;
        }
        let locked = locked?;
        let node = locked.lock_path().to_owned();
        // Its destructor would delete the node in the background; a release waits for that.
        std::mem::forget(locked);
        Ok(ZookeeperHeld(node))
    }

    async fn unlock(&self, ZookeeperHeld(node): ZookeeperHeld) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.client().delete(&node, None).await {
                // The crate tells of a lost connection in either way.
                Err(Error::ConnectionLoss | Error::Custom(_)) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                // An earlier try whose outcome was unknown deleted it, or the session ran out.
                Err(Error::NoNode) => return Ok(()),
                done => return Ok(done?),
            }
        }
    }
}
