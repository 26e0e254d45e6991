//! A guard that goes out of scope gives the lock back, whatever way the scope is left: at its end,
//! by `?`, or because the future is dropped.
//!
//!     cargo run --example scoped_guard
//!     cargo run --example scoped_guard -- --nodes 127.0.0.1,127.0.0.2 --keyspace my_keyspace

use std::error::Error;
use std::time::Duration;

use bakery_lock::{LockClient, LockError, MemoryStore};
use clap::Parser;
use scylla::client::session_builder::SessionBuilder;
use tokio::time::{sleep, timeout};

#[derive(Parser)]
struct Options {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// A keyspace that `lock-hosts init` has prepared.
    #[arg(long, default_value = "bakery_lock")]
    keyspace: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let builder = if options.nodes.is_empty() {
        LockClient::builder_in_memory(&MemoryStore::new())
    } else {
        let session = SessionBuilder::new().known_nodes(&options.nodes).build().await?;
        LockClient::builder(session, options.keyspace)
    };
    let client = builder.register_host(true).build().await?;

    {
        let guard = client.lock("invoices::2026").await?;
        println!("in the scope {:?} is held for at least {:?}", guard.name(), guard.remaining());
    }
    println!("after the scope it is free: {}", is_free(&client).await?);

    let failed = fail_halfway(&client).await;
    println!(
        "a function failed in the middle ({failed:?}), and it is free: {}",
        is_free(&client).await?
    );

    let slow = timeout(Duration::from_millis(50), work_for_ever(&client)).await;
    println!(
        "a future was dropped ({}), and it is free: {}",
        slow.expect_err("it works for ever"),
        is_free(&client).await?
    );

    // Dropping waits for nothing. To know that the lock was given back, and how, unlock.
    let guard = client.lock("invoices::2026").await?;
    guard.unlock().await?;
    println!("unlocked: no row is left");
    // As `main` ends nothing runs any more that could delete rows: shut down before.
    client.shutdown().await?;
    Ok(())
}

async fn fail_halfway(client: &LockClient) -> Result<u32, Box<dyn Error>> {
    let _guard = client.lock("invoices::2026").await?;
    Ok("no number".parse()?)
}

async fn work_for_ever(client: &LockClient) -> Result<(), LockError> {
    let _guard = client.lock("invoices::2026").await?;
    loop {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Whether the lock can be taken. It waits a little: a dropped guard is given back in the
/// background.
async fn is_free(client: &LockClient) -> Result<bool, LockError> {
    match client.request("invoices::2026").timeout(Duration::from_secs(1)).acquire().await {
        Ok(_guard) => Ok(true),
        Err(LockError::TimedOut { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
