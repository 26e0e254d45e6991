//! etcd's lock: the recipe of its client in Go, `concurrency.Mutex`.
//!
//! Not the service `v3lock`, which runs that recipe on the server: it gets stuck when several calls
//! that wait are cancelled at once, see benches/README.md.

mod calls;
mod messages;
mod recipe;
mod session;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::time::timeout;
use tonic::Code;

use crate::sides::etcd::calls::{PONG_MAX, call, endpoint};
use crate::sides::etcd::messages::{StatusRequest, StatusResponse};
use crate::sides::etcd::recipe::Place;
use crate::sides::etcd::session::Session;
use crate::sides::{Operations, Setup, Side};

/// One client, with a session of its own.
#[derive(Debug)]
pub(crate) struct EtcdLock {
    session: Arc<Session>,
    patience: Duration,
}

impl EtcdLock {
    pub(crate) async fn connect(setup: &Setup) -> Result<Self> {
        let session = Arc::new(Session::open(&setup.servers, setup.ttl).await?);
        Ok(EtcdLock { session, patience: setup.patience })
    }

    /// What one server says of itself and its leader.
    pub(crate) async fn status(url: &str) -> Result<StatusResponse> {
        let channel = endpoint(url)?.connect().await?;
        Ok(timeout(PONG_MAX, call(&channel, StatusRequest {})).await??)
    }
}

impl Side for EtcdLock {
    type Held = Place;

    async fn lock(&self, name: &str) -> Result<Place> {
        let mut place = Place::new(&self.session, name);
        let (error, lease_lost) = match timeout(self.patience, place.acquire()).await {
            Ok(Ok(())) => return Ok(place),
            Ok(Err(status)) => {
                let lost = status.code() == Code::NotFound;
                (status.into(), lost)
            }
            Err(_) => (anyhow!("not obtained within {:?}", self.patience), false),
        };
        let left = timeout(PONG_MAX, place.leave()).await.is_ok();
        if lease_lost || !left {
            self.session.renew().await?;
        }
        Err(error)
    }

    async fn unlock(&self, place: Place) -> Result<()> {
        let unlocked = timeout(self.patience, place.leave()).await;
        if unlocked.is_err() {
            self.session.renew().await?;
        }
        unlocked.with_context(|| format!("not released within {:?}", self.patience))
    }

    fn operations(&self) -> Operations {
        self.session.operations()
    }

    async fn shut_down(&self) -> Result<()> {
        self.session.close().await;
        Ok(())
    }
}
