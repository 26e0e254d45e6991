//! A client with a lease, which it keeps alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::sides::Operations;
use crate::sides::etcd::calls::{Asked, PONG_MAX, RETRY_AFTER, call, endpoint, stream};
use crate::sides::etcd::messages::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};
use crate::sides::etcd::watch::Watch;

/// All places of a client have the same lease.
#[derive(Debug)]
pub(crate) struct Session {
    channel: Channel,
    lease: Arc<AtomicI64>,
    ttl: Duration,
    keeps_alive: AbortHandle,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Session {
    /// Connects to servers, each HOST:PORT, and gets a lease.
    pub(crate) async fn open(servers: &[String], ttl: Duration) -> Result<Self> {
        let endpoints = servers.iter().map(|server| endpoint(&format!("http://{server}")));
        let endpoints = endpoints.collect::<Result<Vec<_>>>()?;
        let channel = Channel::balance_list(endpoints.into_iter());
        let lease = Arc::new(AtomicI64::new(grant(&channel, ttl).await?));
        let keeper = keep_alive(channel.clone(), Arc::clone(&lease), ttl);
        Ok(Session {
            channel,
            lease,
            ttl,
            keeps_alive: tokio::spawn(keeper).abort_handle(),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease.load(Ordering::Relaxed)
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Gets another lease: the old one ran out, or what was asked with it may still be carried out.
    pub(crate) async fn renew(&self) -> Result<()> {
        self.lease.store(grant(&self.channel, self.ttl).await?, Ordering::Relaxed);
        Ok(())
    }

    /// Asks until a server answers: whatever a lock asks may be repeated.
    pub(crate) async fn ask<Q: Asked>(&self, request: &Q) -> Result<Q::Answer, Status> {
        loop {
            match self.count(call(&self.channel, request.clone())).await {
                // Another server may answer.
                Err(status) if status.code() == Code::Unavailable => sleep(RETRY_AFTER).await,
                answer => return answer,
            }
        }
    }

    /// Watches a key from now on. Uncounted: a watch takes as long as it is needed.
    pub(crate) async fn watch(&self, key: Vec<u8>) -> Result<Watch, Status> {
        Watch::begin(&self.channel, key).await
    }

    /// Counts a call as one request, whatever it counts itself.
    pub(crate) async fn count<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let answer = call.await;
        if answer.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    pub(crate) fn operations(&self) -> Operations {
        Operations {
            sent: self.sent.load(Ordering::Relaxed),
            whole_reads: 0,
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Ends the lease, and so all places. A lease that is not revoked runs out.
    pub(crate) async fn close(&self) {
        self.keeps_alive.abort();
        let revoked = call(&self.channel, LeaseRevokeRequest { id: self.lease() });
        let _ = timeout(PONG_MAX, revoked).await;
    }
}

async fn grant(channel: &Channel, ttl: Duration) -> Result<i64> {
    let request = LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs())?, id: 0 };
    Ok(call(channel, request).await?.id)
}

/// Renews the lease at a third of its time, as sessions do.
async fn keep_alive(channel: Channel, lease: Arc<AtomicI64>, ttl: Duration) {
    loop {
        sleep(ttl / 3).await;
        let request = LeaseKeepAliveRequest { id: lease.load(Ordering::Relaxed) };
        // What fails is repeated next time; a lease that ran out is noticed by an acquisition.
        let _ = timeout(ttl / 3, keep_alive_once(&channel, request)).await;
    }
}

async fn keep_alive_once(channel: &Channel, request: LeaseKeepAliveRequest) -> Result<(), Status> {
    stream(channel, request).await?.next().await?;
    Ok(())
}
