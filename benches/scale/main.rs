//! What a lock costs at scale and with age: after many locks of one name, before and after flushes,
//! with very many waiters, names, clients that left or died, and held locks.
//!
//! `cargo bench --bench scale` starts a three-node Cassandra, measures one after the other, prints
//! tables and keeps the figures; `benches/README.md` says how to read them. What is compared
//! is measured in turn, a few pairs each, because a machine drifts.

mod age;
mod arguments;
mod bare;
mod expired;
mod flushes;
mod ground;
mod held;
mod leavers;
mod names;
mod report;
mod state;
mod waiters;

use anyhow::{Context, Result};
use clap::Parser;
use common::cluster::{TestCluster, options};
use common::record::Record;
use peak_alloc::PeakAlloc;

use crate::arguments::{Arguments, Part, Sizes};
use crate::ground::Ground;
use crate::report::Report;

/// Counts the bytes in use.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(doomed) = &arguments.doomed {
        return leavers::wait_for_death(serde_json::from_str(doomed)?).await;
    }
    // In a task, as services do: each answer would have to wake up the main thread.
    tokio::spawn(measure_all(arguments)).await?
}

async fn measure_all(arguments: Arguments) -> Result<()> {
    let sizes = arguments.sizes();
    eprintln!("starting the cluster");
    let cluster = TestCluster::open(&arguments.nodes, options()).await?;
    let version = cluster.version().await?;
    let ground = Ground::new(&cluster).await?;
    ground.warm(sizes.warm).await.context("warming")?;
    let mut report = Report::new(version, sizes);
    let file = arguments.json_file();
    for part in arguments.parts() {
        let measured = measure(&ground, part, &report.sizes).await;
        report.add(measured.with_context(|| format!("{part:?}"))?);
        // A part takes long: what was measured outlasts a later failure.
        report.write(&file).with_context(|| format!("could not write {}", file.display()))?;
    }
    cluster.drop_keyspace().await?;
    report.print();
    println!("\nAll figures: {}", file.display());
    Ok(())
}

async fn measure(ground: &Ground<'_>, part: Part, sizes: &Sizes) -> Result<Vec<Record>> {
    match part {
        Part::Flushes => flushes::measure(ground, sizes).await,
        Part::Waiters => waiters::measure(ground, sizes).await,
        Part::Held => held::measure(ground, sizes).await,
        Part::Left => leavers::left(ground, sizes).await,
        Part::Died => leavers::died(ground, sizes).await,
        Part::Expired => expired::measure(ground, sizes).await,
        Part::Names => names::measure(ground, sizes).await,
        Part::Age => age::measure(ground, sizes).await,
    }
}
