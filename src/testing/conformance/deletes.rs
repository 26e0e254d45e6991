//! What every store promises of deletes of rows beside sweeps, which delete ranges.

use super::{LONG_TTL, Object, claim, contender, rows_of};
use crate::protocol::{Change, Read};

/// Checks a store. The object is new.
pub(super) async fn deletes_and_sweeps_stand_beside_each_other(object: &Object<'_>) {
    a_sweep_beats_a_write_of_the_same_stamp(object).await;
    the_higher_delete_counts(object).await;
    an_older_delete_or_sweep_removes_nothing(object).await;
}

/// Whichever of the two came first.
async fn a_sweep_beats_a_write_of_the_same_stamp(object: &Object<'_>) {
    let (early, late) = (claim(1, 10, Some(1)), claim(2, 10, Some(2)));
    object.put(&early, 10, LONG_TTL).await;
    object.write(10, Change::Sweep).await;
    object.put(&late, 10, LONG_TTL).await;
    object.expect(Read::Object, &[]).await;
    object.put(&late, 11, LONG_TTL).await;
    object.expect(Read::Object, &rows_of(&late)).await;
    object.delete(late.contender, 12, true).await;
}

/// A row is hidden up to the higher one of its own delete and the last sweep, whichever came first.
async fn the_higher_delete_counts(object: &Object<'_>) {
    for (number, delete, sweep) in [(3, 40, 30), (4, 50, 60)] {
        let claim = claim(number, 20, Some(i64::from(number)));
        let hidden_up_to = delete.max(sweep);
        if delete > sweep {
            object.delete(claim.contender, delete, true).await;
            object.write(sweep, Change::Sweep).await;
        } else {
            object.write(sweep, Change::Sweep).await;
            object.delete(claim.contender, delete, true).await;
        }
        for stamp in [delete.min(sweep), hidden_up_to - 1, hidden_up_to] {
            object.put(&claim, stamp, LONG_TTL).await;
            object.expect(Read::Contender(claim.contender), &[]).await;
        }
        object.put(&claim, hidden_up_to + 1, LONG_TTL).await;
        object.expect(Read::Contender(claim.contender), &rows_of(&claim)).await;
        object.delete(claim.contender, hidden_up_to + 2, true).await;
    }
}

/// Deletes and sweeps that arrive late hide nothing that was written after them.
async fn an_older_delete_or_sweep_removes_nothing(object: &Object<'_>) {
    let (one, other) = (claim(5, 70, Some(1)), claim(6, 70, None));
    object.put(&one, 80, LONG_TTL).await;
    object.put(&other, 90, LONG_TTL).await;
    object.write(79, Change::Sweep).await;
    object.delete(one.contender, 78, true).await;
    object.delete(contender(6), 89, true).await;
    object.expect(Read::Object, &[rows_of(&one), rows_of(&other)].concat()).await;
    // It hides one of the two.
    object.write(85, Change::Sweep).await;
    object.expect(Read::Object, &rows_of(&other)).await;
}
