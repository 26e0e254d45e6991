//! Rows that vanish although they were acknowledged: what holders and waiters make of it, and how
//! long two may hold.

use std::time::Duration;

use bakery_lock::{GuardState, LockClient, LockGuard, LostReason};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// The TTL of all locks here, and when a renewal is due.
const TTL: Duration = s(60);
const RENEWAL_DUE: Duration = s(20);

/// For so long two may hold after rows were lost.
const TWO_HOLD_MAX: Duration = s(40);

async fn hold(client: &LockClient) -> LockGuard {
    client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock seems to be free")
}

fn is_held(guard: &LockGuard) -> bool {
    matches!(guard.state(), GuardState::Held { .. })
}

// Goal: a holder whose rows are gone is lost at its next renewal, and does not write them again.
// Method: lose the rows, let another client in, and wait for the renewal.
#[tokio::test(start_paused = true)]
async fn holder_without_rows_is_lost_at_its_renewal() {
    let store = store();
    let (older, newer) = (client(&store, "older").await, client(&store, "newer").await);
    let guard = hold(&older).await;
    sleep(s(7)).await;
    store.lose_rows(OBJECT);
    let next = hold(&newer).await;
    let began = Instant::now();
    let reason = timeout(s(3_600), guard.lost()).await.expect("two clients hold for an hour");
    assert_eq!(reason, Some(LostReason::RowMissing));
    assert!(began.elapsed() <= RENEWAL_DUE - s(7) + SOON, "{:?}", began.elapsed());
    sleep(s(3_600)).await;
    assert!(is_held(&next), "{:?}", next.state());
    next.unlock().await.expect("the lock was held");
    expect_rows(&store, 0).await;
}

// Goal: rows may also vanish between the read of a renewal and its write, which brings them back
// when another client has been let in. Then the older of the two holders is lost, within 2/3 of a
// TTL, and the newer one is not.
// Method: slow calls for the renewal, quick ones for the other client. It is let in at the older
// one's first, second or third renewal.
#[tokio::test(start_paused = true)]
async fn of_two_holders_the_older_one_is_lost() {
    for renewals in 1..=3 {
        let store = store();
        let (older, newer) = (client(&store, "older").await, client(&store, "newer").await);
        let guard = hold(&older).await;
        // Just before the renewal is due, so that this one is slow.
        sleep_until_renewal(&older, renewals).await;
        store.delay_calls(ms(400));
        sleep(ms(410)).await;
        // It has read, and its write will be applied 200 ms after it began.
        store.lose_rows(OBJECT);
        store.delay_calls(ms(1));
        let next = hold(&newer).await;
        let both_hold = Instant::now();
        sleep(s(1)).await;
        assert!(is_held(&guard) && is_held(&next), "the renewal did not bring the rows back");
        let reason = timeout(s(3_600), guard.lost()).await.expect("two clients hold for an hour");
        assert!(matches!(reason, Some(LostReason::Conflict { .. })), "{reason:?}");
        assert!(both_hold.elapsed() <= TWO_HOLD_MAX, "{:?}", both_hold.elapsed());
        sleep(s(3_600)).await;
        assert!(is_held(&next), "{:?}", next.state());
        next.unlock().await.expect("the lock was held");
        expect_rows(&store, 0).await;
    }
}

/// Sleeps until a few milliseconds before a renewal of the only holder is due.
async fn sleep_until_renewal(holder: &LockClient, renewals: u32) {
    let writes = holder.statistics().writes;
    for renewal in 1..renewals {
        while holder.statistics().writes < writes + u64::from(renewal) {
            sleep(ms(5)).await;
        }
    }
    sleep(RENEWAL_DUE - ms(30)).await;
}

// Goal: a waiter whose rows are gone begins again and is served; its caller notices nothing but the
// time.
// Method: lose the rows of holder and waiter while the waiter waits, then again between two polls.
#[tokio::test(start_paused = true)]
async fn waiter_without_rows_begins_a_new_round() {
    let store = store();
    let (holder, waiter) = (client(&store, "holder").await, client(&store, "waiter").await);
    let guard = hold(&holder).await;
    let request = waiter.request(OBJECT).ttl(TTL).timeout(s(600));
    let waiting = tokio::spawn(request.acquire());
    sleep(s(2)).await;
    expect_rows(&store, 2).await;
    store.lose_rows(OBJECT);
    let next = waiting.await.expect("the task does not panic").expect("it begins anew");
    assert_eq!(guard.lost().await, Some(LostReason::RowMissing));
    next.unlock().await.expect("the lock was held");
    expect_rows(&store, 0).await;
}
