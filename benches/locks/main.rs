//! What a lock costs: ours, a lock on lightweight transactions, and bare reads and writes.
//!
//! `cargo bench --bench locks` starts a three-node Cassandra, warms it, measures and prints tables;
//! `docs/benchmark.md` says how to read them.
//!
//! All sides take turns within one run, because a machine drifts: compilers warm up, memory is
//! collected, neighbours come and go. So each ratio is taken between figures of the same minute,
//! and what is reported is the median of such ratios. Benchmark harnesses like criterion measure
//! one side to its end before the next one begins, know nothing of contenders that run against each
//! other for a fixed time, and can't switch the cluster between sides; hence the loop of our own.

mod arguments;
mod bench;
mod measures;
mod report;
mod servers;
mod sides;

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::Arguments;
use crate::bench::{Bench, Measured};
use crate::report::summary::Summary;
use crate::servers::cassandra::TestCluster;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.worker {
        return measures::worker::run(&arguments.nodes).await;
    }
    let plan = arguments.plan();
    eprintln!("starting the cluster");
    let cluster = TestCluster::open(&arguments.nodes).await?;
    let measured = measure(cluster, plan).await?;
    let summary = Summary::of(&measured);
    report::print(&summary);
    let file = arguments.json_file();
    report::write_json(&summary, &file)
        .with_context(|| format!("could not write {}", file.display()))?;
    println!("\nAll figures: {}", file.display());
    Ok(())
}

async fn measure(cluster: TestCluster, plan: arguments::Plan) -> Result<Measured> {
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {percent:>3} % {msg}")
        .expect("the template is valid");
    let progress = ProgressBar::new(0).with_style(style);
    let bench = Bench::set_up(Arc::new(cluster), plan, progress.clone()).await?;
    let measured = bench.run().await?;
    progress.finish_and_clear();
    Ok(measured)
}
