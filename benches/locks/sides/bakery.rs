//! Our lock, through its public interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use bakery_lock::{LockClient, LockClientBuilder, LockGuard, PeerOptions};
use scylla::client::session::Session;

use crate::servers::cassandra::KEYSPACE;
use crate::sides::{Operations, Side};

/// One client of our lock, with its defaults.
#[derive(Debug)]
pub(crate) struct BakeryLock {
    client: LockClient,
}

impl BakeryLock {
    pub(crate) async fn build(session: &Arc<Session>) -> Result<Self> {
        let client = Self::builder(session).build().await?;
        Ok(BakeryLock { client })
    }

    /// A client that takes turns of others, over TCP on this machine.
    pub(crate) async fn build_peer(session: &Arc<Session>) -> Result<Self> {
        let peers = PeerOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let client = Self::builder(session).peers(peers).build().await?;
        Ok(BakeryLock { client })
    }

    fn builder(session: &Arc<Session>) -> LockClientBuilder {
        let builder = LockClient::builder(Arc::clone(session), KEYSPACE);
        builder.host("bench").register_host(true)
    }

    pub(crate) async fn shut_down(&self) -> Result<()> {
        Ok(self.client.shutdown().await?)
    }
}

impl Side for BakeryLock {
    type Held = LockGuard;

    async fn lock(&self, name: &str) -> Result<LockGuard> {
        Ok(self.client.lock(name).await?)
    }

    async fn unlock(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.unlock().await?)
    }

    fn operations(&self) -> Operations {
        let statistics = self.client.statistics();
        Operations {
            sent: statistics.writes
                + statistics.deletes
                + statistics.object_reads
                + statistics.glances
                + statistics.contender_reads,
            whole_reads: statistics.object_reads + statistics.glances,
            failed: statistics.unknown_outcomes + statistics.failures,
        }
    }
}
