//! A client that has drawn a ticket is let in before every client that announces itself later, or
//! gives up.

use super::batch::{Invariant, assert_kept};
use super::log::Log;
use support::history::overtaking;

/// A client that was overtaken, and the one that overtook it.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    overtaking(&log.rounds(object)).map(|two| format!("overtaken at {object}: {two:?}"))
}

// Goal: no client is overtaken by one that came after its ticket was acknowledged.
// Method: the histories of all seeds.
#[test]
fn no_client_is_overtaken() {
    assert_kept(Invariant::Fifo);
}
