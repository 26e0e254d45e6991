//! Futures that are dropped half-way: whenever that happens, no row is left.
//!
//! Each is dropped after no poll, after one, after two, and so on until it completes. It is polled
//! every tenth of a millisecond, which is a fraction of what an operation takes. On a busy machine
//! an operation takes thousands of polls, so later polls are sampled, each a few percent after the
//! previous one.
//!
//! The rows go by themselves. But where none is seen, one may still be on its way; so the client is
//! shut down before the last look: when it has ended, all it wrote has arrived.

#![allow(clippy::async_yields_async, reason = "the future itself is what gets dropped")]

use std::future::Future;
use std::iter::successors;
use std::time::Duration;

use bakery_lock::LockClient;
use tokio::time::sleep;

use super::scene::Scene;
use support::polls::poll_at_most;

const BETWEEN_POLLS: Duration = Duration::from_micros(100);

/// How long another client holds the lock.
const HELD_FOR: Duration = Duration::from_millis(8);

#[tokio::test]
async fn lock_of_a_free_object() {
    let _beside = support::beside_others().await;
    let begin = async |_: &LockClient, client: LockClient, name: String| async move {
        client.lock(&name).await
    };
    drop_everywhere("lock, free", begin).await;
}

#[tokio::test]
async fn lock_of_a_held_object() {
    let _beside = support::beside_others().await;
    let begin = async |other: &LockClient, client: LockClient, name: String| {
        hold_for_a_while(other, &name).await;
        async move { client.lock(&name).await }
    };
    drop_everywhere("lock, held", begin).await;
}

#[tokio::test]
async fn try_of_a_held_object() {
    let _beside = support::beside_others().await;
    let begin = async |other: &LockClient, client: LockClient, name: String| {
        hold_for_a_while(other, &name).await;
        async move { client.try_lock(&name).await.expect("the database answers") }
    };
    drop_everywhere("try_lock, held", begin).await;
}

#[tokio::test]
async fn an_unlock() {
    let _beside = support::beside_others().await;
    let begin = async |_: &LockClient, client: LockClient, name: String| {
        let guard = client.lock(&name).await.expect("the lock is free");
        async move { guard.unlock().await }
    };
    drop_everywhere("unlock", begin).await;
}

#[tokio::test]
async fn a_shutdown() {
    let _beside = support::beside_others().await;
    let begin = async |_: &LockClient, client: LockClient, name: String| {
        let guard = client.lock(&name).await.expect("the lock is free");
        async move {
            let outcome = client.shutdown().await;
            drop(guard);
            outcome
        }
    };
    drop_everywhere("shutdown", begin).await;
}

async fn drop_everywhere<F: Future>(
    what: &str,
    begin: impl AsyncFn(&LockClient, LockClient, String) -> F,
) {
    let scene = Scene::new().await;
    let other = scene.client().await;
    let polls = successors(Some(0), |polls| Some(polls + 1 + polls / 24));
    for (tried, polls) in polls.enumerate() {
        let client = scene.client().await;
        let name = support::unique("dropped");
        let future = begin(&other, client.clone(), name.clone()).await;
        let output = poll_at_most(polls, future, pause).await;
        let complete = output.is_some();
        // A guard that came along is dropped here.
        drop(output);
        scene.wait_until_deleted(&name).await;
        client.shutdown().await.expect("the database answers");
        // What was sent before the drop may arrive after the delete; then it stays dead.
        assert_eq!(scene.rows(&name).await, Vec::<String>::new());
        if complete {
            println!("{what}: dropped {tried} times, after less than {polls} polls: no row left");
            return;
        }
    }
}

/// Lets the rest of the program run after a moment that is too short for a timer. Sleeping, rather
/// than spinning, leaves the processor to the database.
async fn pause() {
    std::thread::sleep(BETWEEN_POLLS);
    tokio::task::yield_now().await;
}

/// Lets another client hold the lock for a few operations.
async fn hold_for_a_while(other: &LockClient, name: &str) {
    let guard = other.lock(name).await.expect("the lock is free");
    tokio::spawn(async move {
        sleep(HELD_FOR).await;
        drop(guard);
    });
}
