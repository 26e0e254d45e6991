//! A waiter behind many that give up at the same moment. The simulation plays this, too, with a
//! bug.

use std::time::Duration;

use bakery_lock::testing::FaultyStore;
use bakery_lock::{LockClient, LockError};
use tokio::time::{Instant, sleep};

const OBJECT: &str = "users::snap";

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// By then a waiter has found that all ahead of it are gone, on a slow database.
pub(crate) const HERD_GONE: Duration = s(5);

/// Two hundred clients queue for ten seconds behind a holder on a slow database, and one behind
/// them with this timeout. A release has reported that handoffs are slow. Returns how long the lock
/// was free before the last one had it.
///
/// # Panics
///
/// Where the store fails. Time must be tokio's, and paused.
pub(crate) async fn behind_a_herd(
    store: &FaultyStore,
    patience: Duration,
) -> Result<Duration, LockError> {
    let (holder, other) = (client(store, "holder").await, client(store, "other").await);
    let mut herd = Vec::new();
    for _ in 0..200 {
        herd.push(client(store, "herd").await);
    }
    store.delay_calls(Duration::from_millis(200));
    let held = holder.lock(OBJECT).await?;
    let waiting = tokio::spawn(other.request(OBJECT).timeout(s(60)).acquire());
    sleep(s(3)).await;
    held.unlock().await.expect("the store answers");
    let told = waiting.await.expect("it does not panic")?;
    told.unlock().await.expect("the store answers");

    let held = holder.lock(OBJECT).await?;
    let requests = herd.iter().map(|client| client.request(OBJECT).timeout(s(60)));
    let callers: Vec<_> = requests.map(|request| tokio::spawn(request.acquire())).collect();
    sleep(s(5)).await;
    let waiting = tokio::spawn(other.request(OBJECT).timeout(patience).acquire());
    sleep(s(5)).await;
    for caller in callers {
        caller.abort();
    }
    sleep(s(2)).await;
    let free = Instant::now();
    held.unlock().await.expect("the store answers");
    let guard = waiting.await.expect("it does not panic")?;
    let waited = free.elapsed();
    guard.unlock().await.expect("the store answers");
    Ok(waited)
}

async fn client(store: &FaultyStore, host: &str) -> LockClient {
    let builder = store.client_builder().host(host);
    builder.build().await.expect("a client in memory is built")
}
