//! The command line, and how much is run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Predicts what a lock costs in a rack, in three zones and on three continents.
#[derive(Debug, Parser)]
#[command(name = "latency")]
pub(crate) struct Arguments {
    /// The seed of all chance. The same seed gives the same predictions.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many clients contend, each number by itself.
    #[arg(long, value_delimiter = ',', default_value = "2,8,32,128",
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) clients: Vec<u32>,
    /// Compare with a real cluster that is started for it, with delays between its nodes.
    #[arg(long)]
    pub(crate) validate: bool,
    /// How often the real cluster is measured with each delay.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Look whether it works: everything is short, and the figures are noise.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where all figures are kept
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often a lone client locks and unlocks, in virtual time.
    pub(crate) pairs: u32,
    /// How many grants are counted, in virtual time.
    pub(crate) grants: usize,
    /// How many seconds of virtual time they may take.
    pub(crate) limit: Duration,
    /// For how long the real cluster is warmed,
    pub(crate) warm: Duration,
    /// how often a lone client locks and unlocks there in each round,
    pub(crate) real_pairs: u32,
    /// and how long clients contend.
    pub(crate) slot: Duration,
}

impl Arguments {
    pub(crate) fn plan(&self) -> Plan {
        if self.quick { Plan::QUICK } else { Plan::FULL }
    }
}

impl Plan {
    const FULL: Plan = Plan {
        pairs: 1_000,
        grants: 2_000,
        limit: Duration::from_secs(600),
        warm: Duration::from_secs(40),
        real_pairs: 60,
        slot: Duration::from_secs(4),
    };

    const QUICK: Plan = Plan {
        pairs: 50,
        grants: 100,
        limit: Duration::from_secs(60),
        warm: Duration::from_secs(5),
        real_pairs: 20,
        slot: Duration::from_secs(1),
    };
}
