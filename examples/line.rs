//! Who has a lock now, and who stands in line for it? For operators of clients that take turns of
//! each other: it asks the client that has the place.
//!
//!     cargo run --example line --features peers -- --nodes db1,db2,db3 users::snap
//!
//! Its user needs the right to read `lock_peers`, and this machine a way to the client's port.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use bakery_lock::{LineError, LockClient, PeerOptions};
use clap::Parser;
use scylla::client::session_builder::SessionBuilder;

#[derive(Parser)]
struct Options {
    /// Nodes of the cluster, with commas in between.
    #[arg(long, value_delimiter = ',', required = true)]
    nodes: Vec<String>,
    /// A keyspace that `lock-hosts init` has prepared.
    #[arg(long, default_value = "bakery_lock")]
    keyspace: String,
    /// The name of the lock.
    name: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let Options { nodes, keyspace, name } = Options::parse();
    let session = SessionBuilder::new().known_nodes(&nodes).build().await?;
    // It asks others and listens nowhere: others must not wait for a tool that ends at once.
    let peers = PeerOptions::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).keep(false);
    let client = LockClient::builder(session, keyspace).peers(peers).build().await?;
    let line = match client.line(&name).await {
        Ok(line) => line,
        Err(error @ LineError::NotHeld { .. }) => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    match line.user {
        Some(user) if user.client == line.keeper.client => println!("held by {}", user.owner),
        Some(user) => println!("held by {}, a guest of {}", user.owner, line.keeper.owner),
        None => println!("passed on at this moment by {}", line.keeper.owner),
    }
    for user in &line.first {
        println!("  waits: {}", user.owner);
    }
    match line.waiting - line.first.len() {
        0 => {}
        more => println!("  and {more} more"),
    }
    client.shutdown().await?;
    Ok(())
}
