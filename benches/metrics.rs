//! What metrics cost an uncontended lock: two clients take turns, of which one records.
//!
//!     cargo bench --bench metrics
//!     cargo bench --bench metrics -- --nodes 127.0.0.1,127.0.0.2,127.0.0.3
//!
//! A client looks its recorder up as it is built, so both live in one process. Without a recorder,
//! a client of the feature still reads the clock at each call to the database. With one, its
//! upkeep, which an exporter does every few seconds, counts as well.
//!
//! On the store in memory a lock costs no network, and what metrics add can be told from noise; on
//! a cluster it drowns there, so the figure to quote is the first one over the time of a lock on a
//! cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bakery_lock::{LockClient, LockClientBuilder, MemoryStore, metrics};
use clap::Parser;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use scylla::client::session_builder::SessionBuilder;

/// Each client locks this often before it is the other one's turn, with as many names.
const IN_MEMORY: u32 = 2_000;
const ON_CLUSTER: u32 = 50;

#[derive(Parser)]
struct Arguments {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// A keyspace that `lock-hosts init` has prepared.
    #[arg(long, default_value = "bakery_lock")]
    keyspace: String,
    /// How often the clients take turns.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (builder, locks) = if arguments.nodes.is_empty() {
        (LockClient::builder_in_memory(&MemoryStore::new()), IN_MEMORY)
    } else {
        let session = SessionBuilder::new().known_nodes(&arguments.nodes).build().await?;
        (LockClient::builder(Arc::new(session), &arguments.keyspace), ON_CLUSTER)
    };
    let builder = builder.register_host(true);
    let plain = builder.clone().build().await?;
    let (recording, exporter) = recording(builder).await?;

    // Each round begins with the other client; the first one warms both.
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=arguments.rounds {
        let mut of_round = [Duration::ZERO; 2];
        for side in [round % 2, (round + 1) % 2] {
            let begun = Instant::now();
            if side == 0 {
                lock(&plain, locks).await?;
            } else {
                lock(&recording, locks).await?;
                exporter.run_upkeep();
            }
            of_round[side as usize] = begun.elapsed() / locks;
        }
        if round > 0 {
            for (times, time) in times.iter_mut().zip(of_round) {
                times.push(time);
            }
        }
    }
    report(times, locks);
    plain.shutdown().await?;
    Ok(recording.shutdown().await?)
}

/// A client with a recorder of its own.
async fn recording(builder: LockClientBuilder) -> Result<(LockClient, PrometheusHandle)> {
    let mut exporter = PrometheusBuilder::new();
    for (metric, buckets) in metrics::BUCKETS {
        let metric = Matcher::Full(metric.to_string());
        exporter = exporter.set_buckets_for_metric(metric, buckets)?;
    }
    let recorder = exporter.build_recorder();
    // The runtime has one thread, so the client is built where the recorder is.
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    Ok((builder.build().await?, recorder.handle()))
}

/// Locks and unlocks this many names.
async fn lock(client: &LockClient, locks: u32) -> Result<()> {
    for lock in 0..locks {
        client.lock(&format!("metrics-{lock}")).await?.unlock().await?;
    }
    Ok(())
}

fn report([plain, recording]: [Vec<Duration>; 2], locks: u32) {
    let more =
        plain.iter().zip(&recording).map(|(plain, recording)| nanos(*recording) - nanos(*plain));
    let [without, with] = [&plain, &recording].map(|it| median(it.iter().copied().map(nanos)));
    let (rounds, more) = (plain.len(), median(more));
    println!("lock and unlock, {rounds} rounds of {locks} on each side, medians:");
    println!("  without a recorder  {without:.0} ns");
    println!("  with a recorder     {with:.0} ns");
    println!("  more, by rounds     {more:.0} ns ({:.2} %)", 100.0 * more / without);
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
