//! Contenders are removed by force although they live.
//!
//! A removed holder and the next one may both be inside, until the first one notices. What they
//! protect is safe if it is written with tokens: whenever one of the two draws, its token is on the
//! right side of all those of the other.

use super::batch::{Invariant, assert_kept_despite};
use super::plan::Breach;

// Goal: tokens grow from holder to holder, also when the earlier one draws later.
// Method: the histories of all seeds, where holders that live are removed by force.
#[test]
fn tokens_grow_from_holder_to_holder() {
    assert_kept_despite(Breach::Force, Invariant::TokenOrder);
}

// Goal: a token is above all that were given before it was asked for.
// Method: as above.
#[test]
fn tokens_grow() {
    assert_kept_despite(Breach::Force, Invariant::Tokens);
}

// Goal: a holder that was removed notices in time.
// Method: as above.
#[test]
fn removed_holders_notice_in_time() {
    assert_kept_despite(Breach::Force, Invariant::Overlap);
}

// Goal: a contender that was not removed is not overtaken.
// Method: as above.
#[test]
fn others_are_not_overtaken() {
    assert_kept_despite(Breach::Force, Invariant::Fifo);
}

// Goal: rows are missing of none but those that were removed.
// Method: as above.
#[test]
fn nothing_else_is_missing() {
    assert_kept_despite(Breach::Force, Invariant::Acknowledged);
}

// Goal: a client that is removed or asked to leave does so, and no other.
// Method: as above.
#[test]
fn clients_that_are_removed_leave() {
    assert_kept_despite(Breach::Force, Invariant::Leaving);
}

// Goal: no row is left in the end, and every task is served after healing.
// Method: as above.
#[test]
fn all_ends_well() {
    assert_kept_despite(Breach::Force, Invariant::Rows);
    assert_kept_despite(Breach::Force, Invariant::Served);
}
