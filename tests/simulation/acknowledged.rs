//! What was acknowledged is there as long as it has to be, so nobody is told that it is not.

use super::batch::{Invariant, assert_kept};
use super::log::{HoldEnd, Log};

/// Somebody who was told what can't be while replicas keep what they acknowledged and clocks are
/// within their bound.
pub(crate) fn check(log: &Log) -> Option<String> {
    let told = log.setbacks.iter().map(|setback| (setback.client, setback.at, &setback.why));
    let lost = log.holds.iter().filter_map(|hold| match &hold.until {
        Some((at, HoldEnd::Lost(why))) => Some((hold.client, *at, why)),
        Some((_, HoldEnd::Released | HoldEnd::Slept | HoldEnd::Died)) | None => None,
    });
    let impossible = ["RowMissing", "Poisoned", "Refused", "NoTicketLeft", "Revoked", "Closed"];
    let (client, at, why) =
        told.chain(lost).find(|(_, _, why)| impossible.iter().any(|word| why.contains(word)))?;
    Some(format!("client {client} was told at {at:?}: {why}"))
}

// Goal: no row that was acknowledged is missing, and no token is refused as poisoned.
// Method: what callers and holders were told, in all seeds.
#[test]
fn nothing_acknowledged_is_missing() {
    assert_kept(Invariant::Acknowledged);
}
