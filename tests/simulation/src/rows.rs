//! A client that leaves takes its rows along.

use super::batch::{Invariant, assert_kept};
use super::log::Log;

/// Rows that are left in the end: of clients that live soon after they have left, of dead ones once
/// their TTL is over.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    let left = log.rows_left.iter().find(|(of, _)| of == object);
    left.map(|(_, client)| format!("client {client} has left rows at {object}"))
}

// Goal: no row is left in the end.
// Method: all quorums are looked at once all clients have left, in all seeds.
#[test]
fn no_row_is_left() {
    assert_kept(Invariant::Rows);
}
