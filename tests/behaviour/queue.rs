//! Which callers are let in, and when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bakery_lock::testing::FaultyStore;
use bakery_lock::{ContenderInfo, LockClient, LockError, LockGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::chance::exchanges;
use super::herd::{HERD_GONE, behind_a_herd};
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// The callers that were let in, in that order.
type Order = Arc<Mutex<Vec<&'static str>>>;

/// Locks in a task, notes the caller's name, and holds for 10 ms.
fn visit(client: &LockClient, name: &'static str, order: &Order) -> JoinHandle<()> {
    let (client, order) = (client.clone(), Arc::clone(order));
    tokio::spawn(async move {
        let guard = client.lock(OBJECT).await.expect("each caller gets the lock");
        order.lock().expect("the mutex is not poisoned").push(name);
        sleep(ms(10)).await;
        guard.unlock().await.expect("the store answers");
    })
}

async fn join(visits: Vec<JoinHandle<()>>) {
    for visit in visits {
        visit.await.expect("the task does not panic");
    }
}

fn entered(order: &Order) -> Vec<&'static str> {
    order.lock().expect("the mutex is not poisoned").clone()
}

// Goal: callers of one client are served in the order in which they asked.
// Method: five callers ask, one after the other, while the lock is held.
#[tokio::test(start_paused = true)]
async fn callers_of_one_client_are_served_in_the_order_in_which_they_asked() {
    let (store, order) = (store(), Order::default());
    let client = client(&store, "a").await;
    let held = client.lock(OBJECT).await.expect("the lock is free");
    let names = ["first", "second", "third", "fourth", "fifth"];
    let mut visits = Vec::new();
    for name in names {
        visits.push(visit(&client, name, &order));
        sleep(ms(1)).await;
    }
    assert!(entered(&order).is_empty(), "the lock is held");
    held.unlock().await.expect("the store answers");
    join(visits).await;
    assert_eq!(entered(&order), names);
    expect_rows(&store, 0).await;
}

// Goal: clients are served in the order in which they drew their tickets, and without turns each
// grant leaves the queue: a client with many callers does not overtake the others.
// Method: one client asks thrice before another one asks, while a third one holds the lock.
#[tokio::test(start_paused = true)]
async fn without_turns_each_grant_leaves_the_queue() {
    let (store, order) = (store(), Order::default());
    let holder = client(&store, "holder").await;
    let busy = store.client_builder().host("busy").local_handoff(false);
    let busy = busy.build().await.expect("a client in memory is built");
    let modest = client(&store, "modest").await;
    let held = holder.lock(OBJECT).await.expect("the lock is free");
    let mut visits = Vec::new();
    for (client, name) in [(&busy, "1"), (&busy, "2"), (&busy, "3"), (&modest, "other")] {
        visits.push(visit(client, name, &order));
        sleep(ms(20)).await;
    }
    held.unlock().await.expect("the store answers");
    join(visits).await;
    assert_eq!(entered(&order), ["1", "other", "2", "3"]);
    expect_rows(&store, 0).await;
}

// Goal: all callers of a client together have one place in the database's queue.
// Method: five callers wait behind another client; rows and writes are counted.
#[tokio::test(start_paused = true)]
async fn callers_of_one_client_share_a_contender() {
    let (store, order) = (store(), Order::default());
    let (holder, client) = (client(&store, "holder").await, client(&store, "a").await);
    let held = holder.lock(OBJECT).await.expect("the lock is free");
    let visits = Vec::from(["1", "2", "3", "4", "5"].map(|name| visit(&client, name, &order)));
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 1 + 1);
    if !exchanges() {
        assert_eq!(client.statistics().writes, 2, "one announcement, one ticket");
    }
    held.unlock().await.expect("the store answers");
    join(visits).await;
    assert_eq!(entered(&order).len(), 5);
    expect_rows(&store, 0).await;
}

// Goal: a caller that times out is told which client holds the lock, and its rows go at once.
// Method: one client holds with a label; another one waits for so long that it seldom looks.
#[tokio::test(start_paused = true)]
async fn caller_that_times_out_is_told_the_holder() {
    let store = store();
    let (holder, other) = (client(&store, "host-of-holder").await, client(&store, "b").await);
    let held = holder.request(OBJECT).label("nightly run").acquire().await;
    let held = held.expect("the lock is free");
    let asked = Instant::now();
    let error = other.request(OBJECT).timeout(s(50)).acquire().await.expect_err("it is held");
    assert!((s(50)..s(50) + ms(50)).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    sleep(ms(10)).await;
    assert_eq!(store.live_rows(OBJECT), 1);
    let message = error.to_string();
    assert!(message.contains("\"users::snap\" was not obtained within 50"), "{message}");
    assert!(message.contains("host-of-holder pid"), "{message}");
    let LockError::TimedOut { ahead, cause: None, .. } = error else {
        panic!("another error came: {error:?}");
    };
    let [ContenderInfo { owner, ticket: None, .. }] = &ahead[..] else {
        panic!("there is one holder, without a ticket: {ahead:?}");
    };
    assert_eq!(owner.label(), Some("nightly run"));
    held.unlock().await.expect("the store answers");
    expect_rows(&store, 0).await;
}

// Goal: the same when the holder is a caller of the same client, and with a name too long to show.
// Method: as before, with one client.
#[tokio::test(start_paused = true)]
async fn holder_of_the_same_client_is_named_too() {
    let store = store();
    let client = client(&store, "a").await;
    let name = "long".repeat(1_000);
    let held = client.request(&name).label("mine").acquire().await.expect("the lock is free");
    let error = client.request(&name).timeout(s(1)).acquire().await.expect_err("it is held");
    let message = error.to_string();
    assert!(
        message.contains("this client holds it itself") && message.contains("mine"),
        "{message}"
    );
    assert!(matches!(error, LockError::TimedOut { held_by_self: true, .. }), "{error:?}");
    assert!(message.contains("(4000 bytes)") && message.len() < 350, "{message}");
    drop(held);
}

// Goal: a caller that gives up doesn't cost the next caller of the same client its place.
// Method: two callers of one client and then another client wait; the first caller times out.
#[tokio::test(start_paused = true)]
async fn next_caller_takes_over_an_abandoned_place() {
    let (store, order) = (store(), Order::default());
    let holder = client(&store, "holder").await;
    let (earlier, later) = (client(&store, "a").await, client(&store, "b").await);
    let held = holder.lock(OBJECT).await.expect("the lock is free");
    let impatient = tokio::spawn(earlier.request(OBJECT).timeout(s(1)).acquire());
    sleep(ms(20)).await;
    let mut visits = vec![visit(&earlier, "second caller", &order)];
    sleep(ms(20)).await;
    visits.push(visit(&later, "other client", &order));
    let left: Result<LockGuard, LockError> = impatient.await.expect("the task does not panic");
    assert!(matches!(left, Err(LockError::TimedOut { .. })), "{left:?}");
    held.unlock().await.expect("the store answers");
    join(visits).await;
    assert_eq!(entered(&order), ["second caller", "other client"]);
    expect_rows(&store, 0).await;
}

// Goal: a try never takes a held lock and doesn't wait for it, whichever way it is held, and takes
// a free one.
// Method: tries of the same and of another client, against a holder without and with a ticket;
// calls take a millisecond, and ten.
#[tokio::test(start_paused = true)]
async fn try_does_not_wait_for_a_holder() {
    for call in [ms(1), ms(10)] {
        let store = store();
        store.delay_calls(call);
        tries_do_not_wait(&store, ms(100) + call * 10).await;
    }
}

/// None of them takes longer than this.
async fn tries_do_not_wait(store: &FaultyStore, at_most: Duration) {
    let (holder, other) = (client(store, "holder").await, client(store, "b").await);
    let queued = {
        let held = holder.lock(OBJECT).await.expect("the lock is free");
        expect_taken(&holder, at_most).await;
        expect_taken(&other, at_most).await;
        let queued = tokio::spawn(other.request(OBJECT).acquire());
        sleep(SOON).await;
        held.unlock().await.expect("the store answers");
        queued.await.expect("the task does not panic").expect("the lock is free now")
    };
    // The second holder has waited, so it has a ticket.
    expect_taken(&holder, at_most).await;
    expect_taken(&other, at_most).await;
    queued.unlock().await.expect("the store answers");
    let won = holder.try_lock(OBJECT).await.expect("the store answers");
    won.expect("the lock is free").unlock().await.expect("the store answers");
    expect_rows(store, 0).await;
}

async fn expect_taken(client: &LockClient, at_most: Duration) {
    let asked = Instant::now();
    let won = client.try_lock(OBJECT).await.expect("the store answers");
    assert!(won.is_none(), "a held lock was taken");
    assert!(asked.elapsed() <= at_most, "a try took {:?}", asked.elapsed());
}

// Goal: a waiter that is far back finds soon that the lock is free, although all ahead of it gave
// up, which no release tells; with little time left, it looks in time.
// Method: wait behind a herd, with each of these timeouts.
#[tokio::test(start_paused = true)]
async fn waiter_enters_soon_after_all_ahead_gave_up() {
    for patience in [s(300), s(30)] {
        let waited = behind_a_herd(&store(), patience).await.expect("the lock is free");
        println!("with a timeout of {patience:?} it entered {waited:?} after the lock was free");
        assert!(waited < HERD_GONE, "{waited:?}");
    }
}
