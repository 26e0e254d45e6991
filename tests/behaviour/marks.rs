//! Objects that a client with a wrong clock has swept.

use std::time::Duration;

use bakery_lock::{LockClient, LockError};
use tokio::time::{Instant, sleep};

use super::{OBJECT, SOON, client, expect_rows, s, store};

const HOUR: Duration = s(3_600);

/// How many operations a client has made.
fn operations(client: &LockClient) -> u64 {
    let statistics = client.statistics();
    let reads = statistics.object_reads + statistics.contender_reads;
    reads + statistics.writes + statistics.deletes
}

// Goal: a mark that is hours ahead costs each client a round, and no lock: not the first, nor later
// ones of the same client, whose own deletes must not hide its rows.
// Method: two clients lock over and over, and one that is built later.
#[tokio::test(start_paused = true)]
async fn mark_hours_ahead_costs_one_round() {
    for ahead in [s(10), HOUR, HOUR * 23] {
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

// Goal: a mark out of reach is an error that says so, at once, and leaves nothing behind.
// Method: a mark that is a year ahead.
#[tokio::test(start_paused = true)]
async fn mark_out_of_reach_is_an_error() {
    let store = store();
    let client = client(&store, "one").await;
    store.set_mark_ahead(OBJECT, HOUR * 24 * 365);
    let began = Instant::now();
    let error = client.lock(OBJECT).await.expect_err("no round is above it");
    assert!(matches!(error, LockError::MarkOutOfReach { .. }), "{error:?}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    expect_rows(&store, 0).await;
    client.lock("another").await.expect("it is free").unlock().await.expect("it was held");
}
