//! What every store promises of an object with static columns and without rows.

use std::time::Duration;

use super::{LONG_TTL, Object, claim, contender, front};
use crate::core::bakery::{Change, LastRelease, Read, Statics};

/// Checks a store. The objects of these names are new.
pub(super) async fn statics_need_no_rows(object: &Object<'_>) {
    a_mark_alone_is_no_row(object).await;
    deletes_leave_statics(&Object { name: format!("{} too", object.name), ..*object }).await;
}

/// No read takes the static part for a row, and the fence of an object with a mark alone is none.
async fn a_mark_alone_is_no_row(object: &Object<'_>) {
    let id = contender(1);
    assert_eq!(object.statics(Read::Object).await, Statics::default());
    object.write(20, Change::Mark).await;
    for read in [Read::Object, Read::Contender(id), Read::Entering(id), front(id, &[id])] {
        object.expect(read, &[]).await;
    }
    let mark = Some(object.stamp + 20);
    assert_eq!(object.statics(Read::Object).await, Statics { mark, ..Statics::default() });
    assert_eq!(object.rows.read_with_times(&object.name).await.expect("a read is answered"), []);
    assert_eq!(object.stamps(id).await, []);
    assert_eq!(object.fence().await, None);
    object.raise_fence(30).await;
    assert_eq!(object.fence().await, Some(30));
    assert_eq!(object.statics(Read::Object).await.mark, mark, "a fence touches no mark");
}

/// Deletes of rows and sweeps leave the mark, the last release and the fence.
async fn deletes_leave_statics(object: &Object<'_>) {
    let claim = claim(1, 7, Some(5));
    let contender = claim.contender;
    let last = LastRelease {
        client: contender.client,
        round: claim.round,
        handoff: Duration::from_micros(1_234),
        stamp: object.stamp + 12,
    };
    let release = Change::Delete { contender, revoked: false, last_release: Some(last) };
    object.put(&claim, 10, LONG_TTL).await;
    object.raise_fence(10).await;
    object.write(11, Change::Mark).await;
    object.write(12, release).await;
    object.sweep(40, &[]).await;
    object.expect(Read::Object, &[]).await;
    let expected = Statics { last_release: Some(last), mark: Some(object.stamp + 11) };
    assert_eq!(object.statics(Read::Object).await, expected);
    assert_eq!(object.fence().await, Some(10));
}
