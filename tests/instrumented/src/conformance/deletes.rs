//! What every store promises of deletes of rows, and of sweeps, which delete ranges.

use uuid::Uuid;

use super::{LONG_TTL, Object, claim, contender, rows_of};
use crate::core::bakery::{Claim, ContenderId, Read};

/// Checks a store. The object is new.
pub(super) async fn deletes_and_sweeps_stand_beside_each_other(object: &Object<'_>) {
    a_sweep_beats_a_write_of_the_same_stamp(object).await;
    the_higher_delete_counts(object).await;
    an_older_delete_or_sweep_removes_nothing(object).await;
    a_sweep_leaves_the_rows_of_those_it_spares(object).await;
}

/// Whichever of the two came first.
async fn a_sweep_beats_a_write_of_the_same_stamp(object: &Object<'_>) {
    let (early, late) = (claim(1, 10, Some(1)), claim(2, 10, Some(2)));
    object.put(&early, 10, LONG_TTL).await;
    object.sweep(10, &[]).await;
    object.put(&late, 10, LONG_TTL).await;
    object.expect(Read::Object, &[]).await;
    object.put(&late, 11, LONG_TTL).await;
    object.expect(Read::Object, &rows_of(&late)).await;
    object.delete(late.contender, 12).await;
}

/// A row is hidden up to the higher one of its own delete and the last sweep, whichever came first.
async fn the_higher_delete_counts(object: &Object<'_>) {
    for (number, delete, sweep) in [(3, 40, 30), (4, 50, 60)] {
        let claim = claim(number, 20, Some(i64::from(number)));
        let hidden_up_to = delete.max(sweep);
        if delete > sweep {
            object.delete(claim.contender, delete).await;
            object.sweep(sweep, &[]).await;
        } else {
            object.sweep(sweep, &[]).await;
            object.delete(claim.contender, delete).await;
        }
        for stamp in [delete.min(sweep), hidden_up_to - 1, hidden_up_to] {
            object.put(&claim, stamp, LONG_TTL).await;
            object.expect(Read::Contender(claim.contender), &[]).await;
        }
        object.put(&claim, hidden_up_to + 1, LONG_TTL).await;
        object.expect(Read::Contender(claim.contender), &rows_of(&claim)).await;
        object.delete(claim.contender, hidden_up_to + 2).await;
    }
}

/// Deletes and sweeps that arrive late hide nothing that was written after them.
async fn an_older_delete_or_sweep_removes_nothing(object: &Object<'_>) {
    let (one, other) = (claim(5, 70, Some(1)), claim(6, 70, None));
    object.put(&one, 80, LONG_TTL).await;
    object.put(&other, 90, LONG_TTL).await;
    object.sweep(79, &[]).await;
    object.delete(one.contender, 78).await;
    object.delete(contender(6), 89).await;
    object.expect(Read::Object, &[rows_of(&one), rows_of(&other)].concat()).await;
    // It hides one of the two.
    object.sweep(85, &[]).await;
    object.expect(Read::Object, &rows_of(&other)).await;
}

/// Wherever their keys are in the order of all: the first and the last one, two that follow one
/// another, and one by itself. Neither host nor slot need be positive.
async fn a_sweep_leaves_the_rows_of_those_it_spares(object: &Object<'_>) {
    // Some are above `i64::MAX` in their first half.
    let clients = ["00000000-0000-4000-8000-000000000000", "f0000000-0000-4000-8000-000000000000"];
    let clients = clients.map(|client| client.parse::<Uuid>().expect("it is one").as_u128());
    let mut all = Vec::new();
    for host in [-7, 7] {
        for client in clients {
            all.extend([-1, 0, 1].map(|slot| ContenderId { host, client, slot }));
        }
    }
    let claim = |contender| Claim { contender, ..claim(1, 100, Some(5)) };
    for &contender in &all {
        object.put(&claim(contender), 100, LONG_TTL).await;
    }
    let spared = [0, 4, 5, 8, 11].map(|place: usize| all[place]);
    object.sweep(110, &spared).await;
    let rows =
        |of: &[ContenderId]| of.iter().flat_map(|it| rows_of(&claim(*it))).collect::<Vec<_>>();
    object.expect(Read::Object, &rows(&spared)).await;
    object.put(&claim(spared[2]), 105, LONG_TTL).await;
    object.put(&claim(all[1]), 105, LONG_TTL).await;
    object.expect(Read::Object, &rows(&spared)).await;
    // What an earlier sweep has hidden stays hidden, whomever a later one spares.
    object.sweep(120, &[all[1], spared[2]]).await;
    object.put(&claim(all[1]), 109, LONG_TTL).await;
    object.put(&claim(all[2]), 115, LONG_TTL).await;
    object.expect(Read::Object, &rows(&spared[2..3])).await;
    object.put(&claim(all[1]), 111, LONG_TTL).await;
    object.expect(Read::Object, &rows(&[all[1], spared[2]])).await;
}
