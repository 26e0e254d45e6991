//! What every store promises of the end of rows.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{LIVES, LONG_TTL, Object, SHORT_TTL, claim, rows_of};
use crate::core::bakery::{Change, Claim, Read};

/// The pause between two looks at rows that are about to expire.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// By how much clocks of nodes may differ in these tests.
const SKEW: Duration = Duration::from_secs(1);

/// Checks a store. The object is new.
pub(super) async fn rows_end_as_written(object: &Object<'_>) {
    let renewed = [claim(1, 1, Some(1)), claim(1, 2, Some(2))];
    let shortened = [claim(2, 1, Some(3)), claim(2, 2, Some(4))];
    object.put(&renewed[0], 1, SHORT_TTL).await;
    object.put(&renewed[1], 2, LONG_TTL).await;
    object.put(&shortened[0], 1, LONG_TTL).await;
    object.put(&shortened[1], 2, SHORT_TTL).await;
    object.write(5, Change::Mark).await;
    object.raise_fence(6).await;

    rows_of_one_write_end_together(object, &claim(3, 1, Some(5))).await;
    // Those were written before, but the next node's clock may be behind.
    sleep(SKEW).await;
    object.expect(Read::Object, &rows_of(&renewed[1])).await;
    nothing_comes_back(object, &shortened[0]).await;
    statics_outlive_rows(object).await;
}

/// Both rows are whole until they are gone, at once, and not before or after their time.
async fn rows_of_one_write_end_together(object: &Object<'_>, claim: &Claim) {
    let ttl = Duration::from_secs(u64::from(SHORT_TTL.unsigned_abs()));
    let sent = Instant::now();
    object.put(claim, 1, SHORT_TTL).await;
    let acknowledged = Instant::now();
    loop {
        let asked = Instant::now();
        let rows = object.read(Read::Contender(claim.contender)).await;
        if rows.is_empty() {
            assert!(sent.elapsed() >= LIVES, "gone {:?} after the write", sent.elapsed());
            return;
        }
        assert_eq!(rows, rows_of(claim), "a part of what was written is gone");
        let seen_after = asked - acknowledged;
        assert!(seen_after < ttl + SKEW, "still seen {seen_after:?} after the write");
        sleep(LOOK_PAUSE).await;
    }
}

/// Neither an older write with a longer life, nor its late copy.
async fn nothing_comes_back(object: &Object<'_>, older: &Claim) {
    let id = older.contender;
    for _ in 0..2 {
        object.expect(Read::Contender(id), &[]).await;
        object.expect(Read::Entering(id), &[]).await;
        assert_eq!(object.stamps(id).await, []);
        object.put(older, 1, LONG_TTL).await;
    }
    object.expect(Read::Contender(id), &[]).await;
}

/// Static columns have a time of their own.
async fn statics_outlive_rows(object: &Object<'_>) {
    assert_eq!(object.statics(Read::Object).await.mark, Some(object.stamp + 5));
    assert_eq!(object.fence().await, Some(6));
}
