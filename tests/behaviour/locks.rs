//! All locks in use.

use std::collections::BTreeSet;

use bakery_lock::TableError;
use bakery_lock::admin::{LockInUse, Locks};
use bakery_lock::testing::Fault;
use bakery_lock::{ContenderState, LockClient};
use tokio::time::Instant;

use super::{OBJECT, client, ms, s, store};

async fn all(client: &LockClient) -> Vec<LockInUse> {
    let mut locks = client.locks();
    let mut found = Vec::new();
    while let Some(lock) = next(&mut locks).await {
        found.push(lock);
    }
    let (read, parts) = locks.progress();
    assert_eq!((read, next(&mut locks).await), (parts, None), "it has ended");
    found
}

async fn next(locks: &mut Locks) -> Option<LockInUse> {
    locks.try_next().await.expect("the store answers")
}

// Goal: each lock in use is found once, with its holder and waiters, and none that is free, whether
// it was held before, has a fence, or is only asked to be given up.
// Method: 2,500 locks, more than two pages of the store in memory have.
#[tokio::test(start_paused = true)]
async fn locks_in_use_are_found() {
    let store = store();
    let [client, other] = [client(&store, "a").await, client(&store, "b").await];
    assert_eq!(all(&client).await, []);
    let mut guards = Vec::new();
    for number in 0..2_500 {
        let name = format!("object {number}");
        guards.push(client.lock(&name).await.expect("the lock is free"));
    }
    let free = client.lock("free").await.expect("the lock is free");
    free.fencing_token().await.expect("it is held");
    free.unlock().await.expect("it is held");
    let waiting = tokio::spawn(other.request("object 7").label("waiter").timeout(s(99)).acquire());
    tokio::time::sleep(ms(100)).await;

    let found = all(&client).await;
    let names: BTreeSet<_> = found.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!((names.len(), found.len()), (2_500, 2_500));
    let seventh = found.iter().find(|lock| lock.name == "object 7").expect("it is held");
    let told =
        seventh.contenders.iter().map(|contender| (contender.state, contender.owner.label()));
    let expected =
        [(Some(ContenderState::Holding), None), (Some(ContenderState::Waiting), Some("waiter"))];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(seventh.contenders, client.contenders("object 7").await.expect("it answers"));
    waiting.abort();
}

// Goal: a read that fails loses nothing: what fails for a moment is read again, and after an error
// the stream continues. The end of its client ends it, after one error.
// Method: fail reads for a moment, for longer than the client waits, and for good; shut down.
#[tokio::test(start_paused = true)]
async fn failed_read_loses_no_lock() {
    let store = store();
    let client = client(&store, "a").await;
    let _guard = client.lock(OBJECT).await.expect("the lock is free");
    let mut locks = client.locks();
    store.fail_next(3, Fault::NotApplied);
    assert_eq!(next(&mut locks).await.map(|lock| lock.name).as_deref(), Some(OBJECT));

    let mut locks = client.locks();
    store.fail_next(usize::MAX, Fault::NotApplied);
    let began = Instant::now();
    let error = locks.try_next().await.expect_err("the store fails");
    assert!(matches!(error, TableError::TimedOut { cause: Some(_), .. }), "{error:?}");
    assert_eq!(began.elapsed().as_secs(), 5, "the client's timeout");
    store.fail_next(usize::MAX, Fault::Refused);
    let error = locks.try_next().await.expect_err("the store refuses");
    assert!(matches!(error, TableError::Refused { .. }), "{error:?}");
    store.fail_next(0, Fault::Refused);
    assert_eq!(next(&mut locks).await.map(|lock| lock.name).as_deref(), Some(OBJECT));
    assert_eq!(next(&mut locks).await, None);

    let mut locks = client.locks();
    client.shutdown().await.expect("the store answers");
    let error = locks.try_next().await.expect_err("the client is shut down");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    for _ in 0..2 {
        assert_eq!(next(&mut locks).await, None, "it has ended");
    }
}
