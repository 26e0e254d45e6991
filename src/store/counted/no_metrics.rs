//! Without the feature `metrics` nothing is recorded.

use super::Kind;
use crate::store::Outcome;

/// Nothing.
#[derive(Clone, Copy)]
pub(super) struct Begun;

/// Nothing.
#[derive(Debug, Default)]
pub(super) struct CallMetrics;

impl CallMetrics {
    pub(super) fn begun(&self) -> Begun {
        Begun
    }

    pub(super) fn read(&self, _: Kind, _: Begun, _: bool) {}

    pub(super) fn given_up(&self, _: Kind, _: Begun) {}

    pub(super) fn written(&self, _: Kind, _: Begun, _: Outcome) {}
}
