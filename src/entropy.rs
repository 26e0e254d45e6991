//! The one source of randomness that clients draw from.

use std::fmt::Debug;

#[cfg(feature = "peers")]
use rand::{TryRngCore, rngs::OsRng};
use uuid::Uuid;

/// A source of randomness. Like the clock, it is passed in, so that a simulation can use its own
/// and repeat a run.
pub(crate) trait Entropy: Debug + Send + Sync {
    /// The unique id of a client.
    fn client(&self) -> Uuid;

    /// A number from 0 to below 1, to spread pauses.
    fn jitter(&self) -> f64;
}

/// Bytes to keep secret. They come from the system itself: a generator in this process would say
/// the same twice after a fork. A simulation needs no secrets of its own.
#[cfg(feature = "peers")]
pub(crate) fn secret() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    OsRng.try_fill_bytes(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

/// The system's randomness.
#[derive(Debug)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn client(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn jitter(&self) -> f64 {
        rand::random()
    }
}
