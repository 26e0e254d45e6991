//! The secrets by which clients know each other.

use std::fmt;
use std::io;

use crate::entropy;

/// The secret of a keeper. A client that can read it may take turns there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key([u8; Key::BYTES]);

impl Key {
    /// How many bytes it has.
    pub(crate) const BYTES: usize = 32;

    /// A new one.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to give.
    pub(crate) fn generate() -> io::Result<Self> {
        entropy::secret().map(Key)
    }

    /// The key of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; Key::BYTES]) -> Self {
        Key(bytes)
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; Key::BYTES] {
        &self.0
    }
}

/// Shows nothing of the secret: what is shown ends up in logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").finish_non_exhaustive()
    }
}

/// The keys that a keeper accepts.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The one that it announces.
    pub(crate) current: Key,
    /// The one before, which guests may still have.
    pub(crate) previous: Option<Key>,
}
