//! The part of a contender's state that decides what can still follow. The model in `tests/model`
//! treats contenders that agree in it as equal, or no search would ever end.
//!
//! Times are relative to now, and all past moments are equal. Operation ids, human-readable text,
//! and what only sets the pauses between looks at others are left out: the model makes every pause
//! zero.

use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A state with a fingerprint.
pub(crate) trait Fingerprint {
    /// Feeds what matters at `now` to a hasher.
    fn feed(&self, now: Duration, hasher: &mut impl Hasher);
}

/// The time left until a moment.
pub(super) fn until(moment: Duration, now: Duration) -> impl Hash {
    moment.saturating_sub(now)
}
