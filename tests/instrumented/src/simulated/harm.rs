//! What goes wrong in a run, by chance, and how often it did.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

/// How often each kind of harm occurred.
#[derive(Clone, Default)]
pub(super) struct Harm(BTreeMap<&'static str, u64>);

impl Harm {
    /// Whether something happens that has this probability; counted if it does.
    pub(super) fn happens(
        &mut self,
        rng: &mut StdRng,
        probability: f64,
        kind: &'static str,
    ) -> bool {
        let happens = probability > 0.0 && rng.random_bool(probability);
        if happens {
            self.count(kind, 1);
        }
        happens
    }

    pub(super) fn count(&mut self, kind: &'static str, times: u64) {
        *self.0.entry(kind).or_default() += times;
    }

    /// The counts by kind.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.clone()
    }
}
