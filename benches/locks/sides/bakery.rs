//! Our lock, through its public interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bakery_lock::{LockClient, LockClientBuilder, LockGuard, Masters, PeerOptions};
use scylla::client::session::Session;

use crate::sides::{Operations, Setup, Side};
use common::cluster::KEYSPACE;

/// One client of our lock. It has the defaults, except for turns where each acquisition shall go
/// through the table.
#[derive(Debug)]
pub(crate) struct BakeryLock {
    client: LockClient,
}

impl BakeryLock {
    pub(crate) async fn on_cassandra(session: &Arc<Session>, setup: &Setup) -> Result<Self> {
        let builder = LockClient::builder(Arc::clone(session), KEYSPACE);
        Self::build(builder.register_host(true), setup).await
    }

    pub(crate) async fn on_masters(masters: &Masters, setup: &Setup) -> Result<Self> {
        Self::build(LockClient::builder_on_masters(masters), setup).await
    }

    async fn build(builder: LockClientBuilder, setup: &Setup) -> Result<Self> {
        let builder = builder
            .host("bench")
            .ttl(setup.ttl)
            .acquire_timeout(setup.patience)
            .local_handoff(!setup.kind.is_table_only());
        let builder = match &setup.lock_table {
            Some(name) => builder.lock_table(name),
            None => builder,
        };
        let builder = match setup.keep_idle {
            Duration::ZERO => builder,
            keep_idle => builder.keep_idle(keep_idle),
        };
        let builder = if setup.kind.has_peers() {
            builder.peers(PeerOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
        } else {
            builder
        };
        Ok(BakeryLock { client: builder.build().await? })
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
            sent: statistics.operations(),
            whole_reads: statistics.object_reads + statistics.one_replica_reads,
            failed: statistics.unknown_outcomes + statistics.failures,
        }
    }

    async fn shut_down(&self) -> Result<()> {
        Ok(self.client.shutdown().await?)
    }
}
