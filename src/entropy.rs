//! The one source of randomness that clients draw from.

use std::fmt::Debug;

use uuid::Uuid;

/// A source of randomness. Like the clock, it is passed in, so that a simulation can use its own
/// and repeat a run.
pub(crate) trait Entropy: Debug + Send + Sync {
    /// The unique id of a client.
    fn client(&self) -> Uuid;

    /// A number from 0 to below 1, to spread pauses.
    fn jitter(&self) -> f64;
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
