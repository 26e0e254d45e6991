//! Futures that are dropped half-way: whenever that happens, nothing is left.
//!
//! Each is dropped at its first poll, at its second one, and so on until it completes. A call of
//! the store takes four times as long as passes between two polls, so each call is caught before
//! it is applied, in between and afterwards.

#![allow(clippy::async_yields_async, reason = "the future itself is what gets dropped")]

use std::future::Future;
use std::time::Duration;

use bakery_lock::LockClient;
use bakery_lock::testing::FaultyStore;
use tokio::time::{sleep, timeout};

use super::{OBJECT, client, expect_rows, ms, s, seeded, store};
use support::polls::poll_at_most;

const CALL: Duration = ms(4);
const BETWEEN_POLLS: Duration = ms(1);

#[tokio::test(start_paused = true)]
async fn lock_of_a_free_object() {
    drop_everywhere("lock, free", async |_, client| async move { client.lock(OBJECT).await }).await;
}

#[tokio::test(start_paused = true)]
async fn lock_of_a_held_object() {
    let begin = async |store: &FaultyStore, client: LockClient| {
        hold_for_a_while(store).await;
        async move { client.lock(OBJECT).await }
    };
    drop_everywhere("lock, held", begin).await;
}

// Its rows go at once, and not only when the holder leaves.
#[tokio::test(start_paused = true)]
async fn lock_of_an_object_that_stays_held() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "b").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    assert!(timeout(s(1), other.lock(OBJECT)).await.is_err(), "the lock is held");
    expect_rows(&store, 1).await;
    guard.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

#[tokio::test(start_paused = true)]
async fn lock_behind_a_caller_of_the_same_client() {
    let begin = async |_: &FaultyStore, client: LockClient| {
        let first = client.lock(OBJECT).await.expect("the lock is free");
        tokio::spawn(async move {
            sleep(CALL * 3).await;
            drop(first);
        });
        async move { client.lock(OBJECT).await }
    };
    drop_everywhere("lock, held by the same client", begin).await;
}

#[tokio::test(start_paused = true)]
async fn try_of_a_free_object() {
    let begin = async |_: &FaultyStore, client: LockClient| async move {
        client.try_lock(OBJECT).await.expect("the store answers")
    };
    drop_everywhere("try_lock, free", begin).await;
}

#[tokio::test(start_paused = true)]
async fn try_of_a_held_object() {
    let begin = async |store: &FaultyStore, client: LockClient| {
        hold_for_a_while(store).await;
        async move { client.try_lock(OBJECT).await.expect("the store answers") }
    };
    drop_everywhere("try_lock, held", begin).await;
}

#[tokio::test(start_paused = true)]
async fn an_unlock() {
    let begin = async |_: &FaultyStore, client: LockClient| {
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        async move { guard.unlock().await }
    };
    drop_everywhere("unlock", begin).await;
}

#[tokio::test(start_paused = true)]
async fn unlock_of_a_guard_with_a_ticket() {
    let begin = async |store: &FaultyStore, client: LockClient| {
        hold_for_a_while(store).await;
        let guard = client.lock(OBJECT).await.expect("it will be free");
        async move { guard.unlock().await }
    };
    drop_everywhere("unlock, with a ticket", begin).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown() {
    let begin = async |_: &FaultyStore, client: LockClient| {
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        async move {
            let outcome = client.shutdown().await;
            drop(guard);
            outcome
        }
    };
    drop_everywhere("shutdown", begin).await;
}

/// Drops the future that `begin` makes at each of its polls in turn, until it completes. Each time
/// no row may be left in the end, so that the lock is free.
async fn drop_everywhere<F: Future>(
    what: &str,
    begin: impl AsyncFn(&FaultyStore, LockClient) -> F,
) {
    for polls in 0.. {
        let store = seeded();
        let client = client(&store, "a").await;
        store.delay_calls(CALL);
        let future = begin(&store, client).await;
        let output = poll_at_most(polls, future, async || sleep(BETWEEN_POLLS).await).await;
        let complete = output.is_some();
        // A guard that came along is dropped here.
        drop(output);
        expect_rows(&store, 0).await;
        if complete {
            println!("{what}: dropped after 0 to {} polls, each time no row left", polls - 1);
            assert!(polls > 4, "it was hardly dropped in between");
            return;
        }
    }
}

/// Lets another client hold the lock for five calls.
async fn hold_for_a_while(store: &FaultyStore) {
    let guard = client(store, "holder").await.lock(OBJECT).await.expect("the lock is free");
    tokio::spawn(async move {
        sleep(CALL * 5).await;
        drop(guard);
    });
}
