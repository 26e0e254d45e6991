//! When nothing is wrong any more, every task gets the lock.

use super::batch::{Invariant, assert_kept};
use super::log::Log;

/// A task that did not get what it asked for after healing, or could not give it back.
pub(crate) fn check(log: &Log) -> Option<String> {
    log.unserved.first().map(|unserved| format!("not served: {unserved}"))
}

// Goal: whatever went wrong before, every task is served after healing.
// Method: in all seeds each task takes each lock once more at the end.
#[test]
fn every_task_is_served_after_healing() {
    assert_kept(Invariant::Served);
}
