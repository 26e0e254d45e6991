//! What peers publish of themselves.

use std::fmt::Debug;
use std::time::Duration;

use uuid::Uuid;

use super::StoreFuture;

/// The longest TTL of a [`PeerRow`].
///
/// Long enough that a client which writes its row again some times an hour keeps it through an
/// outage; and the row of a client that died is gone soon.
pub(crate) const PEER_TTL_MAX: Duration = Duration::from_secs(60 * 60);

/// The key by which others know a client, and where it listens for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerRow {
    /// The client. It alone writes the row.
    pub(crate) client: Uuid,
    /// Where it listens; nowhere, if it keeps no place for others.
    pub(crate) addresses: Vec<String>,
    /// Its public key.
    pub(crate) key: [u8; 32],
    /// The version of the language that it speaks.
    pub(crate) version: i32,
    /// The write timestamp of the row, in µs.
    pub(crate) stamp: i64,
}

/// The table of peers, in the keyspace of the lock table. Each call is one try, as for
/// [`LockRows`](super::LockRows).
#[cfg_attr(
    not(any(test, instrumented, feature = "peers")),
    allow(dead_code, reason = "without the feature clients take no turns of others")
)]
pub(crate) trait PeerTable: Debug + Send + Sync {
    /// Writes the whole row of a client, with its stamp. It lives for `ttl_seconds`, from 1 to
    /// [`PEER_TTL_MAX`]. Only the client itself writes its row.
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> StoreFuture<'a, ()>;

    /// Reads what a client has published of itself; `None` if it has not, or no longer. A row that
    /// can't be understood is a permanent error.
    fn read_peer(&self, client: Uuid) -> StoreFuture<'_, Option<PeerRow>>;

    /// Deletes the row of a client, unless it was written with a higher stamp.
    fn delete_peer(&self, client: Uuid, stamp: i64) -> StoreFuture<'_, ()>;
}
