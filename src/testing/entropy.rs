//! Randomness that a seed reproduces, for tests.

use std::sync::{Mutex, PoisonError};

use rand::distr::{Distribution, StandardUniform};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uuid::{Builder, Uuid};

use crate::entropy::Entropy;

/// Randomness from a seed.
#[derive(Debug)]
pub(crate) struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// Randomness from this seed.
    pub(crate) fn new(seed: u64) -> Self {
        SeededEntropy(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    fn draw<T>(&self) -> T
    where
        StandardUniform: Distribution<T>,
    {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random()
    }
}

impl Entropy for SeededEntropy {
    fn client(&self) -> Uuid {
        Builder::from_random_bytes(self.draw()).into_uuid()
    }

    fn jitter(&self) -> f64 {
        self.draw()
    }
}
