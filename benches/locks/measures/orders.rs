//! What the bench tells its workers, and what they answer: a line of JSON each.

use std::time::Duration;

use common::contest::Served;
use serde::{Deserialize, Serialize};

use crate::sides::{Operations, Tuning};

/// What a worker does next.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Order {
    /// Lock and unlock over and over, until a moment.
    Contend(Contend),
    /// Lock and unlock once for each of this many names, and tell how long both took.
    Pairs { first: u32, pairs: u32 },
    /// Lock and unlock all names this often, one after the other, and measure nothing.
    Rounds { names: Names, rounds: u32 },
    /// Let this many tasks wait for one name, each for one grant.
    Crowd { name: String, callers: usize },
    /// Lock a name, and keep it.
    Keep { name: String },
    /// Lock and unlock a name once.
    Once { name: String },
    /// Go on with other parameters.
    Tune(Tuning),
}

/// Lock and unlock over and over.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Contend {
    pub(crate) names: Names,
    /// How many tasks of the worker's client do so.
    pub(crate) callers: usize,
    /// How long they hold the lock.
    pub(crate) hold: Duration,
    /// By the clock that all processes share, in nanoseconds.
    pub(crate) ends: u64,
}

/// What is locked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Names {
    /// All callers want this one.
    Same(String),
    /// Each caller has one of its own.
    Each(String),
    /// All of this many, one after the other.
    InTurn { prefix: String, names: usize },
}

/// What a worker says when it can begin.
pub(crate) const READY: &str = "ready";

/// What came of an order.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Answer {
    /// By caller.
    pub(crate) callers: Vec<Served>,
    /// How long each lock and each unlock took, in nanoseconds.
    pub(crate) pairs: Vec<[u64; 2]>,
    /// What pairs said that failed; another one took the place of each.
    pub(crate) errors: Vec<String>,
    /// How long all of it took.
    pub(crate) time: Duration,
    /// The processor time that the worker used for it.
    pub(crate) processor: Duration,
    pub(crate) operations: Operations,
}
