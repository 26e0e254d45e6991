//! Clients that take no locks.

use bakery_lock::{InvalidOption, LockClient, LockError};
use tokio::time::sleep;

use super::{OBJECT, client, s, store};

fn is_refused<T>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Option(InvalidOption::ReadOnly)))
}

async fn first(observer: &LockClient) -> bakery_lock::ContenderInfo {
    let all = observer.contenders(OBJECT).await.expect("the store answers");
    all.into_iter().next().expect("the lock is held")
}

// Goal: an observer sees locks and revokes them on a machine that is not registered, and leaves no
// trace there; it takes no lock by any way.
// Method: look at a held lock, request it in each way, then revoke it.
#[tokio::test(start_paused = true)]
async fn observer_sees_and_revokes_and_takes_no_lock() {
    let store = store();
    let holder = client(&store, "holder").await;
    let observer = store.client_builder().host("not-registered").read_only(true).build().await;
    let observer = observer.expect("an observer needs no registration");
    let guard = holder.lock(OBJECT).await.expect("the lock is free");

    assert!(is_refused(&observer.lock(OBJECT).await));
    assert!(is_refused(&observer.try_lock("free").await));
    assert!(is_refused(&observer.lock_all(["free", OBJECT]).await));
    assert!(is_refused(&observer.request("free").yield_to_shared(s(1)).acquire().await));
    assert!(is_refused(&observer.election("free").campaign().await));
    assert_eq!(observer.statistics().writes, 0);

    let seen = first(&observer).await;
    assert_eq!(seen.owner.host_name(), Some("holder"));
    let lock = observer.locks().try_next().await.expect("the store answers");
    assert_eq!(lock.map(|lock| lock.name).as_deref(), Some(OBJECT));
    observer.revoke(OBJECT, &seen, "it hangs").await.expect("the holder is there");
    sleep(s(60)).await;
    assert!(guard.check().await.is_err(), "it was revoked");
    assert_eq!(store.last_seen_writes(), 1, "only the holder's host is in use");

    let hosts = store.host_registry().list().await.expect("the registry answers");
    assert_eq!(hosts.iter().map(bakery_lock::hosts::Host::name).collect::<Vec<_>>(), ["holder"]);
    observer.shutdown().await.expect("there is nothing to give back");
}
