//! What a client counts of its locks.

use bakery_lock::{LockClient, LockError, LostReason};
use tokio::time::sleep;

use super::{OBJECT, client, ms, s, store};

/// Grants, locks held, callers that wait, timeouts, refused tries, losses.
fn counts(client: &LockClient) -> [u64; 6] {
    let all = client.statistics();
    [all.grants, all.held, all.waiting, all.timeouts, all.refused_tries, all.lost.total()]
}

// Goal: grants, locks held, callers that wait, timeouts and refused tries are counted, turns within
// a client too; a caller that leaves waits no more.
// Method: one lock, asked for in each way.
#[tokio::test(start_paused = true)]
async fn locks_and_callers_are_counted() {
    let store = store();
    let client = client(&store, "a").await;
    assert_eq!(counts(&client), [0, 0, 0, 0, 0, 0]);
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    assert_eq!(counts(&client), [1, 1, 0, 0, 0, 0]);
    assert!(client.try_lock(OBJECT).await.expect("the store answers").is_none());
    let timed_out = client.request(OBJECT).timeout(ms(10)).acquire().await;
    assert!(matches!(timed_out, Err(LockError::TimedOut { .. })), "{timed_out:?}");
    assert_eq!(counts(&client), [1, 1, 0, 1, 1, 0]);

    let leaving = tokio::spawn(client.request(OBJECT).timeout(s(60)).acquire());
    let next = tokio::spawn(client.request(OBJECT).timeout(s(60)).acquire());
    sleep(ms(100)).await;
    assert_eq!(counts(&client), [1, 1, 2, 1, 1, 0]);
    leaving.abort();
    sleep(ms(1)).await;
    assert_eq!(counts(&client), [1, 1, 1, 1, 1, 0]);
    guard.unlock().await.expect("it is held");
    let guard = next.await.expect("it does not panic").expect("it is let in");
    assert_eq!(counts(&client), [2, 1, 0, 1, 1, 0]);
    drop(guard);
    sleep(ms(100)).await;
    assert_eq!(counts(&client), [2, 0, 0, 1, 1, 0]);
}

// Goal: each loss is counted once, by its reason, and the lock is held no more.
// Method: locks that are lost in different ways.
#[tokio::test(start_paused = true)]
async fn losses_are_counted_by_their_reason() {
    let store = store();
    let [client, operator] = [client(&store, "a").await, client(&store, "b").await];
    let once = client.request("expired").auto_renew(false).acquire().await.expect("it is free");
    assert_eq!(once.lost().await, Some(LostReason::Expired));
    let long = client.request("limit").max_hold(s(1)).max_hold_grace(s(1)).acquire().await;
    assert_eq!(long.expect("it is free").lost().await, Some(LostReason::HoldLimit));
    let revoked = client.lock("revoked").await.expect("it is free");
    let seen = operator.contenders("revoked").await.expect("the store answers");
    operator.revoke("revoked", &seen[0], "it hangs").await.expect("it holds");
    assert!(matches!(revoked.lost().await, Some(LostReason::Revoked { .. })));
    let missing = client.lock("missing").await.expect("it is free");
    store.lose_rows("missing");
    assert_eq!(missing.lost().await, Some(LostReason::RowMissing));
    let closed = client.lock("closed").await.expect("it is free");
    let kept = client.lock("kept").await.expect("it is free");
    kept.unlock().await.expect("it is held");
    client.shutdown().await.expect("the store answers");
    assert_eq!(closed.lost().await, Some(LostReason::ClientClosed));

    let all = client.statistics();
    let lost = all.lost;
    assert_eq!((all.grants, all.held, lost.total()), (6, 0, 5), "{all:?}");
    assert_eq!(all.expiring, 2, "a limit and a revocation: {all:?}");
    assert_eq!((lost.expired, lost.hold_limit, lost.revoked), (1, 1, 1), "{lost:?}");
    assert_eq!((lost.row_missing, lost.client_closed), (1, 1), "{lost:?}");
}

// Goal: a caller that lets readers go first is counted as one that waits; its timeout and its
// refused try are counted like all others.
// Method: such a caller times out, gives up, is refused, and is let in.
#[tokio::test(start_paused = true)]
async fn callers_that_yield_are_counted() {
    let store = store();
    let [client, readers] = [client(&store, "a").await, client(&store, "b").await];
    let reader = readers.request(OBJECT).shared().acquire().await.expect("the lock is free");
    let yielding = client.request(OBJECT).yield_to_shared(s(60)).timeout(s(60));
    let waiting = tokio::spawn(yielding.clone().acquire());
    let leaving = tokio::spawn(yielding.clone().acquire());
    sleep(s(1)).await;
    assert_eq!(counts(&client), [0, 0, 2, 0, 0, 0]);
    leaving.abort();
    sleep(ms(1)).await;
    assert_eq!(counts(&client), [0, 0, 1, 0, 0, 0]);
    let refused = yielding.clone().try_acquire().await.expect("the store answers");
    assert!(refused.is_none());
    let timed_out = yielding.timeout(s(1)).acquire().await;
    assert!(matches!(timed_out, Err(LockError::TimedOut { .. })), "{timed_out:?}");
    assert_eq!(counts(&client), [0, 0, 1, 1, 1, 0]);
    reader.unlock().await.expect("it is held");
    let guard = waiting.await.expect("it does not panic").expect("no reader is left");
    assert_eq!(counts(&client), [1, 1, 0, 1, 1, 0]);
    guard.unlock().await.expect("it is held");
}
