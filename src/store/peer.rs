//! What clients that take turns of each other publish of themselves.

use std::time::Duration;

use uuid::Uuid;

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
