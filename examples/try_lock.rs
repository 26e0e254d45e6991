//! A job that one machine should do and no other: the first machine does it, the others continue
//! with something else instead of waiting.
//!
//!     cargo run --example try_lock
//!     cargo run --example try_lock -- --nodes 127.0.0.1,127.0.0.2 --keyspace my_keyspace

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::{LockClient, LockClientBuilder, LockError, MemoryStore};
use clap::Parser;
use scylla::client::session_builder::SessionBuilder;
use tokio::time::sleep;

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
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::parse();
    let builder = if options.nodes.is_empty() {
        LockClient::builder_in_memory(&MemoryStore::new())
    } else {
        let session = Arc::new(SessionBuilder::new().known_nodes(&options.nodes).build().await?);
        LockClient::builder(session, options.keyspace)
    };

    // Each stands for a machine.
    let machines = ["one", "two", "three"].map(|machine| {
        let builder = builder.clone();
        tokio::spawn(async move { nightly_report(machine, builder).await })
    });
    for machine in machines {
        machine.await??;
    }
    Ok(())
}

async fn nightly_report(
    machine: &str,
    builder: LockClientBuilder,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = builder.register_host(true).build().await?;
    match try_to_report(machine, &client).await? {
        Some(()) => println!("{machine}: the report is done"),
        // Of tries at the very same moment it may be that none wins, so a machine that must be sure
        // that the job is done looks again later.
        None => println!("{machine}: another machine reports, I do something else"),
    }
    client.shutdown().await?;
    Ok(())
}

/// `None` when the lock is taken: a try does not wait for the holder.
async fn try_to_report(machine: &str, client: &LockClient) -> Result<Option<()>, LockError> {
    let Some(guard) = client.try_lock("jobs::nightly-report").await? else {
        return Ok(None);
    };
    println!("{machine}: I report");
    sleep(Duration::from_millis(100)).await;
    if let Err(error) = guard.unlock().await {
        println!("{machine}: the report is done, but {error}");
    }
    Ok(Some(()))
}
