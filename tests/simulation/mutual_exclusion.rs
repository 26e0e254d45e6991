//! At most one guard of a lock is valid, by its own clock, at any moment, unless a promise is
//! broken on purpose: see [`overlap`](super::overlap).

use super::batch::{Invariant, assert_kept};
use super::history::overlap;
use super::log::Log;

/// Two who held an object at the same time.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    overlap(&log.held(object)).map(|two| format!("two hold {object}: {two:?}"))
}

// Goal: nobody holds a lock together with somebody else, whatever goes wrong.
// Method: the histories of all seeds.
#[test]
fn nobody_holds_together_with_somebody_else() {
    assert_kept(Invariant::MutualExclusion);
}
