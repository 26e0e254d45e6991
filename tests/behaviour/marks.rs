//! Objects that a client with a wrong clock has swept, or that were marked by hand.

use std::time::Duration;

use bakery_lock::{LockClient, LockError, TableError};
use tokio::time::{Instant, sleep};

use super::{OBJECT, SOON, client, expect_rows, s, store};

const HOUR: Duration = s(3_600);
const YEAR: Duration = s(365 * 24 * 3_600);

/// Longer than any clock shows, in a stamp.
const FARTHEST: Duration = s(5_000_000_000_000);

/// How many operations a client has made.
fn operations(client: &LockClient) -> u64 {
    let statistics = client.statistics();
    let reads = statistics.object_reads + statistics.contender_reads;
    reads + statistics.writes + statistics.deletes
}

// Goal: a mark that is hours or years ahead costs each client a round, and no lock: not the first,
// nor later ones of the same client, whose own deletes must not hide its rows.
// Method: two clients lock over and over, and one that is built later.
#[tokio::test(start_paused = true)]
async fn mark_ahead_costs_one_round() {
    for ahead in [s(10), HOUR, YEAR, YEAR * 1_000] {
        let store = store();
        let (one, other) = (client(&store, "one").await, client(&store, "other").await);
        one.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
        store.set_mark_ahead(OBJECT, ahead);
        let later = client(&store, "later").await;
        for client in [&one, &other, &one, &later, &one] {
            let (before, began) = (operations(client), Instant::now());
            let guard = client.lock(OBJECT).await.expect("the lock is free");
            guard.unlock().await.expect("it was held");
            let used = operations(client) - before;
            assert!(used <= 8 && began.elapsed() < SOON, "{used}, {:?}", began.elapsed());
            // Until the task of the lock has ended.
            sleep(SOON).await;
        }
        expect_rows(&store, 0).await;
    }
}

// Goal: contenders exclude each other below, at and above such a mark.
// Method: one holds since before the mark was raised; another one waits.
#[tokio::test(start_paused = true)]
async fn holder_of_before_excludes_contenders_above_mark() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let held = one.lock(OBJECT).await.expect("the lock is free");
    store.set_mark_ahead(OBJECT, HOUR);
    let waiting = tokio::spawn(other.request(OBJECT).timeout(s(600)).acquire());
    sleep(s(300)).await;
    assert!(held.state().is_held() && !waiting.is_finished());
    held.unlock().await.expect("it was held");
    let next = waiting.await.expect("it does not panic").expect("it is its turn");
    assert!(one.try_lock(OBJECT).await.expect("the store answers").is_none());
    next.unlock().await.expect("it was held");
    one.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
}

// Goal: a mark that was written by hand, larger than any clock shows, is an error that names the
// command that repairs it, at once, and leaves nothing behind; a repair lets all clients in again.
// Method: such marks, beside a holder that was let in before; a repair, and another one.
#[tokio::test(start_paused = true)]
async fn mark_out_of_reach_is_repaired() {
    for value in [i64::MAX, i64::MAX / 2 + 1] {
        let store = store();
        let (one, other) = (client(&store, "one").await, client(&store, "other").await);
        let held = one.lock(OBJECT).await.expect("the lock is free");
        store.set_mark(OBJECT, value);
        let began = Instant::now();
        let error = other.lock(OBJECT).await.expect_err("no round is above it");
        assert!(matches!(error, LockError::MarkOutOfReach { .. }), "{error:?}");
        assert!(error.to_string().contains("run `lockctl repair users::snap`"), "{error}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        expect_rows(&store, 1).await;
        other.lock("another").await.expect("it is free").unlock().await.expect("it was held");

        assert!(one.repair_mark(OBJECT).await.expect("the store answers"));
        assert!(!other.repair_mark(OBJECT).await.expect("the store answers"), "it is repaired");
        assert!(other.try_lock(OBJECT).await.expect("the store answers").is_none());
        sleep(s(100)).await;
        held.unlock().await.expect("the repair took nothing from it");
        for client in [&other, &one] {
            client.lock(OBJECT).await.expect("it is free").unlock().await.expect("it was held");
        }
        expect_rows(&store, 0).await;
    }
}

// Goal: a mark that clients begin above needs no repair, and none is made of one whose write stamp
// is as large as itself.
// Method: no mark, one in reach, and the largest one with a stamp of its own.
#[tokio::test(start_paused = true)]
async fn only_a_mark_written_by_hand_is_repaired() {
    let store = store();
    let client = client(&store, "one").await;
    assert!(!client.repair_mark(OBJECT).await.expect("the store answers"));
    store.set_mark_ahead(OBJECT, HOUR);
    assert!(!client.repair_mark(OBJECT).await.expect("the store answers"));
    client.lock(OBJECT).await.expect("it is free").unlock().await.expect("it was held");

    store.set_mark_ahead(OBJECT, FARTHEST);
    let error = client.lock(OBJECT).await.expect_err("no round is above it");
    assert!(matches!(error, LockError::MarkOutOfReach { .. }), "{error:?}");
    let error = client.repair_mark(OBJECT).await.expect_err("no stamp is above it");
    assert!(matches!(error, TableError::MarkOutOfReach { .. }), "{error:?}");
    assert!(error.to_string().contains("use another name"), "{error}");
}
