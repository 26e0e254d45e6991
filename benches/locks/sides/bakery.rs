//! Our lock, through its public interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bakery_lock::{LockClient, LockGuard, PeerOptions};
use scylla::client::session::Session;

use crate::sides::{Kind, Operations, Setup, Side};
use common::cluster::KEYSPACE;

/// One client of our lock. It has the defaults, except for turns where each acquisition shall go
/// through the table.
#[derive(Debug)]
pub(crate) struct BakeryLock {
    client: LockClient,
}

impl BakeryLock {
    pub(crate) async fn build(session: &Arc<Session>, setup: &Setup) -> Result<Self> {
        let builder = LockClient::builder(Arc::clone(session), KEYSPACE)
            .host("bench")
            .register_host(true)
            .ttl(setup.ttl)
            .acquire_timeout(setup.patience)
            .local_handoff(setup.kind != Kind::Bakery);
        let builder = match setup.keep_idle {
            Duration::ZERO => builder,
            keep_idle => builder.keep_idle(keep_idle),
        };
        let builder = if setup.kind == Kind::Subleases {
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
