//! What clients that let others take turns publish of themselves.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

/// The longest TTL of a [`PeerRow`].
///
/// Long enough that a client which writes its row again some times an hour keeps it through an
/// outage; and the key of a client that died is gone soon.
pub(crate) const PEER_TTL_MAX: Duration = Duration::from_secs(60 * 60);

/// Where a client listens for others, and the key to talk to it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PeerRow {
    /// The client. It alone writes the row.
    pub(crate) client: Uuid,
    /// Where it listens.
    pub(crate) addresses: Vec<String>,
    /// The present key: a secret.
    pub(crate) key: [u8; 32],
    /// The key before that, as long as it is valid.
    pub(crate) previous_key: Option<[u8; 32]>,
    /// The version of the language that it speaks.
    pub(crate) version: i32,
    /// The write timestamp of the row, in µs.
    pub(crate) stamp: i64,
}

/// Without the keys: whatever is logged, they are not.
impl fmt::Debug for PeerRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerRow { client, addresses, version, stamp, key: _, previous_key: _ } = self;
        f.debug_struct("PeerRow")
            .field("client", client)
            .field("addresses", addresses)
            .field("version", version)
            .field("stamp", stamp)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_printed() {
        let peer = PeerRow {
            client: Uuid::from_u128(1),
            addresses: vec!["host:7000".to_owned()],
            key: [0xab; 32],
            previous_key: Some([0xcd; 32]),
            version: 2,
            stamp: 3,
        };
        let expected = "PeerRow { client: 00000000-0000-0000-0000-000000000001, addresses: \
                        [\"host:7000\"], version: 2, stamp: 3, .. }";
        assert_eq!(format!("{peer:?}"), expected);
    }
}
