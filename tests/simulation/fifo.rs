//! Who has drawn a ticket is let in before everybody who announces itself later, or gives up.

use super::batch::{Invariant, assert_kept};
use super::history::overtaking;
use super::log::Log;

/// Somebody who was overtaken, and by whom.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    overtaking(&log.rounds(object)).map(|two| format!("overtaken at {object}: {two:?}"))
}

// Goal: nobody is overtaken by somebody who came after its ticket was acknowledged.
// Method: the histories of all seeds.
#[test]
fn nobody_is_overtaken() {
    assert_kept(Invariant::Fifo);
}
