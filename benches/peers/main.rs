//! Clients that take turns of each other, in large numbers.
//!
//! `cargo bench --bench peers` starts a three-node Cassandra and measures, one after the other: how
//! long a client without peers waits beside processes that keep a name busy; what a thousand guests
//! of one object cost its keeper; what strangers and a hostile guest cost a keeper and its guests;
//! and how much memory objects take that two clients use in turn.
//! `benches/results.md` has the figures.

mod beside;
mod guests;
mod objects;
mod process;
mod strangers;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use bakery_lock::{LockClient, LockClientBuilder, PeerOptions};
use clap::Parser;
use peak_alloc::PeakAlloc;
use support::scene::Scene;

use crate::process::Role;

/// Counts the bytes in use.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Measures clients that take turns of each other, in large numbers. A number of 0 leaves a part
/// out. `BAKERY_LOCK_TEST_NODES` names the nodes of an existing cluster.
#[derive(Debug, Parser)]
#[command(name = "peers")]
struct Arguments {
    /// How many processes keep a name busy beside a client without peers.
    #[arg(long, default_value_t = 32)]
    processes: usize,
    /// How often that client takes the lock.
    #[arg(long, default_value_t = 200)]
    locks: usize,
    /// How many guests wait for one object.
    #[arg(long, default_value_t = 1_000)]
    guests: usize,
    /// How many guests come at once to a keeper that strangers besiege.
    #[arg(long, default_value_t = 256)]
    besieged: usize,
    /// How many connections of each kind the strangers make.
    #[arg(long, default_value_t = 1_000)]
    strangers: usize,
    /// How many objects two clients use in turn.
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// For how many seconds guests are watched, and again while they are served.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Given by the bench to the processes that it starts: role, keyspace, name and guests.
    #[arg(long, hide = true, num_args = 4)]
    worker: Option<Vec<String>>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    process::allow_open_files()?;
    if let Some(worker) = arguments.worker {
        return process::run(&Role::parse(&worker)?).await;
    }
    let (scene, length) = (Scene::new().await, Duration::from_secs(arguments.seconds));
    let Arguments { processes, locks, guests, besieged, strangers, objects, .. } = arguments;
    // A part that was not asked for.
    if locks > 0 {
        println!("{}\n", beside::measure(&scene, processes, locks).await?);
    }
    if guests > 0 {
        println!("{}\n", guests::measure(&scene, guests, length).await?);
    }
    if besieged > 0 {
        println!("{}\n", strangers::measure(&scene, besieged, strangers, length).await?);
    }
    if objects > 0 {
        println!("{}", objects::measure(&scene, objects).await?);
    }
    Ok(())
}

/// A builder of clients that wait for long.
fn builder(scene: &Scene) -> LockClientBuilder {
    scene.builder().acquire_timeout(Duration::from_secs(120))
}

/// A client with peers, over TCP on this machine.
async fn peer(scene: &Scene, guests: Option<usize>) -> Result<LockClient> {
    let peers = PeerOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let peers = match guests {
        Some(guests) => peers.max_guests(guests),
        None => peers.serve_guests(false),
    };
    Ok(builder(scene).peers(peers).build().await?)
}
