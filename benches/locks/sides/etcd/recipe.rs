//! The queue of a name: a key for each contender, in the order of their creation.
//!
//! Alone, an acquisition is one request, and so is a release. A contender that is not the first
//! waits until the key before its own is deleted.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tonic::Status;

use crate::sides::etcd::calls::RETRY_AFTER;
use crate::sides::etcd::messages::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp,
    TxnRequest,
};
use crate::sides::etcd::session::Session;

/// A place in the queue of a name. The first one holds the lock. Dropped, it is given up in the
/// background.
#[derive(Debug)]
pub(crate) struct Place {
    session: Arc<Session>,
    /// All keys of the queue start with it.
    queue: Vec<u8>,
    key: Vec<u8>,
    lease: i64,
    /// The revision that created the key, once that is known.
    created: Option<i64>,
    left: bool,
}

impl Place {
    /// The place that the session's lease has in the queue of `name`. It may have been left.
    pub(crate) fn new(session: &Arc<Session>, name: &str) -> Self {
        let lease = session.lease();
        Place {
            session: Arc::clone(session),
            queue: format!("{name}/").into_bytes(),
            key: format!("{name}/{lease:x}").into_bytes(),
            lease,
            created: None,
            left: false,
        }
    }

    /// Takes the place and waits until it is the first one.
    ///
    /// `NotFound` if the lease ran out. Cancel safe in that the place can be left.
    pub(crate) async fn acquire(&mut self) -> Result<(), Status> {
        let (created, owner) = self.enter().await?;
        self.created = Some(created);
        if owner.is_none_or(|owner| owner.create_revision == created) {
            return Ok(());
        }
        while let (revision, Some(before)) = self.key_before(created).await? {
            // If the watch ended early, as when a server died, the next look at the queue tells it.
            if self.session.count(self.outlast(before, revision)).await.is_err() {
                sleep(RETRY_AFTER).await;
            }
        }
        self.check_key().await
    }

    /// Creates the key if it does not exist. The revision that created it, and the first key.
    async fn enter(&self) -> Result<(i64, Option<KeyValue>), Status> {
        let answer = self.session.ask(&self.entry()).await?;
        let entered = answer.succeeded.then(|| answer.header.map(|header| header.revision));
        let [own, owner] = <[_; 2]>::try_from(answer.responses)
            .map_err(|_| Status::internal("a transaction of two requests has two answers"))?;
        let first = |range: Option<RangeResponse>| range.and_then(|it| it.kvs.into_iter().next());
        let created = entered.unwrap_or_else(|| first(own.range).map(|it| it.create_revision));
        let created = created.ok_or_else(|| Status::internal("an answer lacks its revision"))?;
        Ok((created, first(owner.range)))
    }

    fn entry(&self) -> TxnRequest {
        let put = PutRequest { key: self.key.clone(), lease: self.lease };
        let own = RangeRequest::of_key(&self.key);
        let owner = RangeRequest::first_created(&self.queue);
        TxnRequest {
            compare: vec![Compare::created_at(&self.key, 0)],
            success: vec![RequestOp::put(put), RequestOp::range(owner.clone())],
            failure: vec![RequestOp::range(own), RequestOp::range(owner)],
        }
    }

    /// The place before the one that was created then, and the revision at which it was there.
    async fn key_before(&self, created: i64) -> Result<(i64, Option<KeyValue>), Status> {
        let request = RangeRequest::last_created(&self.queue, created - 1);
        let answer = self.session.ask(&request).await?;
        let header = answer.header.ok_or_else(|| Status::internal("an answer lacks its header"))?;
        Ok((header.revision, answer.kvs.into_iter().next()))
    }

    /// Waits until a key before is deleted, which was there at this revision. Fails if the watch
    /// ends before.
    async fn outlast(&self, before: KeyValue, revision: i64) -> Result<(), Status> {
        let KeyValue { key, create_revision } = before;
        let watch = self.session.watch(key.clone()).await?;
        if watch.after > revision {
            // What changed before the watch began may have been this key.
            let answer = self.session.ask(&RangeRequest::of_key(&key)).await?;
            if answer.kvs.first().map(|it| it.create_revision) != Some(create_revision) {
                return Ok(());
            }
        }
        watch.deletion().await
    }

    /// The lease may have run out meanwhile.
    async fn check_key(&self) -> Result<(), Status> {
        let answer = self.session.ask(&RangeRequest::of_key(&self.key)).await?;
        let lost = || Status::not_found("the lease ran out while it waited");
        answer.kvs.first().map(|_| ()).ok_or_else(lost)
    }

    /// Gives the place up, and waits until that is acknowledged, however long it takes.
    pub(crate) async fn leave(mut self) {
        self.departure().await;
        self.left = true;
    }

    /// Deletes the key, if it is the one that this place created. The client in Go deletes it in
    /// any case, but does not repeat a request whose outcome is unknown: of two deletes, the later
    /// one could arrive after the client took its next place.
    fn departure(&self) -> impl Future<Output = ()> + Send + use<> {
        let delete = DeleteRangeRequest { key: self.key.clone() };
        let compare = self.created.map(|created| Compare::created_at(&self.key, created));
        let request = TxnRequest {
            compare: compare.into_iter().collect(),
            success: vec![RequestOp::delete(delete)],
            failure: Vec::new(),
        };
        let session = Arc::clone(&self.session);
        async move {
            while session.ask(&request).await.is_err() {
                sleep(RETRY_AFTER).await;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            // What is not deleted ends with the lease.
            runtime.spawn(timeout(self.session.ttl(), self.departure()));
        }
    }
}
