//! Where rows live. One trait, two stores: a Cassandra or ScyllaDB cluster, and memory.
//!
//! Private on purpose: public types have no type parameter for the store, and who wants another
//! database has to write a store that keeps the promises below.

mod cassandra;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod conformance;
mod counted;
mod identifier;
mod memory;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use crate::error::DatabaseError;
use crate::protocol::{ContenderId, Read, StoredRow, Write};

pub(crate) use cassandra::{
    CassandraStore, Catalog, ClockReading, Column, Coverage, Dialect, KeyspaceFacts, Node, Nodes,
    SettingsRecord, TableFacts, Testimony, forget_settings_cql,
};
pub(crate) use counted::Counted;
pub use counted::Statistics;
pub(crate) use identifier::Identifier;
pub use identifier::InvalidIdentifier;
pub use memory::MemoryStore;
#[cfg(feature = "test-util")]
pub use memory::{
    Conditions, Cut, Fault, Replicas, SimulatedClient, SimulatedCluster, WriteKind, WriteRecord,
};

/// The answer of a store, later.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// What each node says, later; `None` of one that did not answer soon.
pub(crate) type Testimonies<'a> =
    Pin<Box<dyn Future<Output = Vec<(Node, Option<Testimony>)>> + Send + 'a>>;

/// The rows of one lock table, and the registry of hosts beside it.
///
/// What the protocol relies on (design sections 3 and 4): a write that was acknowledged is seen by
/// every read that begins afterwards, until it is overwritten with a higher stamp or its TTL is
/// over; of two writes to one row the higher stamp wins, whatever their order; a delete of the same
/// stamp beats a write; rows of one [`Write`] are applied as one. Each call is one try, bounded in
/// time, never repeated by the store or its driver. A dropped future may still be applied.
pub(crate) trait Store: Debug + Send + Sync {
    /// Applies a write to the rows of a contender.
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> Answer<'a, ()>;

    /// Reads rows of an object: all that are there, with one read.
    fn read<'a>(&'a self, object: &'a str, read: Read) -> Answer<'a, Vec<StoredRow>>;

    /// Reads the rounds of a contender's rows, and when they were written.
    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> Answer<'a, Vec<RowStamp>>;

    /// Reads the fence of an object; `None` when it has none.
    fn read_fence<'a>(&'a self, object: &'a str) -> Answer<'a, Option<i64>>;

    /// Raises the fence of an object to `value`, stamped with the value itself, so that a smaller
    /// value never replaces a larger one. It lives for
    /// [`FENCE_TTL_SECONDS`](crate::protocol::FENCE_TTL_SECONDS), whatever the rows of the table
    /// do.
    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> Answer<'a, ()>;

    /// Reads the registry of hosts.
    fn read_registry(&self) -> Answer<'_, Registry>;

    /// Raises the registry's `next` to `next`, stamped with the value itself, so that a smaller
    /// value never replaces a larger one.
    fn raise_next(&self, next: i32) -> Answer<'_, ()>;

    /// Writes the row of one host, with its stamp.
    fn write_host<'a>(&'a self, host: &'a HostRow) -> Answer<'a, ()>;

    /// Asks each node that counts for quorums, and can be reached, for what locks rely on. Takes a
    /// round trip, and a second at most.
    fn observe(&self) -> Testimonies<'_>;
}

/// When a row was written, and for which round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowStamp {
    /// The column `row_name`.
    pub(crate) row_name: String,
    /// The column `round`.
    pub(crate) round: i64,
    /// The write timestamp, in µs.
    pub(crate) stamp: i64,
}

impl RowStamp {
    /// Of a row as it was written with `stamp`. One without a round has none.
    pub(crate) fn of((row, stamp): (StoredRow, i64)) -> Option<Self> {
        Some(RowStamp { row_name: row.row_name, round: row.round?, stamp })
    }
}

/// The registry of hosts as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    /// The largest number that was ever reserved; 0 when none was.
    pub(crate) next: i32,
    /// All hosts, removed ones too, in the order of their names.
    pub(crate) hosts: Vec<HostRow>,
}

/// One host of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostRow {
    /// Its name.
    pub(crate) name: String,
    /// Its number, never given to another name.
    pub(crate) number: i32,
    /// When it was added, in milliseconds since the Unix epoch.
    pub(crate) added_at_millis: i64,
    /// When it was removed, in milliseconds since the Unix epoch, if it is.
    pub(crate) removed_at_millis: Option<i64>,
    /// The write timestamp of the row, in µs.
    pub(crate) stamp: i64,
}
