//! The store in memory as programs have it.

use bakery_lock::{LockClient, LockError, MemoryStore};
use tokio::time::{Instant, sleep};

use super::{OBJECT, s};

// Goal: where a test pauses tokio's time, waits and leases end by it, and no task spins until the
// system's clock has come as far.
// Method: a caller waits for its whole timeout, and a holder for longer than its TTL.
#[tokio::test(start_paused = true)]
async fn time_of_the_store_is_that_of_tokio() {
    let store = MemoryStore::new();
    let build = || async { LockClient::builder_in_memory(&store).build().await };
    let (holder, other) =
        (build().await.expect("it is built"), build().await.expect("it is built"));
    let held = holder.lock(OBJECT).await.expect("the lock is free");
    let began = Instant::now();
    let request = other.request(OBJECT).timeout(s(1_000));
    let error = request.acquire().await.expect_err("it is held");
    assert!(matches!(error, LockError::TimedOut { waited, .. } if waited == s(1_000)), "{error:?}");
    assert_eq!(began.elapsed(), s(1_000));
    assert!(held.state().is_held(), "it was renewed meanwhile");
    std::mem::forget(held);
    sleep(s(1_000)).await;
    holder.shutdown().await.expect("the store answers");
    assert!(other.try_lock(OBJECT).await.expect("the store answers").is_some());
}
