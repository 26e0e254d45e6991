//! How clients are known to each other, and objects to both: by keys and hashes.

use std::{fmt, io};

use blake2::{Blake2s256, Digest};
use serde::{Deserialize, Serialize};
use snow::Builder;

use super::handshake::PATTERN;

/// How many bytes a key has.
const BYTES: usize = 32;

/// What the hash of an object begins with, so that it equals no other hash.
const DOMAIN: &[u8] = b"bakery-lock object 1";

/// What a client publishes, and by which others know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey([u8; BYTES]);

impl PublicKey {
    /// The key of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; BYTES]) -> Self {
        PublicKey(bytes)
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

/// The keys of a client, from its start to its end. Only the public one leaves the process.
#[derive(Clone)]
pub(crate) struct KeyPair {
    private: [u8; BYTES],
    public: PublicKey,
}

impl KeyPair {
    /// A new one. The private key comes from the system: a generator in this process would say the
    /// same twice after a fork.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to give.
    pub(crate) fn generate() -> io::Result<Self> {
        let pattern = PATTERN.parse().map_err(io::Error::other)?;
        let keys = Builder::new(pattern).generate_keypair().map_err(io::Error::other)?;
        let snow::Keypair { private, public } = keys;
        let bytes = |key: Vec<u8>| key.try_into().expect("a key of this curve has 32 bytes");
        Ok(KeyPair { private: bytes(private), public: PublicKey(bytes(public)) })
    }

    /// The key that proves that this is the client. It stays secret.
    pub(super) fn private(&self) -> &[u8; BYTES] {
        &self.private
    }

    /// The key that the client publishes.
    pub(crate) fn public(&self) -> PublicKey {
        self.public
    }
}

/// Shows nothing of the secret: what is shown ends up in logs.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

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
