//! What hostile clients and very many held locks of `bakery-lockd` cost others.
//!
//!     cargo build --release -p bakery-lock-tools --bins
//!     cargo bench --bench hostile -- --nodes 127.0.0.1,127.0.0.2,127.0.0.3
//!
//! It starts daemons of its own. Well-behaved clients take and release locks as fast as they can,
//! which takes all of the daemon's processor time; in every other window a hostile client is there
//! as well. What counts is the ratio of neighbouring windows.

mod daemon;
mod hostile;
mod names;
mod service;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::daemon::Daemon;
use crate::hostile::{Hostile, Kind};
use crate::service::Service;

/// What well-behaved clients must keep of their throughput.
const RATIO_MIN: f64 = 0.8;

/// How long the daemon has for what a hostile client left behind, and clients to get going.
const SETTLING: Duration = Duration::from_millis(500);

#[derive(Parser)]
struct Arguments {
    /// Nodes of a cluster, with commas in between.
    #[arg(long, default_value = "127.0.0.1,127.0.0.2,127.0.0.3")]
    nodes: String,
    /// A keyspace, which is created if it is missing.
    #[arg(long, default_value = "bakery_lock_hostile")]
    keyspace: String,
    /// Where `bakery-lockd` and `lock-hosts` are; by default next to this bench.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Well-behaved clients.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// How long a window is, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    window: u64,
    /// Windows with a hostile client, and as many without.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Only these hostile clients, or `held`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Locks that are held at once.
    #[arg(long, default_value_t = 100_000)]
    names: usize,
    /// The TTL of their rows, which are renewed three times meanwhile.
    #[arg(long, default_value = "60s")]
    ttl: String,
    /// The longest TTL in the keyspace; another one needs a keyspace of its own.
    #[arg(long, default_value = "120s")]
    max_ttl: String,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| it == part)
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| arguments.wants(kind.name())).collect();
    let mut failed = Vec::new();
    if !kinds.is_empty() {
        println!(
            "{} clients, {} windows of {} ms each: medians",
            arguments.clients, arguments.rounds, arguments.window
        );
        println!(
            "{:20} {:>10} {:>10} {:>7} {:>9} {:>9} {:>12}",
            "hostile client", "alone/s", "with/s", "ratio", "p99 µs", "with µs", "its work/s"
        );
    }
    for kind in kinds {
        let ratio = measure(kind, &arguments)?;
        if ratio < RATIO_MIN {
            failed.push(kind.name());
        }
    }
    if arguments.wants("held") {
        names::measure(&arguments)?;
    }
    ensure!(failed.is_empty(), "others kept less than {RATIO_MIN}: {}", failed.join(", "));
    Ok(())
}

/// The share of their throughput that well-behaved clients keep.
fn measure(kind: Kind, arguments: &Arguments) -> Result<f64> {
    let daemon = Daemon::start(arguments, &[])?;
    let service = Service::start(&daemon.socket, arguments.clients)?;
    let window = Duration::from_millis(arguments.window);
    let (mut alone, mut with) = (Vec::new(), Vec::new());
    let (mut slow_alone, mut slow_with) = (Vec::new(), Vec::new());
    let (mut ratios, mut work) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=arguments.rounds {
        let mut of_round = [0.0; 2];
        // Each round begins with the other one.
        for is_hostile in if round % 2 == 0 { [false, true] } else { [true, false] } {
            let hostile = is_hostile.then(|| kind.start(&daemon.socket)).transpose()?;
            std::thread::sleep(SETTLING);
            let before = hostile.as_ref().map_or(0, Hostile::work);
            let seen = service.window(window);
            let after = hostile.as_ref().map_or(0, Hostile::work);
            if let Some(hostile) = hostile {
                hostile.stop();
                daemon.rested()?;
            }
            of_round[usize::from(is_hostile)] = seen.per_second;
            if round > 0 {
                let (rates, slow) = if is_hostile {
                    work.push((after - before) as f64 / window.as_secs_f64());
                    (&mut with, &mut slow_with)
                } else {
                    (&mut alone, &mut slow_alone)
                };
                rates.push(seen.per_second);
                slow.push(seen.slow);
            }
        }
        if round > 0 {
            ratios.push(of_round[1] / of_round[0]);
        }
    }
    service.stop()?;
    let ratio = median(&mut ratios);
    println!(
        "{:20} {:>10.0} {:>10.0} {ratio:>7.2} {:>9.0} {:>9.0} {:>12.0}",
        kind.name(),
        median(&mut alone),
        median(&mut with),
        median(&mut slow_alone),
        median(&mut slow_with),
        median(&mut work),
    );
    Ok(ratio)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
