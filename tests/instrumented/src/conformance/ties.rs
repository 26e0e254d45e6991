//! What every store promises of writes with the same stamp.

use super::{LONG_TTL, Object, claim, contender, revocation, rows_of};
use crate::core::bakery::{Change, Read, StoredRow};

/// Checks a store. The object is new.
pub(super) async fn ties_are_settled(object: &Object<'_>) {
    all_reads_agree_on_a_tie(object).await;
    a_shorter_copy_shortens_nothing(object).await;
    a_delete_wins_every_tie(object).await;
}

/// Of two writes with one stamp each read shows the same one, whole; a higher stamp replaces both.
async fn all_reads_agree_on_a_tie(object: &Object<'_>) {
    for (number, order) in [(1, [1, 2]), (2, [2, 1])] {
        let id = contender(number);
        let tied = order.map(|round| claim(number, round, Some(round)));
        for claim in &tied {
            object.put(claim, 10, LONG_TTL).await;
        }
        let shown = object.read(Read::Contender(id)).await;
        assert!(tied.iter().any(|claim| rows_of(claim) == shown), "{shown:?} was not written");
        for _ in 0..10 {
            object.expect(Read::Contender(id), &shown).await;
            object.expect(Read::Entering(id), &shown).await;
            let stamps = object.stamps(id).await;
            let rounds: Vec<_> = stamps.iter().map(|row| Some(row.round)).collect();
            assert_eq!(rounds, [shown[0].round], "{stamps:?}");
        }
        let later = claim(number, 3, Some(3));
        object.put(&later, 11, LONG_TTL).await;
        object.expect(Read::Contender(id), &rows_of(&later)).await;
    }
}

/// A second copy of a write is no other write, even if it would live for a shorter time.
async fn a_shorter_copy_shortens_nothing(object: &Object<'_>) {
    let claim = claim(3, 1, Some(1));
    for ttl in [LONG_TTL, LONG_TTL / 2] {
        object.put(&claim, 10, ttl).await;
    }
    let rows = object.rows.read_with_times(&object.name).await.expect("a read is answered");
    let lives = rows.iter().filter(|timed| timed.row.contender == claim.contender);
    for timed in lives {
        let left = timed.ttl_seconds.expect("the row has a TTL");
        assert!(left > LONG_TTL / 2, "{left} s are left of {LONG_TTL}");
    }
    object.expect(Read::Contender(claim.contender), &rows_of(&claim)).await;
}

/// Whichever of the two came first, also for a revocation, and for one row of two.
async fn a_delete_wins_every_tie(object: &Object<'_>) {
    let claim = claim(4, 1, Some(1));
    let (id, revocation) = (claim.contender, revocation(&claim));
    let delete = |revoked| Change::Delete { contender: id, revoked, last_release: None };
    object.put(&claim, 10, LONG_TTL).await;
    object.revoke(&revocation, 10, LONG_TTL).await;
    object.write(10, delete(true)).await;
    object.expect(Read::Contender(id), &[]).await;
    object.revoke(&revocation, 10, LONG_TTL).await;
    object.put(&claim, 10, LONG_TTL).await;
    object.expect(Read::Contender(id), &[]).await;

    object.put(&claim, 20, LONG_TTL).await;
    object.revoke(&revocation, 20, LONG_TTL).await;
    object.write(20, delete(false)).await;
    object.expect(Read::Contender(id), &[StoredRow::revoked(&revocation)]).await;
}
