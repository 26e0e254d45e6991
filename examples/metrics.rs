//! Metrics for Prometheus: clients contend for a few locks, and what they record can be scraped.
//!
//!     cargo run --example metrics
//!     cargo run --example metrics -- --nodes 127.0.0.1,127.0.0.2 --serve 127.0.0.1:9100
//!
//! Without arguments it uses a store in memory for a moment and prints the metrics. With `--serve`
//! it continues until Ctrl-C. `docs/monitoring.md` tells what the metrics mean, and what Prometheus
//! and Grafana make of them.

use std::error::Error;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::{LockClient, LockError, MemoryStore, PeerOptions, metrics};
use clap::Parser;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use scylla::client::session_builder::SessionBuilder;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const A_MOMENT: Duration = Duration::from_secs(2);

/// How long a job holds its lock, in milliseconds; long enough for renewals.
const JOB: RangeInclusive<u64> = 5_000..=15_000;

#[derive(Parser)]
struct Options {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// A keyspace that `lock-hosts init` has prepared.
    #[arg(long, default_value = "bakery_lock")]
    keyspace: String,
    /// Where Prometheus finds the metrics.
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<SocketAddr>,
    /// How many clients there are, which let each other take turns.
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// How many callers each client has.
    #[arg(long, default_value_t = 4)]
    callers: usize,
    /// How many milliseconds a caller pauses between two locks at most.
    #[arg(long, default_value_t = 100)]
    pause: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    // Before the clients: each looks for its recorder as it is built.
    let mut exporter = PrometheusBuilder::new();
    for (metric, buckets) in metrics::BUCKETS {
        let metric = Matcher::Full(metric.to_string());
        exporter = exporter.set_buckets_for_metric(metric, buckets)?;
    }
    let Some(address) = options.serve else {
        let exported = exporter.install_recorder()?;
        let clients = contend(&options).await?;
        sleep(A_MOMENT).await;
        shut_down(clients).await?;
        print!("{}", exported.render());
        return Ok(());
    };
    exporter.with_http_listener(address).install()?;
    let clients = contend(&options).await?;
    println!("serving metrics at http://{address}/metrics until Ctrl-C");
    tokio::signal::ctrl_c().await?;
    shut_down(clients).await
}

/// Clients whose callers contend until they are shut down.
async fn contend(options: &Options) -> Result<Vec<LockClient>> {
    let builder = if options.nodes.is_empty() {
        LockClient::builder_in_memory(&MemoryStore::new())
    } else {
        let session = SessionBuilder::new().known_nodes(&options.nodes).build().await?;
        LockClient::builder(Arc::new(session), &options.keyspace)
    };
    let builder =
        builder.register_host(true).ttl(Duration::from_secs(6)).peers(PeerOptions::auto());
    let mut clients = Vec::new();
    for _ in 0..options.clients {
        let client = builder.clone().build().await?;
        tokio::spawn(jobs(client.clone()));
        for _ in 0..options.callers {
            tokio::spawn(requests(client.clone(), options.pause));
        }
        clients.push(client);
    }
    Ok(clients)
}

/// A service that answers requests: short locks of a few rows, and a try now and then.
async fn requests(client: LockClient, pause: u64) {
    loop {
        sleep(at_random(0..=pause)).await;
        let row = format!("users::{}", rand::random_range(0..3));
        let request = client.request(row).timeout(Duration::from_secs(1));
        let granted = if rand::random_ratio(1, 10) {
            request.try_acquire().await
        } else {
            request.acquire().await.map(Some)
        };
        match granted {
            Ok(Some(guard)) => {
                sleep(at_random(1..=20)).await;
                // Metrics count what became of it.
                let _ = guard.unlock().await;
            }
            Err(LockError::Closed) => return,
            Ok(None) | Err(_) => {}
        }
    }
}

/// A job that one client does at a time, for some seconds.
async fn jobs(client: LockClient) {
    loop {
        match client.lock("jobs::report").await {
            Ok(guard) => {
                tokio::select! {
                    reason = guard.expiring() => eprintln!("the job stops: {reason:?}"),
                    () = sleep(at_random(JOB)) => {}
                }
                let _ = guard.unlock().await;
            }
            Err(LockError::Closed) => return,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

fn at_random(milliseconds: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(rand::random_range(milliseconds))
}

async fn shut_down(clients: Vec<LockClient>) -> Result<()> {
    let mut closing = JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.shutdown().await });
    }
    while let Some(closed) = closing.join_next().await {
        closed??;
    }
    Ok(())
}
