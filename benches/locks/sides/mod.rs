//! What is compared: one file for each kind of lock, and what all of them have in common.

pub(crate) mod backoff;
pub(crate) mod bakery;
pub(crate) mod bare;
pub(crate) mod etcd;
pub(crate) mod lwt;
pub(crate) mod redlock;
pub(crate) mod set_nx;
pub(crate) mod zookeeper;

use std::future::Future;
use std::ops::{Add, Sub};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::sides::backoff::Backoff;
use crate::sides::lwt::Parameters;

/// A kind of lock.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
pub(crate) enum Kind {
    /// No lock: a bare QUORUM write and a bare QUORUM read.
    Bare,
    /// Our lock; each acquisition goes through the table.
    Bakery,
    /// Our lock; callers of one client take turns.
    LocalTurns,
    /// Our lock; processes take turns of each other.
    Subleases,
    /// A lock on lightweight transactions.
    Lwt,
    /// etcd's lock.
    Etcd,
    /// Curator's recipe on ZooKeeper.
    Zookeeper,
    /// Our lock on three Redis servers; each acquisition goes through the table.
    Masters,
    /// Our lock on three Redis servers; processes take turns of each other.
    MastersSubleases,
    /// Redlock on three Redis servers.
    Redlock,
    /// `SET NX` on one Redis server.
    SetNx,
}

/// The servers of a kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) enum System {
    Cassandra,
    Etcd,
    Zookeeper,
    Redis,
}

impl System {
    /// How it is called in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            System::Cassandra => "Cassandra",
            System::Etcd => "etcd",
            System::Zookeeper => "ZooKeeper",
            System::Redis => "Redis",
        }
    }
}

impl Kind {
    /// What its servers are.
    pub(crate) fn system(self) -> System {
        match self {
            Kind::Bare | Kind::Bakery | Kind::LocalTurns | Kind::Subleases | Kind::Lwt => {
                System::Cassandra
            }
            Kind::Etcd => System::Etcd,
            Kind::Zookeeper => System::Zookeeper,
            Kind::Masters | Kind::MastersSubleases | Kind::Redlock | Kind::SetNx => System::Redis,
        }
    }

    /// How it is called in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Kind::Bare => "bare write, read",
            Kind::Bakery => "bakery, table only",
            Kind::LocalTurns => "bakery, local turns",
            Kind::Subleases => "bakery, subleases",
            Kind::Lwt => "LWT",
            Kind::Etcd => "etcd",
            Kind::Zookeeper => "ZooKeeper",
            Kind::Masters => "bakery on Redis, table only",
            Kind::MastersSubleases => "bakery on Redis, subleases",
            Kind::Redlock => "Redlock",
            Kind::SetNx => "SET NX",
        }
    }

    /// Where a side stands among others in tables, by its name.
    pub(crate) fn rank_of(side: &str) -> usize {
        let kinds = Kind::value_variants().iter();
        let named = kinds.enumerate().filter(|(_, kind)| side.starts_with(kind.label()));
        named.map(|(rank, _)| rank).next().unwrap_or(usize::MAX)
    }

    /// Whether it is this project's lock: then two holders at once are a bug, and end the bench.
    pub(crate) fn is_ours(self) -> bool {
        let is_on_cassandra = matches!(self, Kind::Bakery | Kind::LocalTurns | Kind::Subleases);
        is_on_cassandra || self.is_on_masters()
    }

    /// Whether it is this project's lock on Redis servers.
    pub(crate) fn is_on_masters(self) -> bool {
        matches!(self, Kind::Masters | Kind::MastersSubleases)
    }

    /// Whether each acquisition of this project's lock goes through the table.
    pub(crate) fn is_table_only(self) -> bool {
        matches!(self, Kind::Bakery | Kind::Masters)
    }

    /// Whether processes take turns of each other.
    pub(crate) fn has_peers(self) -> bool {
        matches!(self, Kind::Subleases | Kind::MastersSubleases)
    }

    /// Whether it excludes anything at all.
    pub(crate) fn is_lock(self) -> bool {
        self != Kind::Bare
    }
}

/// A build of this project's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Build {
    /// The one that this bench was compiled with.
    This,
    /// The one of another program, with which this one is compared.
    Before,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) build: Build,
}

impl Subject {
    pub(crate) const fn now(kind: Kind) -> Self {
        Subject { kind, build: Build::This }
    }

    /// What is measured of these kinds. Of another build, only this project's locks.
    pub(crate) fn all(kinds: &[Kind], with_before: bool) -> Vec<Self> {
        let before = kinds.iter().filter(|kind| with_before && kind.is_ours());
        let before = before.map(|&kind| Subject { kind, build: Build::Before });
        let mut subjects: Vec<_> = kinds.iter().copied().map(Subject::now).chain(before).collect();
        subjects.sort_unstable();
        subjects
    }
}

/// How a side of the other build is called in tables.
pub(crate) fn before(side: &str) -> String {
    format!("{side}, before")
}

/// What a client of a lock is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    /// The program of the client, if it is not this one.
    #[serde(skip)]
    pub(crate) program: Option<PathBuf>,
    /// Where its servers are: HOST:PORT.
    pub(crate) servers: Vec<String>,
    /// The lock table of our lock; the default one if there is none.
    pub(crate) lock_table: Option<String>,
    /// How long a lock outlives a holder that died.
    pub(crate) ttl: Duration,
    /// How long an acquisition waits before it fails.
    pub(crate) patience: Duration,
    /// How long a client of our lock keeps places that nobody uses.
    pub(crate) keep_idle: Duration,
    pub(crate) tuning: Tuning,
}

/// How a contender behaves where several want one name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Tuning {
    /// It waits in a queue of the servers, or alone.
    None,
    Lwt(Parameters),
    Polling(Backoff),
}

impl Tuning {
    /// What is best for a kind where no other contender is expected.
    pub(crate) fn alone(kind: Kind) -> Self {
        match kind {
            Kind::Lwt => Tuning::Lwt(Parameters::ALONE),
            Kind::Redlock | Kind::SetNx => Tuning::Polling(backoff::CANDIDATES[0]),
            Kind::Bare
            | Kind::Bakery
            | Kind::LocalTurns
            | Kind::Subleases
            | Kind::Etcd
            | Kind::Zookeeper
            | Kind::Masters
            | Kind::MastersSubleases => Tuning::None,
        }
    }

    /// What is tried for a kind where several want one name.
    pub(crate) fn candidates(kind: Kind) -> Vec<Self> {
        match kind {
            Kind::Lwt => lwt::CANDIDATES.iter().copied().map(Tuning::Lwt).collect(),
            Kind::Redlock | Kind::SetNx => {
                backoff::CANDIDATES.iter().copied().map(Tuning::Polling).collect()
            }
            Kind::Bare
            | Kind::Bakery
            | Kind::LocalTurns
            | Kind::Subleases
            | Kind::Etcd
            | Kind::Zookeeper
            | Kind::Masters
            | Kind::MastersSubleases => Vec::new(),
        }
    }

    pub(crate) fn polling(self) -> Backoff {
        match self {
            Tuning::Polling(backoff) => backoff,
            Tuning::None | Tuning::Lwt(_) => backoff::CANDIDATES[0],
        }
    }
}

impl std::fmt::Display for Tuning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tuning::None => write!(f, "none"),
            Tuning::Lwt(parameters) => parameters.fmt(f),
            Tuning::Polling(backoff) => backoff.fmt(f),
        }
    }
}

/// Something that is locked and unlocked.
pub(crate) trait Side: Send + Sync + 'static {
    /// A held lock.
    type Held: Send;

    /// Locks `name`, waiting for others.
    fn lock(&self, name: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Unlocks it again, and waits until that is acknowledged.
    fn unlock(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// What it has asked of its servers so far; nothing where only they can tell.
    fn operations(&self) -> Operations {
        Operations::default()
    }

    /// Leaves nothing behind on the servers.
    fn shut_down(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}

/// Requests to servers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Operations {
    /// Requests sent, reads and writes.
    pub(crate) sent: u64,
    /// Those among them that read all rows of all contenders: the costly ones. Only our lock has
    /// them.
    pub(crate) whole_reads: u64,
    /// Those among them that failed: errors, and outcomes that stayed unknown.
    pub(crate) failed: u64,
}

impl Sub for Operations {
    type Output = Operations;

    fn sub(self, earlier: Operations) -> Operations {
        Operations {
            sent: self.sent - earlier.sent,
            whole_reads: self.whole_reads - earlier.whole_reads,
            failed: self.failed - earlier.failed,
        }
    }
}

impl Add for Operations {
    type Output = Operations;

    fn add(self, other: Operations) -> Operations {
        Operations {
            sent: self.sent + other.sent,
            whole_reads: self.whole_reads + other.whole_reads,
            failed: self.failed + other.failed,
        }
    }
}
