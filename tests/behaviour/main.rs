//! What clients and guards do, on the memory store. Time is tokio's and paused wherever it can be,
//! so that minutes pass in milliseconds and always the same way.

mod at_least;
mod blocking;
mod chance;
mod closing;
mod dead;
mod downgrade;
mod dropped;
mod election;
mod errors;
mod fencing;
mod flood;
mod foreign_code;
mod forms;
mod health;
mod held;
mod herd;
mod hold;
mod lease;
mod limited;
mod lock_all;
mod locks;
mod marks;
mod memory;
mod metrics;
mod min_hold;
mod options;
mod outside_tokio;
mod prefix;
mod queue;
mod read_only;
mod readiness;
mod registry;
mod revised;
mod revoke;
mod rows_lost;
mod runners;
mod seen;
mod shared;
mod spans;
mod stalled;
mod states;
mod statistics;
mod trouble;
mod turns;
mod warnings;
mod with_lock;

use std::time::Duration;

use bakery_lock::LockClient;
use bakery_lock::testing::FaultyStore;
use tokio::runtime::{Builder, Runtime};

use chance::seeded;
use support::pace;

const OBJECT: &str = "users::snap";

/// Longer than anything takes that does not wait for a lease.
const SOON: Duration = Duration::from_millis(200);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A store whose calls take a millisecond of tokio's time.
fn store() -> FaultyStore {
    let store = seeded();
    store.delay_calls(ms(1));
    store
}

/// A client with the defaults.
async fn client(store: &FaultyStore, host: &str) -> LockClient {
    let builder = store.client_builder().host(host);
    builder.build().await.expect("a client in memory is built")
}

/// The same where time is not paused: callers wait as long as tests do.
async fn client_on_the_wall(store: &FaultyStore, host: &str) -> LockClient {
    let builder = store.client_builder().host(host);
    let client = builder.acquire_timeout(pace::limit()).build().await;
    client.expect("a client in memory is built")
}

/// A runtime whose time passes only while it runs, and as fast as nothing else is to be done.
fn paused_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built")
}

/// A runtime with a thread of its own, whose time passes on the wall.
fn runtime_on_the_wall() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build();
    runtime.expect("a runtime can be built")
}

/// Waits until an object has `rows` live rows, at most [`SOON`].
async fn expect_rows(store: &FaultyStore, rows: usize) {
    let came = async {
        while store.live_rows(OBJECT) != rows {
            tokio::time::sleep(ms(1)).await;
        }
    };
    if tokio::time::timeout(SOON, came).await.is_err() {
        panic!("there are {} rows instead of {rows}", store.live_rows(OBJECT));
    }
}
