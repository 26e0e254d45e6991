//! Rows of an object are lost on all replicas, against all promises: deleted by hand, expired
//! before their time, or gone with all others. It happens at any moment, also between what a holder
//! reads and what it writes when it renews.
//!
//! Two clients may hold then. One of them is lost in time, and all else holds as far as it can: a
//! client whose rows are lost has lost its place in the queue, too, and tokens follow the fence
//! only.

use super::batch::{Invariant, assert_kept_despite};
use super::plan::Breach;

// Goal: two do not hold together for long.
// Method: the histories of all seeds, where rows are lost.
#[test]
fn two_that_hold_become_one_in_time() {
    assert_kept_despite(Breach::LostRows, Invariant::Overlap);
}

// Goal: a contender whose rows stand is not overtaken.
// Method: as above.
#[test]
fn contenders_with_rows_are_not_overtaken() {
    assert_kept_despite(Breach::LostRows, Invariant::Fifo);
}

// Goal: a token is above all that were given before it was asked for.
// Method: as above.
#[test]
fn tokens_grow() {
    assert_kept_despite(Breach::LostRows, Invariant::Tokens);
}

// Goal: only a client whose rows were lost is told that they are missing.
// Method: as above.
#[test]
fn nothing_else_is_missing() {
    assert_kept_despite(Breach::LostRows, Invariant::Acknowledged);
}

// Goal: a waiter whose rows are lost queues again instead of giving up.
// Method: as above.
#[test]
fn waiters_begin_anew() {
    assert_kept_despite(Breach::LostRows, Invariant::Waiters);
}

// Goal: a client that is asked to leave does so, and no other.
// Method: as above.
#[test]
fn clients_that_are_asked_leave() {
    assert_kept_despite(Breach::LostRows, Invariant::Leaving);
}

// Goal: no row is left in the end, and every task is served after healing.
// Method: as above.
#[test]
fn all_ends_well() {
    assert_kept_despite(Breach::LostRows, Invariant::Rows);
    assert_kept_despite(Breach::LostRows, Invariant::Served);
}
