//! What becomes of a name when the task behind it ends as it should not, and of durations that no
//! clock reaches.

use std::pin::pin;
use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{EnsureError, GuardState, LockClient, LockError, LostReason, UnlockError};
use support::polls::poll_at_most;
use tokio::time::{sleep, timeout};

use super::chance::seeded;
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// The shortest TTL, and the lease that it gives.
const TTL: Duration = s(5);
const LEASE: Duration = s(3);

/// A client whose acquisitions, questions and releases wait for as long as it takes.
async fn patient(store: &FaultyStore) -> LockClient {
    let builder = store.client_builder().host("patient");
    builder.acquire_timeout(Duration::MAX).build().await.expect("a client in memory is built")
}

// Goal: a timeout that no clock reaches is a timeout like any other one.
// Method: all that waits for the acquire timeout, with the longest one there is: while the database
// answers, and while it does not.
#[tokio::test(start_paused = true)]
async fn longest_timeout_is_one() {
    let store = store();
    let client = patient(&store).await;
    for _ in 0..2 {
        let guard = client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free");
        guard.check().await.expect("it is held");
        guard.ensure(LEASE - ms(10)).await.expect("a renewal gives as much");
        guard.fencing_token().await.expect("it is held");
        let error = guard.ensure(Duration::MAX).await.expect_err("no lease lasts as long");
        assert!(matches!(error, EnsureError::TooLong { .. }), "{error:?}");
        store.fail_next(usize::MAX, Fault::UnknownNotApplied);
        assert!(timeout(s(1), guard.check()).await.is_err(), "nothing answers");
        let mut unlocking = pin!(guard.unlock());
        assert!(timeout(s(10), unlocking.as_mut()).await.is_err(), "nothing answers");
        store.fail_next(0, Fault::UnknownNotApplied);
        unlocking.await.expect("it was held");
    }
    client.shutdown().await.expect("the store answers");
    expect_rows(&store, 0).await;
}

// Goal: a caller that comes as the task of its name ends is served by the next one, in its turn.
// Method: calls take no time, so the release that ends the task is done before the callers, who
// asked just before it, are looked at.
#[tokio::test(start_paused = true)]
async fn callers_that_come_as_a_task_ends_are_served() {
    let store = seeded();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let mut first = pin!(client.lock(OBJECT));
    let mut second = pin!(client.lock(OBJECT));
    for asked in [first.as_mut(), second.as_mut()] {
        assert!(poll_at_most(1, asked, async || ()).await.is_none(), "the lock is held");
    }
    drop(guard);
    let guard = first.await.expect("it is its turn");
    assert!(poll_at_most(1, second.as_mut(), async || ()).await.is_none(), "the lock is held");
    drop(guard);
    second.await.expect("it is its turn").unlock().await.expect("the lock was held");
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: a task that ends by a bug costs what it held, and not its name: the guard is lost, callers
// that wait are told, and the next caller gets the lock.
// Method: a store that panics, when a lock is asked for and when one that has a ticket is renewed.
#[tokio::test(start_paused = true)]
async fn name_outlives_the_task_behind_it() {
    let store = store();
    let (client, other) = (client(&store, "a").await, client(&store, "b").await);
    let request = || client.request(OBJECT).ttl(TTL).timeout(s(60));
    let others = client.request("others").acquire().await.expect("the lock is free");

    store.fail_next(1, Fault::Panic);
    let error = request().acquire().await.expect_err("the task ended");
    assert!(matches!(error, LockError::Closed), "{error:?}");

    // So that the rows that are left have a ticket.
    let before = other.lock(OBJECT).await.expect("the lock is free");
    let acquiring = tokio::spawn(request().acquire());
    sleep(SOON).await;
    before.unlock().await.expect("it was held");
    let lost = acquiring.await.expect("acquiring does not panic").expect("it is its turn");
    let waiting = tokio::spawn(request().acquire());
    sleep(SOON).await;
    store.fail_next(1, Fault::Panic);
    let reason = timeout(TTL, lost.lost()).await.expect("the task ends as it renews");
    assert_eq!(reason, Some(LostReason::ClientClosed));
    let waited = timeout(SOON, waiting).await.expect("it is told").expect("it does not panic");
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert_eq!(store.live_rows(OBJECT), 1, "nothing could give them back");

    // Its own rows are in the way of others only.
    let next = timeout(SOON, request().acquire()).await.expect("it does not wait for its own rows");
    let next = next.expect("the name has another task");
    assert_eq!(lost.state(), GuardState::Lost(LostReason::ClientClosed));
    assert!(other.try_lock(OBJECT).await.expect("the store answers").is_none());
    let error = lost.unlock().await.expect_err("it was lost");
    assert!(
        matches!(error, UnlockError::Lost { reason: LostReason::ClientClosed, .. }),
        "{error:?}"
    );
    sleep(TTL * 3).await;
    assert!(matches!(next.state(), GuardState::Held { .. }), "{:?}", next.state());
    next.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
    other.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
    others.unlock().await.expect("another name has nothing to do with it");
    client.shutdown().await.expect("no task is left");
}

// Goal: a name that is not in use costs no task, however many asked for it at once.
// Method: count the tasks before, and after some callers of one name had their turns.
#[tokio::test(start_paused = true)]
async fn names_that_are_not_in_use_cost_no_task() {
    let store = store();
    let client = client(&store, "a").await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // What the building of a client began has ended by then.
    sleep(SOON).await;
    let before = tasks();
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    assert!(tasks() > before, "a lock has a task");
    let callers: Vec<_> = (0..3).map(|_| tokio::spawn(client.request(OBJECT).acquire())).collect();
    sleep(SOON).await;
    guard.unlock().await.expect("it was held");
    for caller in callers {
        drop(caller.await.expect("acquiring does not panic").expect("it is its turn"));
    }
    sleep(SOON).await;
    assert_eq!(tasks(), before);
}

// Goal: a client whose task for a name has ended retires the next one when that is due, and not
// before: a report of the ended task is not taken for one of the next.
// Method: end the task with a caller in line, over and over, with callers of another name between.
#[tokio::test(start_paused = true)]
async fn callers_reach_the_task_that_came_after() {
    let store = store();
    let client = client(&store, "a").await;
    for round in 1..=20 {
        drop(client.lock(OBJECT).await.expect("the lock is free"));
        sleep(ms(round)).await;
        store.fail_next(1, Fault::Panic);
        let error = client.lock(OBJECT).await.expect_err("the task ended");
        assert!(matches!(error, LockError::Closed), "{error:?}");
        let next = client.lock(OBJECT).await.expect("the name has another task");
        next.unlock().await.expect("it was held");
    }
    drop(client);
    sleep(SOON).await;
    let tasks = tokio::runtime::Handle::current().metrics();
    assert_eq!(tasks.num_alive_tasks(), 0, "the client's tasks have ended");
}

// Goal: a lock that was granted to a future that is not polled any more is given back within a
// lease, and the caller learns that when it looks.
// Method: poll an acquisition until it waits; another client wants the lock.
#[tokio::test(start_paused = true)]
async fn grant_that_is_not_collected_is_given_back() {
    let store = store();
    let (client, other) = (client(&store, "a").await, client(&store, "b").await);
    let before = client.lock(OBJECT).await.expect("the lock is free");
    let mut forgotten = pin!(client.request(OBJECT).ttl(TTL).timeout(s(600)).acquire());
    assert!(poll_at_most(1, forgotten.as_mut(), async || ()).await.is_none(), "the lock is held");
    sleep(SOON).await;
    before.unlock().await.expect("it was held");
    let next = timeout(TTL * 2, other.request(OBJECT).timeout(s(600)).acquire()).await;
    let next = next.expect("it is given back").expect("each caller is served");
    let error = forgotten.await.expect_err("it was given back");
    let is_lost = matches!(error, LockError::Lost { reason: LostReason::Expired, .. });
    assert!(is_lost, "{error:?}");
    next.unlock().await.expect("it was held");
}

// Goal: the future that reports the end of a lock can be polled after that.
// Method: poll it twice.
#[tokio::test(start_paused = true)]
async fn future_of_loss_may_be_polled_again() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let mut lost = guard.lost();
    guard.unlock().await.expect("it was held");
    for _ in 0..3 {
        assert_eq!((&mut lost).await, None);
    }
}
