//! Who has a lock now, and who stands in line for it? The table shows the client that has the
//! place; that client knows the rest, and tells it to others.
//!
//!     cargo run --example line
//!     cargo run --example line -- --nodes 127.0.0.1,127.0.0.2 --keyspace my_keyspace users::snap
//!
//! Without arguments it asks clients of its own, on a store in memory. With `--nodes` its user
//! needs the right to read `lock_peers`, and this machine a way to the port of the holder's client.

use std::error::Error;
use std::time::Duration;

use bakery_lock::admin::QueueError;

use bakery_lock::{LockClient, LockRequest, MemoryStore, PeerOptions};
use clap::Parser;
use scylla::client::session_builder::SessionBuilder;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const A_WHILE: Duration = Duration::from_millis(500);

#[derive(Parser)]
struct Options {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// A keyspace that `lock-hosts init` has prepared.
    #[arg(long, default_value = "bakery_lock")]
    keyspace: String,
    /// The name of the lock.
    #[arg(default_value = "users::snap")]
    name: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { nodes, keyspace, name } = Options::parse();
    if nodes.is_empty() {
        return in_memory(&name).await;
    }
    let session = SessionBuilder::new().known_nodes(&nodes).build().await?;
    let client = LockClient::builder(session, keyspace).register_host(true);
    // It asks others and listens nowhere: others must not wait for a tool that ends at once.
    let client = client.peers(PeerOptions::auto().serve_guests(false)).build().await?;
    show(&client, &name).await?;
    Ok(client.shutdown().await?)
}

/// Asks while a caller of one client has the lock, and while another client does.
async fn in_memory(name: &str) -> Result<()> {
    let store = MemoryStore::new();
    let client = |peers| {
        let builder = LockClient::builder_in_memory(&store);
        async { builder.peers(peers).build().await }
    };
    let (keeper, guest) = (client(PeerOptions::auto()).await?, client(PeerOptions::auto()).await?);
    let operator = client(PeerOptions::auto().serve_guests(false)).await?;
    show(&operator, name).await?;
    // Clients publish in the background where they listen.
    sleep(A_WHILE).await;

    let guard = keeper.request(name).label("nightly job").acquire().await?;
    let mut tasks = JoinSet::new();
    for (client, label) in [(&guest, "import"), (&keeper, "report")] {
        tasks.spawn(work(client.request(name).label(label)));
        sleep(A_WHILE).await;
    }
    show(&operator, name).await?;
    guard.unlock().await?;
    sleep(A_WHILE / 2).await;
    show(&operator, name).await?;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    for client in [operator, guest, keeper] {
        client.shutdown().await?;
    }
    Ok(())
}

async fn work(request: LockRequest) -> Result<()> {
    let guard = request.acquire().await?;
    sleep(A_WHILE).await;
    Ok(guard.unlock().await?)
}

async fn show(client: &LockClient, name: &str) -> Result<()> {
    let line = match client.queue(name).await {
        Ok(line) => line,
        Err(error @ QueueError::NotHeld { .. }) => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    match line.user {
        Some(user) if user.client == line.keeper.client => println!("{} has it", user.owner),
        Some(user) => println!("{} has it, as a guest of {}", user.owner, line.keeper.owner),
        None => println!("{} passes it on at this moment", line.keeper.owner),
    }
    for user in &line.first {
        println!("  {} waits", user.owner);
    }
    match line.waiting - line.first.len() {
        0 => {}
        more => println!("  and {more} more"),
    }
    Ok(())
}
