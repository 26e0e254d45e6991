//! The command line, and how much is measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde::Serialize;

/// Measures what a lock costs: ours, one on lightweight transactions, and bare reads and writes.
#[derive(Debug, Parser)]
#[command(name = "locks")]
pub(crate) struct Arguments {
    /// Measure on these nodes (HOST:PORT, separated by commas), in a keyspace that is made for it
    /// and dropped afterwards, instead of on a cluster that is started for it. Their variant of
    /// Paxos stays as it is.
    #[arg(long, value_delimiter = ',', env = "BAKERY_LOCK_TEST_NODES")]
    pub(crate) nodes: Vec<String>,
    /// How many rounds; each measures every side once with every variant of Paxos.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Look whether it works: everything is short, and the figures are noise.
    #[arg(long)]
    quick: bool,
    /// Where the figures are kept [default: bench/locks.json in cargo's target directory]
    #[arg(long)]
    json: Option<PathBuf>,
    /// Given by the bench to the processes that it starts.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// A fresh cluster is several times slower for its first minute: at least so long it is warmed,
    pub(crate) warm: Duration,
    /// and with at least so many pairs of operations.
    pub(crate) warm_pairs: u32,
    /// How long each set of parameters is tried for the lock on lightweight transactions.
    pub(crate) tuning_slot: Duration,
    /// How often everything is measured.
    pub(crate) rounds: u32,
    /// How many blocks of pairs of operations each uncontended side has in each half round.
    pub(crate) blocks: u32,
    /// How many pairs one side measures before it is the next one's turn.
    pub(crate) pairs_per_block: u32,
    /// How long contenders run against each other before it is the next side's turn: longer than
    /// they wait before they give up, or none ever would.
    pub(crate) slot: Duration,
}

impl Arguments {
    pub(crate) fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        Plan { rounds: self.rounds.unwrap_or(plan.rounds), ..plan }
    }

    pub(crate) fn json_file(&self) -> PathBuf {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let target = target.expect("cargo puts its directory for temporary files into target");
        self.json.clone().unwrap_or_else(|| target.join("bench/locks.json"))
    }
}

impl Plan {
    const FULL: Plan = Plan {
        warm: Duration::from_secs(60),
        warm_pairs: 10_000,
        tuning_slot: Duration::from_secs(3),
        rounds: 6,
        blocks: 8,
        pairs_per_block: 50,
        slot: Duration::from_secs(10),
    };

    const QUICK: Plan = Plan {
        warm: Duration::from_secs(5),
        warm_pairs: 500,
        tuning_slot: Duration::from_secs(1),
        rounds: 2,
        blocks: 2,
        pairs_per_block: 50,
        slot: Duration::from_secs(1),
    };
}
