//! Who leads? Run it several times at once, kill the one that leads, and see who follows.
//!
//!     cargo run --example leader
//!     cargo run --example leader -- --nodes 127.0.0.1,127.0.0.2 --keyspace my_keys --priority 2
//!
//! Without arguments three candidates of one process lead by turns, on a store in memory.

use std::error::Error;
use std::time::Duration;

use bakery_lock::{Election, LockClient, MemoryStore};
use clap::Parser;
use scylla::client::session_builder::SessionBuilder;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const A_WHILE: Duration = Duration::from_millis(1_200);

#[derive(Parser)]
struct Options {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// A keyspace that `lock-hosts init` has prepared.
    #[arg(long, default_value = "bakery_lock")]
    keyspace: String,
    /// How many lead at once.
    #[arg(long, default_value_t = 1)]
    seats: u32,
    /// From 1, the best, to 14.
    #[arg(long, default_value_t = 1)]
    priority: u8,
    /// After how many seconds a leader is replaced that was killed.
    #[arg(long, default_value_t = 10)]
    ttl: u64,
    /// What to lead.
    #[arg(default_value = "scheduler")]
    name: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { nodes, keyspace, seats, priority, ttl, name } = Options::parse();
    if nodes.is_empty() {
        return in_memory(&name).await;
    }
    let session = SessionBuilder::new().known_nodes(&nodes).build().await?;
    let client = LockClient::builder(session, keyspace).register_host(true).build().await?;
    let election = client.election(name).seats(seats).priority(priority);
    let election = election.ttl(Duration::from_secs(ttl));
    let led = tokio::select! {
        led = lead(&election) => led,
        shown = show(election.clone()) => shown,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    // Resigns, if it leads.
    client.shutdown().await?;
    led
}

/// Leads again and again.
async fn lead(election: &Election) -> Result<()> {
    loop {
        let leadership = election.campaign().await?;
        println!("process {} leads", std::process::id());
        // The work of a leader goes here. It ends once the leadership is revoked or lost.
        let reason = leadership.expiring().await;
        println!("process {} leads no more: {reason:?}", std::process::id());
    }
}

/// Prints the leaders each time that others lead.
async fn show(election: Election) -> Result<()> {
    let mut leaders = election.observe();
    while let Some(leaders) = leaders.try_next().await? {
        let owners: Vec<_> = leaders.iter().map(|leader| leader.owner.as_str()).collect();
        match owners[..] {
            [] => println!("none leads"),
            _ => println!("leading: {}", owners.join(", ")),
        }
    }
    Ok(())
}

/// Three candidates, each of which leads for a while.
async fn in_memory(name: &str) -> Result<()> {
    let store = MemoryStore::new();
    let mut candidates = JoinSet::new();
    for priority in 1..=3 {
        let client = LockClient::builder_in_memory(&store).build().await?;
        let label = format!("candidate {priority}");
        let election = client.election(name).priority(priority).label(label);
        candidates.spawn(async move {
            let leadership = election.campaign().await?;
            sleep(A_WHILE).await;
            leadership.resign().await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(client.shutdown().await?)
        });
    }
    let observer = LockClient::builder_in_memory(&store).build().await?;
    let shown = tokio::spawn(show(observer.election(name)));
    while let Some(done) = candidates.join_next().await {
        done??;
    }
    shown.abort();
    Ok(observer.shutdown().await?)
}
