//! What a turn costs: time and allocations. Nothing waits for a database then.
//!
//!     cargo bench --bench turns
//!     cargo bench --bench turns -- --callers 2 --threads 2 --turns 1000000
//!     cargo bench --bench turns -- --peers --callers 8
//!
//! Callers lock one name on the store in memory, again and again, so that one always waits: callers
//! of one client, or each of a client of its own, with peers. Without options, with each number of
//! callers on a runtime of one thread. Allocations are counted on that thread; on more threads only
//! the time is.

use std::time::{Duration, Instant};

use allocation_counter::AllocationInfo;
use anyhow::Result;
use bakery_lock::{LockClient, MemoryStore, PeerOptions};
use clap::Parser;
use comfy_table::{Table, presets};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

/// Callers that contend, unless a number is given: one is always in its turn.
const CALLERS: [u32; 3] = [2, 8, 64];

/// Turns before the measured ones: memory is mapped, and code is in the caches.
const WARM_UP: u32 = 20_000;

#[derive(Parser)]
struct Arguments {
    /// How many callers contend.
    #[arg(long)]
    callers: Option<u32>,
    /// Worker threads of the runtime; with one, the calling thread does all.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How many turns are measured.
    #[arg(long, default_value_t = 200_000)]
    turns: u32,
    /// Each caller has a client of its own; they take turns of each other, over real sockets.
    #[arg(long)]
    peers: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let Arguments { callers, threads, turns, peers, .. } = Arguments::parse();
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["callers", "threads", "turns", "µs per turn", "allocations", "bytes"]);
    for callers in callers.map_or(CALLERS.to_vec(), |callers| vec![callers]) {
        let (time, allocated) = measure(callers, peers, threads, turns)?;
        let per_turn = |count: u64| format!("{:.2}", count as f64 / f64::from(turns));
        let counted = |count| if threads == 1 { per_turn(count) } else { "-".to_owned() };
        table.add_row([
            callers.to_string(),
            threads.to_string(),
            turns.to_string(),
            format!("{:.2}", time.as_secs_f64() * 1e6 / f64::from(turns)),
            counted(allocated.count_total),
            counted(allocated.bytes_total),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// The time that turns take, and what is allocated meanwhile.
fn measure(
    callers: u32,
    peers: bool,
    threads: usize,
    turns: u32,
) -> Result<(Duration, AllocationInfo)> {
    let runtime = match threads {
        1 => Builder::new_current_thread().enable_all().build()?,
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build()?,
    };
    let clients = runtime.block_on(async {
        let clients = clients(callers, peers).await?;
        contend(&clients, callers, WARM_UP).await.map(|()| clients)
    })?;
    let begun = Instant::now();
    let mut contended = Ok(());
    let allocated = allocation_counter::measure(|| {
        contended = runtime.block_on(contend(&clients, callers, turns));
    });
    let time = begun.elapsed();
    contended?;
    for client in clients {
        runtime.block_on(client.shutdown())?;
    }
    Ok((time, allocated))
}

/// One client for all callers, or one for each.
async fn clients(callers: u32, peers: bool) -> Result<Vec<LockClient>> {
    let store = MemoryStore::new();
    let builder = || LockClient::builder_in_memory(&store);
    if !peers {
        return Ok(vec![builder().build().await?]);
    }
    let mut clients = Vec::new();
    for _ in 0..callers {
        clients.push(builder().peers(PeerOptions::auto()).build().await?);
    }
    Ok(clients)
}

/// Callers lock one name, this often together.
async fn contend(clients: &[LockClient], callers: u32, turns: u32) -> Result<()> {
    let mut contending = JoinSet::new();
    for (caller, client) in (0..callers).zip(clients.iter().cycle()) {
        let client = client.clone();
        let visits = turns / callers + u32::from(caller < turns % callers);
        contending.spawn(async move {
            for _ in 0..visits {
                client.lock("turns").await?.unlock().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(visited) = contending.join_next().await {
        visited??;
    }
    Ok(())
}
