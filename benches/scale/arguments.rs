//! The command line, and how much is measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

/// Measures what a lock costs at scale and with age.
#[derive(Debug, Parser)]
#[command(name = "scale")]
pub(crate) struct Arguments {
    /// What is measured [default: all of it]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Measure on these nodes of Cassandra (HOST:PORT, separated by commas), in a keyspace that is
    /// made for it and dropped afterwards, instead of on a cluster that is started for it. Flushes
    /// and what tables take on disk are left out then.
    #[arg(long, value_delimiter = ',', env = "BAKERY_LOCK_TEST_NODES")]
    pub(crate) nodes: Vec<String>,
    /// Look in a few minutes whether it works: all is a hundred times smaller, and what is measured
    /// is noise.
    #[arg(long)]
    quick: bool,
    /// How often one name is locked.
    #[arg(long)]
    locks: Option<u32>,
    /// How many names are locked.
    #[arg(long)]
    names: Option<u32>,
    /// Lock the many names by a client with peers, which keeps idle locks that it uses again.
    #[arg(long)]
    peers: bool,
    /// How many clients wait for one name, at most.
    #[arg(long)]
    waiters: Option<u32>,
    /// Where the figures are kept [default: bench/scale.json in cargo's target directory]
    #[arg(long)]
    json: Option<PathBuf>,
    /// Given by the bench to the process that it kills.
    #[arg(long, hide = true)]
    pub(crate) doomed: Option<String>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// An uncontended lock before and after the lock table is flushed.
    Flushes,
    /// One name that many clients wait for.
    Waiters,
    /// Very many locks that one client holds.
    Held,
    /// A name that very many clients have used and left.
    Left,
    /// A name for which clients waited that died.
    Died,
    /// A name for which very many clients waited that died before anyone read it again.
    Expired,
    /// Very many names.
    Names,
    /// One name that is locked very often.
    Age,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sizes {
    /// A fresh cluster is several times slower for its first minute, and continues to compile.
    pub(crate) warm: Duration,
    /// How many blocks each side of a comparison has,
    pub(crate) blocks: u32,
    /// and how many pairs each block.
    pub(crate) pairs_per_block: u32,
    /// How often the comparison around flushes is made, with names of its own each time.
    pub(crate) flush_rounds: u32,
    /// How many clients wait for one name.
    pub(crate) waiters: &'static [u32],
    /// How many locks they get all together, at least.
    pub(crate) grants: u32,
    /// How many locks one client holds,
    pub(crate) held: u32,
    /// and how long its renewals are watched.
    pub(crate) held_for: Duration,
    /// How many clients use a name and leave, by then.
    pub(crate) left: &'static [u32],
    /// How many clients wait for a name and die.
    pub(crate) died: &'static [u32],
    /// How many clients' rows expire.
    pub(crate) expired: &'static [u32],
    /// How many names are locked once,
    pub(crate) names: u32,
    /// by a client with peers or without,
    pub(crate) peers: bool,
    /// and how many between looks.
    pub(crate) names_between: u32,
    /// How often one name is locked,
    pub(crate) locks: u32,
    /// and how often between looks,
    pub(crate) locks_between: u32,
    /// and between flushes.
    pub(crate) locks_between_flushes: u32,
}

impl Arguments {
    /// What is measured, in the order of the kinds: what leaves much behind comes last.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let parts = Part::value_variants().iter().copied();
        parts.filter(|part| self.only.is_empty() || self.only.contains(part)).collect()
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let sizes = if self.quick { Sizes::QUICK } else { Sizes::FULL };
        let (locks, names) = (self.locks.unwrap_or(sizes.locks), self.names.unwrap_or(sizes.names));
        let most = self.waiters.unwrap_or(u32::MAX);
        let waiters = &sizes.waiters[..sizes.waiters.partition_point(|number| *number <= most)];
        Sizes { locks, names, waiters, peers: self.peers, ..sizes }
    }

    pub(crate) fn json_file(&self) -> PathBuf {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let target = target.expect("cargo puts its directory for temporary files into target");
        self.json.clone().unwrap_or_else(|| target.join("bench/scale.json"))
    }
}

impl Sizes {
    const FULL: Sizes = Sizes {
        warm: Duration::from_secs(120),
        blocks: 20,
        pairs_per_block: 25,
        flush_rounds: 4,
        waiters: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000],
        grants: 400,
        held: 10_000,
        held_for: Duration::from_secs(60),
        left: &[100, 1_000, 10_000],
        died: &[100, 1_000],
        expired: &[1_000, 10_000, 25_000],
        names: 1_000_000,
        peers: false,
        names_between: 100_000,
        locks: 1_000_000,
        locks_between: 25_000,
        locks_between_flushes: 100_000,
    };

    const QUICK: Sizes = Sizes {
        warm: Duration::from_secs(5),
        blocks: 4,
        flush_rounds: 1,
        waiters: &[1, 8, 32],
        grants: 100,
        held: 100,
        held_for: Duration::from_secs(5),
        left: &[10, 100],
        died: &[10],
        expired: &[10],
        names: 10_000,
        names_between: 5_000,
        locks: 10_000,
        locks_between: 2_500,
        locks_between_flushes: 5_000,
        ..Sizes::FULL
    };
}
