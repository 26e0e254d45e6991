//! A leader, and how others find it.
//!
//!     cargo run --example scheduler

use std::error::Error;
use std::time::Duration;

use bakery_lock::{LockClient, MemoryStore};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    for number in 1..=3 {
        // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
        let client = LockClient::builder_in_memory(&store).build().await?;
        // Its label says where it serves.
        let election = client.election("scheduler").label(format!("10.0.0.{number}:8080"));
        tokio::spawn(async move {
            // It stops when another one leads, and is called again when this one does.
            election.priority(number).lead(async |_| schedule().await).await
        });
    }
    let client = LockClient::builder_in_memory(&store).build().await?;
    let mut leaders = client.election("scheduler").observe();
    loop {
        let leaders = leaders.try_next().await?.ok_or("the client was shut down")?;
        if let Some(address) = leaders.first().and_then(|leader| leader.owner.label()) {
            println!("the scheduler is at {address}");
            return Ok(());
        }
    }
}

/// The work of a leader: it never ends by itself.
async fn schedule() {
    loop {
        sleep(Duration::from_millis(100)).await;
    }
}
