//! etcd's lock: the service `v3lock`, which runs the official recipe on the server.
//!
//! An uncontended acquisition is one request, and so is a release; the recipe in the Go client asks
//! as often, and more often where others wait. A client has one lease, as sessions do, and keeps it
//! alive. The messages are those of etcd's interface, as far as a lock needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use prost::Message;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::sides::{Operations, Setup, Side};

/// The server closes connections on which a client pings more often.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long an answer to a ping may take.
const PONG_MAX: Duration = Duration::from_secs(2);

/// A server that is gone is asked again a moment later, which may be another one.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// One client, with a session of its own.
#[derive(Debug)]
pub(crate) struct EtcdLock {
    channel: Channel,
    lease: Arc<AtomicI64>,
    ttl: Duration,
    patience: Duration,
    keeps_alive: AbortHandle,
    sent: AtomicU64,
    failed: AtomicU64,
}

/// The key of a held lock.
#[derive(Debug)]
pub(crate) struct EtcdHeld(Vec<u8>);

impl EtcdLock {
    pub(crate) async fn connect(setup: &Setup) -> Result<Self> {
        let endpoints = setup.servers.iter().map(|server| endpoint(&format!("http://{server}")));
        let endpoints = endpoints.collect::<Result<Vec<_>>>()?;
        let channel = Channel::balance_list(endpoints.into_iter());
        let lease = Arc::new(AtomicI64::new(grant(&channel, setup.ttl).await?));
        let keeper = keep_alive(channel.clone(), Arc::clone(&lease), setup.ttl);
        Ok(EtcdLock {
            channel,
            lease,
            ttl: setup.ttl,
            patience: setup.patience,
            keeps_alive: tokio::spawn(keeper).abort_handle(),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// What one server says of itself and its leader.
    pub(crate) async fn status(url: &str) -> Result<StatusResponse> {
        let channel = endpoint(url)?.connect().await?;
        let asked = call(&channel, "/etcdserverpb.Maintenance/Status", StatusRequest {});
        Ok(timeout(PONG_MAX, asked).await??)
    }

    async fn try_lock(&self, name: &str) -> Result<LockResponse, Status> {
        let lease = self.lease.load(Ordering::Relaxed);
        self.count(call(
            &self.channel,
            "/v3lockpb.Lock/Lock",
            LockRequest { name: name.as_bytes().to_vec(), lease },
        ))
        .await
    }

    async fn count<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let answer = call.await;
        if answer.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }
}

impl Side for EtcdLock {
    type Held = EtcdHeld;

    async fn lock(&self, name: &str) -> Result<EtcdHeld> {
        let tries = async {
            loop {
                match self.try_lock(name).await {
                    // Another server may answer. A try may be repeated: its key is of the lease.
                    Err(status) if status.code() == Code::Unavailable => {
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                    tried => return tried,
                }
            }
        };
        let locked = timeout(self.patience, tries).await;
        let locked = locked.with_context(|| format!("not obtained within {:?}", self.patience))?;
        if let Err(status) = &locked
            && status.code() == Code::NotFound
        {
            // The lease ran out while the client did not reach the servers.
            self.lease.store(grant(&self.channel, self.ttl).await?, Ordering::Relaxed);
        }
        Ok(EtcdHeld(locked?.key))
    }

    async fn unlock(&self, EtcdHeld(key): EtcdHeld) -> Result<()> {
        let unlocked = async {
            loop {
                let request = UnlockRequest { key: key.clone() };
                match self.count(call(&self.channel, "/v3lockpb.Lock/Unlock", request)).await {
                    Ok(UnlockResponse {}) => return,
                    // A delete may be repeated: the key is of this acquisition alone.
                    Err(_) => tokio::time::sleep(RETRY_AFTER).await,
                }
            }
        };
        let unlocked = timeout(self.patience, unlocked).await;
        unlocked.with_context(|| format!("not released within {:?}", self.patience))
    }

    fn operations(&self) -> Operations {
        Operations {
            sent: self.sent.load(Ordering::Relaxed),
            whole_reads: 0,
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    async fn shut_down(&self) -> Result<()> {
        self.keeps_alive.abort();
        let request = LeaseRevokeRequest { id: self.lease.load(Ordering::Relaxed) };
        // A lease that is not revoked runs out.
        let revoked = call(&self.channel, "/etcdserverpb.Lease/LeaseRevoke", request);
        let _ = timeout(PONG_MAX, revoked).await;
        Ok(())
    }
}

fn endpoint(url: &str) -> Result<Endpoint> {
    Ok(Endpoint::from_shared(url.to_owned())?
        .connect_timeout(Duration::from_secs(1))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        .keep_alive_while_idle(true))
}

async fn grant(channel: &Channel, ttl: Duration) -> Result<i64> {
    let request = LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs())?, id: 0 };
    Ok(call(channel, "/etcdserverpb.Lease/LeaseGrant", request).await?.id)
}

/// Renews the lease at a third of its time, as sessions do.
async fn keep_alive(channel: Channel, lease: Arc<AtomicI64>, ttl: Duration) {
    loop {
        tokio::time::sleep(ttl / 3).await;
        let request = LeaseKeepAliveRequest { id: lease.load(Ordering::Relaxed) };
        // What fails is repeated next time; a lease that ran out is noticed by an acquisition.
        let _ = timeout(ttl / 3, renew(&channel, request)).await;
    }
}

/// A stream of one request, and so of one answer.
async fn renew(channel: &Channel, request: LeaseKeepAliveRequest) -> Result<(), Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
    let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
    let answers = client.server_streaming(Request::new(request), path, codec).await?;
    answers.into_inner().message().await?;
    Ok(())
}

async fn call<Q>(channel: &Channel, path: &'static str, request: Q) -> Result<Q::Answer, Status>
where
    Q: Asked,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let codec = ProstCodec::<Q, Q::Answer>::default();
    let answer = client.unary(Request::new(request), PathAndQuery::from_static(path), codec);
    Ok(answer.await?.into_inner())
}

/// A message to a server.
trait Asked: Message + Send + Sync + 'static {
    /// What it is answered with.
    type Answer: Message + Default + Send + Sync + 'static;
}

impl Asked for LockRequest {
    type Answer = LockResponse;
}

impl Asked for UnlockRequest {
    type Answer = UnlockResponse;
}

impl Asked for LeaseGrantRequest {
    type Answer = LeaseGrantResponse;
}

impl Asked for LeaseRevokeRequest {
    type Answer = LeaseRevokeResponse;
}

impl Asked for StatusRequest {
    type Answer = StatusResponse;
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockResponse {}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    /// The id of the leader, 0 if there is none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

impl StatusResponse {
    /// The id of the server that answered.
    pub(crate) fn member(&self) -> Result<u64> {
        Ok(self.header.context("each answer has a header")?.member_id)
    }
}
