//! At most one guard of a lock is valid, by its own clock, at any moment, unless a promise is
//! broken on purpose: see [`overlap`](super::overlap).

use super::batch::{Invariant, assert_kept};
use super::log::Log;
use support::history::overlap;

/// Two clients that held an object at the same time.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    overlap(&log.held(object)).map(|two| format!("two clients hold {object}: {two:?}"))
}

// Goal: no two clients hold a lock together, whatever goes wrong.
// Method: the histories of all seeds.
#[test]
fn no_two_clients_hold_together() {
    assert_kept(Invariant::MutualExclusion);
}
