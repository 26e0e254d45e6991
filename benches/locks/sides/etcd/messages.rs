//! Messages of etcd's interface, as far as a lock needs them.

use anyhow::{Context, Result};
use prost::Message;

use crate::sides::etcd::calls::Asked;

/// Of `Compare`.
const TARGET_CREATE: i32 = 1;

/// Of `RangeRequest`.
const ASCENDING: i32 = 1;
const DESCENDING: i32 = 2;
const SORT_BY_CREATE: i32 = 2;

/// Of `Event`.
const DELETE: i32 = 1;

impl Asked for TxnRequest {
    const PATH: &str = "/etcdserverpb.KV/Txn";
    type Answer = TxnResponse;
}

impl Asked for RangeRequest {
    const PATH: &str = "/etcdserverpb.KV/Range";
    type Answer = RangeResponse;
}

impl Asked for WatchRequest {
    const PATH: &str = "/etcdserverpb.Watch/Watch";
    type Answer = WatchResponse;
}

impl Asked for LeaseGrantRequest {
    const PATH: &str = "/etcdserverpb.Lease/LeaseGrant";
    type Answer = LeaseGrantResponse;
}

impl Asked for LeaseKeepAliveRequest {
    const PATH: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
    type Answer = LeaseKeepAliveResponse;
}

impl Asked for LeaseRevokeRequest {
    const PATH: &str = "/etcdserverpb.Lease/LeaseRevoke";
    type Answer = LeaseRevokeResponse;
}

impl Asked for StatusRequest {
    const PATH: &str = "/etcdserverpb.Maintenance/Status";
    type Answer = StatusResponse;
}

impl Compare {
    /// Whether this revision created a key; 0 if the key does not exist.
    pub(crate) fn created_at(key: &[u8], revision: i64) -> Self {
        Compare { target: TARGET_CREATE, key: key.to_vec(), create_revision: Some(revision) }
    }
}

impl RangeRequest {
    pub(crate) fn of_key(key: &[u8]) -> Self {
        RangeRequest { key: key.to_vec(), ..RangeRequest::default() }
    }

    /// The key with this prefix that was created first.
    pub(crate) fn first_created(prefix: &[u8]) -> Self {
        RangeRequest { sort_order: ASCENDING, ..RangeRequest::one_by_create(prefix) }
    }

    /// The key with this prefix that was created last, up to a revision.
    pub(crate) fn last_created(prefix: &[u8], max_create_revision: i64) -> Self {
        let one = RangeRequest::one_by_create(prefix);
        RangeRequest { sort_order: DESCENDING, max_create_revision, ..one }
    }

    fn one_by_create(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        RangeRequest {
            key: prefix.to_vec(),
            range_end: end,
            limit: 1,
            sort_target: SORT_BY_CREATE,
            ..RangeRequest::default()
        }
    }
}

impl RequestOp {
    pub(crate) fn range(request: RangeRequest) -> Self {
        RequestOp { range: Some(request), ..RequestOp::default() }
    }

    pub(crate) fn put(request: PutRequest) -> Self {
        RequestOp { put: Some(request), ..RequestOp::default() }
    }

    pub(crate) fn delete(request: DeleteRangeRequest) -> Self {
        RequestOp { delete: Some(request), ..RequestOp::default() }
    }
}

impl Event {
    pub(crate) fn is_delete(self) -> bool {
        self.kind == DELETE
    }
}

impl StatusResponse {
    /// The id of the server that answered.
    pub(crate) fn member(&self) -> Result<u64> {
        Ok(self.header.context("each answer has a header")?.member_id)
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
}

/// The others are compared as equal: the default.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(int32, tag = "5")]
    sort_order: i32,
    #[prost(int32, tag = "6")]
    sort_target: i32,
    #[prost(int64, tag = "13")]
    max_create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// One of these.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    delete: Option<DeleteRangeRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// Not 0 if the watch began before what the server still has.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(int32, tag = "1")]
    kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    /// The id of the leader, 0 if there is none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
}
