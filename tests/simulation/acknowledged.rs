//! What was acknowledged is there as long as it has to be, so nobody is told that it is not.

use super::batch::{Invariant, assert_kept};
use super::log::Log;

/// Somebody who was told what can't be while replicas keep what they acknowledged and clocks are
/// within their bound.
pub(crate) fn check(log: &Log) -> Option<String> {
    let impossible = ["RowMissing", "Poisoned", "Refused", "NoTicketLeft", "not shown"];
    let is_impossible = |why: &str| impossible.iter().any(|word| why.contains(word));
    let (client, _, at, why) = log.told().find(|(_, _, _, why)| is_impossible(why))?;
    Some(format!("client {client} was told at {at:?}: {why}"))
}

// Goal: no row that was acknowledged is missing, and no token is refused as poisoned.
// Method: what callers and holders were told, in all seeds.
#[test]
fn nothing_acknowledged_is_missing() {
    assert_kept(Invariant::Acknowledged);
}
