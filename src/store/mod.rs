//! Storage of rows. One trait, two stores: a Cassandra or ScyllaDB cluster, and memory.
//!
//! Private on purpose: public types have no type parameter for the store, and another database
//! would need a store that keeps the promises below.

mod cassandra;
mod counted;
mod error;
mod grant;
mod identifier;
pub(crate) mod memory;
mod node;
mod part;
mod peer;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use tracing::debug;
use uuid::Uuid;

use crate::core::bakery::{ContenderId, Read, Seen, StoredRow, Write};

pub(crate) use cassandra::{
    CassandraStore, Catalog, Column, Coverage, Cql, Dialect, Extras, KeyspaceFacts, Nodes,
    Recorded, Rights, SettingsRecord, TableFacts, at_the_same_time, forget_settings_cql,
};
pub(crate) use counted::{Calls, Counted};
pub(crate) use error::Denial;
pub use error::{DatabaseError, Outcome};
pub use grant::MissingGrant;
pub(crate) use identifier::Identifier;
pub use identifier::InvalidIdentifier;
pub(crate) use memory::Embedded;
pub use memory::MemoryStore;
pub(crate) use node::{ClockReading, Node, NodeReport};
pub(crate) use part::{Cursor, Page, Part};
pub(crate) use peer::{PEER_TTL_MAX, PeerRow};

/// Reads from all data centres together; if they don't answer, reads nearby. A value that is not
/// seen nearby may have been written elsewhere, so it stays unknown.
///
/// # Errors
///
/// The error of the read from all data centres: what is refused for good is refused nearby too.
pub(crate) async fn or_nearby<T>(
    everywhere: impl Future<Output = Result<Option<T>, DatabaseError>>,
    nearby: impl Future<Output = Result<Option<T>, DatabaseError>>,
) -> Result<Option<T>, DatabaseError> {
    let unanswered = match everywhere.await {
        Err(error) if !error.is_permanent() => error,
        answer => return answer,
    };
    match nearby.await {
        Ok(Some(seen)) => {
            debug!(error = %unanswered, "read nearby what not all data centres answer for");
            Ok(Some(seen))
        }
        Ok(None) | Err(_) => Err(unanswered),
    }
}

/// The number of hosts on a page of the registry.
pub(crate) const HOSTS_PER_PAGE: usize = 1_000;

/// The future answer of a store.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// The future report of each node; `None` for one that did not answer soon.
pub(crate) type Testimonies<'a> =
    Pin<Box<dyn Future<Output = Vec<(Node, Option<NodeReport>)>> + Send + 'a>>;

/// The rows of one lock table, and beside it the registry of hosts and the table of peers.
///
/// The protocol relies on this (design sections 3 and 4): an acknowledged write is seen by every
/// read that begins afterwards, until it is overwritten with a higher stamp or its TTL is over; of
/// two writes to one row the higher stamp wins, whatever their order; a delete beats a write of the
/// same stamp; rows of one [`Write`] are applied as a unit. Each call is one try, bounded in time,
/// never repeated by the store or its driver. A dropped future may still be applied.
pub(crate) trait Store: Debug + Send + Sync {
    /// Applies a write to the rows of an object.
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> Answer<'a, ()>;

    /// Reads the requested rows of an object, all with one read.
    fn read<'a>(&'a self, object: &'a str, read: Read) -> Answer<'a, Seen>;

    /// Reads all rows of an object, each with its times.
    fn inspect<'a>(&'a self, object: &'a str) -> Answer<'a, Vec<TimedRow>>;

    /// The parts of the lock table; each object is in one of them.
    fn parts(&self) -> Vec<Part>;

    /// Reads rows of a part, from its beginning or from where an earlier page ended. Objects with
    /// a fence alone are left out.
    fn read_page<'a>(&'a self, part: Part, from: Option<&'a Cursor>) -> Answer<'a, Page>;

    /// Reads all rows of an object as one replica nearby has them. It is a hint: rows may be
    /// missing, and there may be rows that are gone.
    fn glance<'a>(&'a self, object: &'a str) -> Answer<'a, Vec<StoredRow>>;

    /// Reads the rounds and stamps of a contender's rows.
    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> Answer<'a, Vec<RowStamp>>;

    /// Reads the mark of an object with its write stamp; `None` if it has none.
    fn read_mark<'a>(&'a self, object: &'a str) -> Answer<'a, Option<StoredMark>>;

    /// Reads the fence of an object; `None` if it has none.
    fn read_fence<'a>(&'a self, object: &'a str) -> Answer<'a, Option<i64>>;

    /// Raises the fence of an object to `value`, stamped with the value itself, so that a smaller
    /// value never replaces a larger one. It lives for
    /// [`FENCE_TTL_SECONDS`](crate::core::bakery::FENCE_TTL_SECONDS), however long the table's rows
    /// live.
    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> Answer<'a, ()>;

    /// Reads one host of the registry, removed or not; `None` if there is none of that name.
    fn read_host<'a>(&'a self, name: &'a str) -> Answer<'a, Option<HostRow>>;

    /// Reads one host as seen nearby: by a quorum of the one data centre that the store asks for
    /// locks. It may be an older state. A store that asks all data centres sees nothing here.
    fn read_host_nearby<'a>(&'a self, name: &'a str) -> Answer<'a, Option<HostRow>>;

    /// Reads the next [`HOSTS_PER_PAGE`] hosts of the registry in the order of their names,
    /// including removed ones: those after `after`, which is empty for the first page. A page that
    /// is not full is the last one.
    fn read_hosts<'a>(&'a self, after: &'a str) -> Answer<'a, Vec<HostRow>>;

    /// Reads the registry's `next`: the largest number ever reserved, 0 if none was.
    fn read_next(&self) -> Answer<'_, i32>;

    /// Raises the registry's `next` to `next`, stamped with the value itself, so that a smaller
    /// value never replaces a larger one.
    fn raise_next(&self, next: i32) -> Answer<'_, ()>;

    /// Writes the row of one host, with its stamp, except for the time when it was seen.
    fn write_host<'a>(&'a self, host: &'a HostRow) -> Answer<'a, ()>;

    /// Reads since when sightings of hosts are recorded, in milliseconds since the Unix epoch;
    /// `None` if they are not, because an earlier version made the registry.
    fn read_sightings_begin(&self) -> Answer<'_, Option<i64>>;

    /// Writes when a host was seen, and nothing else of it. The stamp is that time itself, which is
    /// before the read that showed the host: the write undoes neither a removal nor a deletion.
    fn write_sighting<'a>(&'a self, name: &'a str, at_micros: i64) -> Answer<'a, ()>;

    /// Writes the whole row of a client, with its stamp. It lives for `ttl_seconds`, from 1 to
    /// [`PEER_TTL_MAX`]. Only the client itself writes its row.
    #[cfg_attr(
        not(any(test, feature = "test-util", feature = "peers")),
        allow(dead_code, reason = "without the feature clients take no turns of others")
    )]
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> Answer<'a, ()>;

    /// Reads what a client has published of itself; `None` if it has not, or no longer. A row that
    /// can't be understood is a permanent error.
    #[cfg_attr(
        not(any(test, feature = "test-util", feature = "peers")),
        allow(dead_code, reason = "without the feature clients take no turns of others")
    )]
    fn read_peer(&self, client: Uuid) -> Answer<'_, Option<PeerRow>>;

    /// Deletes the row of a client, unless it was written with a higher stamp.
    #[cfg_attr(
        not(any(test, feature = "test-util", feature = "peers")),
        allow(dead_code, reason = "without the feature clients take no turns of others")
    )]
    fn delete_peer(&self, client: Uuid, stamp: i64) -> Answer<'_, ()>;

    /// Asks each reachable node that counts for quorums for its report. Takes a round trip, and a
    /// second at most.
    fn observe(&self) -> Testimonies<'_>;
}

/// A row, when it was written and how long it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedRow {
    /// The row.
    pub(crate) row: StoredRow,
    /// The write timestamp, in µs; `None` for a row without a round.
    pub(crate) stamp: Option<i64>,
    /// The time that is left of its TTL, in seconds; `None` if it lives for ever, or has no round.
    pub(crate) ttl_seconds: Option<i32>,
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
    /// The stamp of a row. A row without a round has none.
    pub(crate) fn of(TimedRow { row, stamp, .. }: TimedRow) -> Option<Self> {
        Some(RowStamp { row_name: row.row_name, round: row.round?, stamp: stamp? })
    }
}

/// The mark of an object. The order is that of a cluster: the higher stamp wins, then the larger
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredMark {
    /// The write timestamp, in µs.
    pub(crate) stamp: i64,
    /// The mark: its stamp, unless it was written by hand.
    pub(crate) value: i64,
}

impl StoredMark {
    /// As clients write it.
    pub(crate) fn of(stamp: i64) -> Self {
        StoredMark { stamp, value: stamp }
    }
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
    /// When a client of the host was seen, in milliseconds since the Unix epoch, if one was.
    pub(crate) seen_at_millis: Option<i64>,
    /// The write timestamp of the row, in µs.
    pub(crate) stamp: i64,
}

impl HostRow {
    /// The later of when it was seen and when it was added, or added again, as its stamp tells.
    pub(crate) fn last_seen_millis(&self) -> i64 {
        let added = self.added_at_millis.max(self.stamp / 1000);
        added.max(self.seen_at_millis.unwrap_or(added))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::store::Outcome;

    fn failed() -> Result<Option<u8>, DatabaseError> {
        Err(DatabaseError::new(Outcome::NotApplied, "no quorum"))
    }

    #[tokio::test]
    async fn what_is_seen_nearby_counts_only_where_the_whole_does_not_answer() {
        let refused = || Err(DatabaseError::permanent("no such table"));
        for (everywhere, nearby, expected) in [
            (Ok(Some(1)), Ok(Some(2)), Some(Some(1))),
            (Ok(None), Ok(Some(2)), Some(None)),
            (failed(), Ok(Some(2)), Some(Some(2))),
            (failed(), Ok(None), None),
            (failed(), failed(), None),
            (refused(), Ok(Some(2)), None),
        ] {
            let told = format!("{everywhere:?} and {nearby:?}");
            let seen = or_nearby(ready(everywhere), ready(nearby)).await;
            assert_eq!(seen.ok(), expected, "{told}");
        }
        let error = or_nearby(ready(failed()), ready(refused())).await;
        assert!(error.is_err_and(|error| !error.is_permanent()), "it is unknown, not refused");
    }
}
