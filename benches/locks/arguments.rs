//! The command line, and how much is measured.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::measures::failures::{Failure, Length};
use crate::sides::Kind;

/// Measures what a lock costs: ours on Cassandra and on Redis, one on lightweight transactions,
/// etcd's, ZooKeeper's, Redlock, SET NX on one Redis, and bare reads and writes.
#[derive(Debug, Parser)]
#[command(name = "locks")]
pub(crate) struct Arguments {
    /// What is measured [default: all whose servers are installed]
    #[arg(long, value_delimiter = ',')]
    sides: Vec<Kind>,
    /// Measure on these nodes of Cassandra (HOST:PORT, separated by commas), in a keyspace that is
    /// made for it and dropped afterwards, instead of on a cluster that is started for it. Their
    /// variant of Paxos stays as it is, and none of them is made to fail.
    #[arg(long, value_delimiter = ',', env = "BAKERY_LOCK_TEST_NODES")]
    pub(crate) nodes: Vec<String>,
    /// When servers write to disk that have a choice.
    #[arg(long, value_enum, default_value_t = Durability::Usual)]
    pub(crate) durability: Durability,
    /// How much longer round trips to Redis servers are made, such as 500us or 1ms: those of the
    /// sides on Redis alone.
    #[arg(long, value_parser = delay, default_value = "0us")]
    pub(crate) redis_delay: Duration,
    /// How many rounds; each measures every side once with every variant of Paxos.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Look whether it works, and compare with the figures of recorded runs as short as this one:
    /// only gross regressions are told from noise. They end the bench with an error.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Another build of this bench, whose locks are measured beside these: what a change costs.
    #[arg(long)]
    pub(crate) before: Option<PathBuf>,
    /// Measure these parts only; failures are not among them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// How many contenders want one name [default: 2,8,32,128]
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<usize>,
    /// Leave out what happens when holders and servers fail.
    #[arg(long)]
    no_failures: bool,
    /// Where the figures are kept [default: bench/locks.json in cargo's target directory]
    #[arg(long)]
    json: Option<PathBuf>,
    /// The recorded figures with which `--quick` compares.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/locks/recorded-quick.json"))]
    pub(crate) recorded: PathBuf,
    /// Given by the bench to the processes that it starts.
    #[arg(long, hide = true)]
    pub(crate) worker: Option<String>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What each half round has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One client, names that it has not used for long.
    Uncontended,
    /// One caller, names that it uses again and again.
    InTurn,
    /// Callers of one client with names of their own.
    Distinct,
    /// Contenders for one name.
    HotName,
    /// Very many callers of one client for one name.
    Crowds,
}

/// When servers write to disk that have a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub(crate) enum Durability {
    /// As most users have it: Cassandra soon afterwards, Redis never.
    Usual,
    /// Before they acknowledge, as etcd and ZooKeeper do.
    Synced,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// A fresh cluster is several times slower for its first minute: at least so long it is warmed,
    pub(crate) warm: Duration,
    /// and with at least this many pairs of operations of each side.
    pub(crate) warm_pairs: u32,
    /// and with contenders for one name, in slots of this length.
    pub(crate) warm_slot: Duration,
    /// How long each set of parameters is tried for locks that poll.
    pub(crate) tuning_slot: Duration,
    /// For how many contenders they are tried.
    pub(crate) tuning_contenders: &'static [usize],
    /// How often everything is measured.
    pub(crate) rounds: u32,
    /// How many blocks of pairs of operations each uncontended side has in each half round.
    pub(crate) blocks: u32,
    /// How many pairs one side measures before it is the next one's turn.
    pub(crate) pairs_per_block: u32,
    /// How many names one caller locks in turn.
    pub(crate) in_turn: &'static [usize],
    /// How many callers of one client want names of their own,
    pub(crate) callers: &'static [usize],
    /// and for how long.
    pub(crate) distinct_slot: Duration,
    /// How many contenders want one name,
    pub(crate) contenders: Cow<'static, [usize]>,
    /// and for how long: longer than they wait before they give up, or none ever would.
    pub(crate) slot: Duration,
    /// The same for the number of contenders by which sides are judged: until lines of processes
    /// have merged, shares differ.
    pub(crate) long_slot: Duration,
    /// The same for more contenders than these, so that each has several turns.
    pub(crate) crowd_slot: Duration,
    /// How many callers of one client wait for one grant each.
    pub(crate) crowds: &'static [usize],
    /// How long a lock outlives its holder, but for failures.
    pub(crate) ttl: Duration,
    /// How long an acquisition waits, but for failures.
    pub(crate) patience: Duration,
    /// The same where holders and servers fail.
    pub(crate) failure_ttl: Duration,
    pub(crate) failure_patience: Duration,
    /// What happens to servers,
    pub(crate) failures: &'static [Failure],
    /// and for how long.
    pub(crate) failure: Length,
}

impl Arguments {
    /// The chosen sides; `None` if all that are installed shall be measured.
    pub(crate) fn sides(&self) -> Option<&[Kind]> {
        (!self.sides.is_empty()).then_some(&self.sides)
    }

    pub(crate) fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        let contenders = match self.contenders.as_slice() {
            _ if !self.has(Part::HotName) => Cow::Borrowed(&[][..]),
            [] => plan.contenders,
            chosen => Cow::Owned(chosen.to_vec()),
        };
        Plan {
            rounds: self.rounds.unwrap_or(plan.rounds),
            blocks: if self.has(Part::Uncontended) { plan.blocks } else { 0 },
            in_turn: if self.has(Part::InTurn) { plan.in_turn } else { &[] },
            callers: if self.has(Part::Distinct) { plan.callers } else { &[] },
            crowds: if self.has(Part::Crowds) { plan.crowds } else { &[] },
            contenders,
            ..plan
        }
    }

    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Whether holders and servers are made to fail.
    pub(crate) fn with_failures(&self) -> bool {
        !self.no_failures && self.only.is_empty()
    }

    pub(crate) fn json_file(&self) -> PathBuf {
        self.json.clone().unwrap_or_else(|| directory().join("locks.json"))
    }
}

/// A time in microseconds or milliseconds.
fn delay(text: &str) -> Result<Duration, String> {
    let units = [("us", 1), ("ms", 1_000)];
    let found = units.iter().find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, micros)));
    let (number, micros) = found.ok_or("it ends with us or ms")?;
    let number: u64 = number.parse().map_err(|error| format!("{error}"))?;
    Ok(Duration::from_micros(number * micros))
}

/// Where the bench keeps its files.
pub(crate) fn directory() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("cargo puts its directory for temporary files into target").join("bench")
}

impl Plan {
    const FULL: Plan = Plan {
        warm: Duration::from_secs(60),
        warm_pairs: 2_500,
        warm_slot: Duration::from_secs(20),
        tuning_slot: Duration::from_secs(2),
        tuning_contenders: &[8, 32],
        rounds: 2,
        blocks: 20,
        pairs_per_block: 50,
        in_turn: &[1, 10_000],
        callers: &[1, 4, 16, 32, 64, 256],
        distinct_slot: Duration::from_millis(1_500),
        contenders: Cow::Borrowed(&[2, 8, 32, 128]),
        slot: Duration::from_secs(6),
        long_slot: Duration::from_secs(10),
        crowd_slot: Duration::from_secs(20),
        crowds: &[100, 1_000, 10_000],
        ttl: Duration::from_secs(60),
        patience: Duration::from_secs(5),
        failure_ttl: Duration::from_secs(10),
        failure_patience: Duration::from_secs(60),
        failures: &[Failure::Frozen, Failure::Killed],
        failure: Length {
            before: Duration::from_secs(2),
            failing: Duration::from_secs(10),
            after: Duration::from_secs(3),
        },
    };

    const QUICK: Plan = Plan {
        // With less, what is compared is how long Java takes to compile.
        warm: Duration::from_secs(30),
        warm_pairs: 1_000,
        warm_slot: Duration::from_secs(3),
        tuning_slot: Duration::from_millis(500),
        tuning_contenders: &[8],
        rounds: 1,
        blocks: 4,
        in_turn: &[1],
        callers: &[1, 32],
        distinct_slot: Duration::from_millis(500),
        contenders: Cow::Borrowed(&[8, 32]),
        slot: Duration::from_secs(1),
        long_slot: Duration::from_secs(5),
        crowd_slot: Duration::from_secs(5),
        failure_ttl: Duration::from_secs(5),
        // A node of Cassandra takes long to start again.
        failures: &[Failure::Frozen],
        failure: Length {
            before: Duration::from_millis(500),
            failing: Duration::from_secs(2),
            after: Duration::from_millis(500),
        },
        ..Plan::FULL
    };
}
