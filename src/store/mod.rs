//! Storage of rows: a Cassandra or ScyllaDB cluster, independent masters, or memory. One trait for
//! each part of it.
//!
//! Private on purpose: public types have no type parameter for the store, and another database
//! would need a store that keeps the promises of [`LockRows`].

mod cassandra;
mod counted;
mod error;
mod hosts;
mod identifier;
#[cfg(feature = "redis")]
mod masters;
pub(crate) mod memory;
mod node;
mod part;
mod peer;
mod permission;
mod rows;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub(crate) use cassandra::{
    CassandraStore, Catalog, Column, Coverage, Cql, Dialect, Extras, KeyspaceFacts, Nodes,
    Recorded, Rights, SettingsRecord, TableFacts, forget_settings_cql,
};
pub(crate) use counted::{Calls, Counted};
pub(crate) use error::Denial;
pub use error::{DatabaseError, Outcome};
pub(crate) use hosts::{HOSTS_PER_PAGE, HostRow, HostTable, or_nearby};
pub(crate) use identifier::Identifier;
pub use identifier::InvalidIdentifier;
#[cfg(feature = "redis")]
pub use masters::Masters;
#[cfg(feature = "redis")]
pub(crate) use masters::{
    Initialised, MasterStatus, MastersSettings, MastersStore, MastersTrouble, Wanted,
};
pub(crate) use memory::Embedded;
pub use memory::MemoryStore;
pub(crate) use node::{
    ClockReading, Node, NodeProbe, NodeReport, PROBE_TIMEOUT, Testimonies, at_the_same_time,
    best_reading,
};
pub(crate) use part::Part;
pub(crate) use peer::{PEER_TTL_MAX, PeerRow, PeerTable};
pub use permission::MissingPermission;
pub(crate) use rows::{Cursor, Exchanges, LockRows, Page, RowStamp, StoredMark, TimedRow};

/// The future answer of a store.
pub(crate) type StoreFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// All that clients use of one database.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// The rows of the lock table.
    pub(crate) rows: Arc<dyn LockRows>,
    /// The registry of hosts.
    pub(crate) hosts: Arc<dyn HostTable>,
    /// The table of peers.
    pub(crate) peers: Arc<dyn PeerTable>,
    /// The nodes that hold them.
    pub(crate) nodes: Arc<dyn NodeProbe>,
}

impl<S: LockRows + HostTable + PeerTable + NodeProbe + 'static> From<Arc<S>> for Store {
    fn from(store: Arc<S>) -> Self {
        Store {
            rows: Arc::clone(&store) as Arc<dyn LockRows>,
            hosts: Arc::clone(&store) as Arc<dyn HostTable>,
            peers: Arc::clone(&store) as Arc<dyn PeerTable>,
            nodes: store,
        }
    }
}
