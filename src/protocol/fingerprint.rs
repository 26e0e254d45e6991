//! What of a contender decides what can still follow. The model in `tests/model` takes contenders
//! for equal that agree in it, or else no search would ever end.
//!
//! Times count from now on, and what is past is past, however long. Left out are the names of
//! operations, what is for people, and what only sets the pauses between looks at others: the model
//! makes every pause nothing.

use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Has an essence.
pub(crate) trait Fingerprint {
    /// Feeds what matters at `now` to a hasher.
    fn feed(&self, now: Duration, hasher: &mut impl Hasher);
}

/// How long it is until a moment.
pub(super) fn until(moment: Duration, now: Duration) -> impl Hash {
    moment.saturating_sub(now)
}
