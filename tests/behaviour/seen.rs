//! What others see of a contender: whether it holds, and when it renewed last.

use std::time::Duration;

use bakery_lock::{ContenderInfo, ContenderState, LockClient, LockMode};
use tokio::time::{Instant, sleep};

use super::{OBJECT, client, ms, s, store};

async fn seen(client: &LockClient) -> Vec<ContenderInfo> {
    client.contenders(OBJECT).await.expect("the store answers")
}

fn states(contenders: &[ContenderInfo]) -> Vec<ContenderState> {
    let state = |contender: &ContenderInfo| contender.state.expect("its rows can be read");
    contenders.iter().map(state).collect()
}

// Goal: the holder is told from those that wait, before and after its first renewal, and so is the
// one that follows it.
// Method: a holder on the fast path and two that wait; look for 100 s, then release.
#[tokio::test(start_paused = true)]
async fn holder_is_told_from_those_that_wait() {
    use ContenderState::{Holding, Waiting};
    let store = store();
    let observer = client(&store, "observer").await;
    let holder = client(&store, "holder").await;
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    assert_eq!(states(&seen(&observer).await), [Holding]);
    for host in ["first", "second"] {
        let client = client(&store, host).await;
        tokio::spawn(async move {
            let waiting = client.request(OBJECT).timeout(s(1000)).acquire().await;
            let guard = waiting.expect("it is let in");
            sleep(s(100)).await;
            guard.unlock().await.expect("the lock is held");
        });
        sleep(s(1)).await;
    }
    for round in 0..200 {
        let all = seen(&observer).await;
        assert_eq!(states(&all), [Holding, Waiting, Waiting], "{round}: {all:?}");
        sleep(ms(500)).await;
    }
    guard.unlock().await.expect("the lock is held");
    sleep(s(1)).await;
    assert_eq!(states(&seen(&observer).await), [Holding, Waiting]);
}

// Goal: readers hold together, and a writer behind them waits.
// Method: two readers of two clients, a writer, and a reader behind it.
#[tokio::test(start_paused = true)]
async fn readers_hold_together() {
    use ContenderState::{Holding, Waiting};
    let store = store();
    let mut clients = Vec::new();
    for host in ["a", "b", "writer", "late"] {
        clients.push(client(&store, host).await);
    }
    let read = |client: &LockClient| client.request(OBJECT).timeout(s(100)).shared().acquire();
    let first = read(&clients[0]).await.expect("the lock is free");
    let second = read(&clients[1]).await.expect("readers share it");
    tokio::spawn(clients[2].request(OBJECT).timeout(s(100)).acquire());
    sleep(s(1)).await;
    tokio::spawn(read(&clients[3]));
    sleep(s(1)).await;
    let all = seen(&clients[0]).await;
    let told = all.iter().map(|contender| (contender.mode, contender.state));
    let (shared, exclusive) = (Some(LockMode::Shared), Some(LockMode::Exclusive));
    let expected = [
        (shared, Some(Holding)),
        (shared, Some(Holding)),
        (exclusive, Some(Waiting)),
        (shared, Some(Waiting)),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected, "{all:?}");
    drop((first, second));
}

// Goal: nothing says of a client that renews that it is overdue, and its lease is always long
// enough; one that does not renew is overdue after a third of its TTL and what clocks may differ.
// Method: a holder, a waiter and one that holds another object for one lease; look at each moment.
#[tokio::test(start_paused = true)]
async fn one_that_does_not_renew_is_overdue() {
    let store = store();
    let [observer, holder, waiter] =
        [client(&store, "a").await, client(&store, "b").await, client(&store, "c").await];
    let ttl = s(60);
    let held = holder.lock(OBJECT).await.expect("the lock is free");
    tokio::spawn(waiter.request(OBJECT).timeout(s(1000)).acquire());
    sleep(s(1)).await;
    for _ in 0..1000 {
        let all = seen(&observer).await;
        assert_eq!(all.len(), 2, "{all:?}");
        for contender in all {
            assert_eq!(contender.overdue, None, "{contender:?}");
            let remaining = contender.remaining.expect("its rows can be read");
            assert!(remaining <= ttl && remaining >= ttl * 2 / 3 - s(2), "{contender:?}");
            assert!(contender.renewed_at >= contender.since(), "{contender:?}");
        }
        sleep(ms(97)).await;
    }
    held.unlock().await.expect("the lock is held");

    let began = Instant::now();
    let _held = holder.request("once").auto_renew(false).acquire().await.expect("the lock is free");
    let overdue = loop {
        let all = observer.contenders("once").await.expect("the store answers");
        if let Some(overdue) = all.first().expect("its rows live").overdue {
            break overdue;
        }
        sleep(ms(10)).await;
    };
    let (took, due) = (began.elapsed(), ttl / 3);
    let doubt = Duration::from_secs(1) + s(1);
    assert!(took > due && took < due + doubt + s(1), "told after {took:?}");
    assert!(overdue > doubt && overdue < took - due + s(1), "{overdue:?}");
}
