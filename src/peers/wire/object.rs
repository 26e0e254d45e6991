//! Objects as they are named in messages.

use blake2::{Blake2s256, Digest};
use serde::{Deserialize, Serialize};

/// Of what follows, so that it is no hash of anything else.
const DOMAIN: &[u8] = b"bakery-lock object 1";

/// An object, by a hash: a name may be longer than a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ObjectHash([u8; 32]);

impl ObjectHash {
    /// The hash of an object of a lock table.
    pub(crate) fn of(keyspace: &str, table: &str, name: &str) -> Self {
        let mut hash = Blake2s256::new_with_prefix(DOMAIN);
        for part in [keyspace, table, name] {
            // The length comes first: otherwise (ab, c) and (a, bc) would have the same hash.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        ObjectHash(hash.finalize().into())
    }

    /// The object of this hash.
    pub(crate) fn from_bytes(hash: [u8; 32]) -> Self {
        ObjectHash(hash)
    }

    /// The hash.
    pub(crate) fn into_bytes(self) -> [u8; 32] {
        self.0
    }
}
