//! What a client holds.

use bakery_lock::{GuardState, LockClient};

use super::{client, s, store};

async fn names(client: &LockClient) -> Vec<String> {
    client.held().await.iter().map(|lock| lock.name().to_owned()).collect()
}

// Goal: a client shows all that it holds and nothing else: alone, shared, of a limited number, in
// turn, and not what is waited for, lost or given back.
// Method: take and give back locks of each kind.
#[tokio::test(start_paused = true)]
async fn client_shows_what_it_holds() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    assert_eq!(names(&holder).await, [""; 0]);
    let alone = holder.lock("b").await.expect("the lock is free");
    let shared = || holder.request("c").shared().acquire();
    let (one, two) = (shared().await.expect("it is shared"), shared().await.expect("it is shared"));
    let limited = holder.request("a").max_holders(2).acquire().await.expect("the lock is free");
    let foreign = other.lock("d").await.expect("the lock is free");
    let waiting = tokio::spawn({
        let holder = holder.clone();
        async move { holder.request("d").timeout(s(100)).acquire().await }
    });
    assert_eq!(names(&holder).await, ["a", "b", "c", "c"]);
    assert_eq!(names(&other).await, ["d"]);

    let held = holder.held().await;
    let handle = held.iter().find(|lock| lock.name() == "b").expect("it is held");
    assert!(handle.fencing_token().await.is_ok());
    alone.unlock().await.expect("it was held");
    assert_eq!(handle.state(), GuardState::Released);
    store.lose_rows("a");
    limited.lost().await;
    drop((one, two));
    foreign.unlock().await.expect("it was held");
    let passed_on = waiting.await.expect("the task does not panic").expect("it is free");
    assert_eq!(names(&holder).await, ["d"]);
    drop(passed_on);
    holder.shutdown().await.expect("the store answers");
    assert_eq!(names(&holder).await, [""; 0]);
}
