//! What clients that let others take turns publish of themselves.

use std::time::Duration;

/// The longest TTL of a row of the table of peers.
///
/// Long enough that a client which writes its row again some times an hour keeps it through an
/// outage; and the key of a client that died is gone soon.
pub(crate) const PEER_TTL_MAX: Duration = Duration::from_secs(60 * 60);
