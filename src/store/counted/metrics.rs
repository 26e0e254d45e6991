//! The calls of a client to the database, as its recorder sees them.

use ::metrics::{Gauge, Histogram, gauge, histogram};
use tokio::time::Instant;

use super::Kind;
use crate::metrics::{CALLS_WAITING, DATABASE_CALL};
use crate::store::Outcome;

/// When a call began.
pub(super) type Begun = Instant;

/// How a call ended.
#[derive(Clone, Copy)]
enum Ending {
    Applied,
    NotApplied,
    Unknown,
    GivenUp,
    Answered,
    Failed,
}

impl Ending {
    const COUNT: usize = Ending::Failed as usize + 1;

    /// In the order of the variants.
    const LABELS: [&str; Ending::COUNT] =
        ["applied", "not_applied", "unknown", "given_up", "answered", "failed"];

    const OF_WRITES: &[Ending] =
        &[Ending::Applied, Ending::NotApplied, Ending::Unknown, Ending::GivenUp];
    const OF_READS: &[Ending] = &[Ending::Answered, Ending::Failed];
}

impl Kind {
    /// The label of each kind, and how its calls end.
    const ALL: [(&str, &[Ending]); Kind::COUNT] = [
        ("write", Ending::OF_WRITES),
        ("delete", Ending::OF_WRITES),
        ("fence_write", Ending::OF_WRITES),
        ("object_read", Ending::OF_READS),
        ("one_replica_read", Ending::OF_READS),
        ("page_read", Ending::OF_READS),
        ("contender_read", Ending::OF_READS),
        ("fence_read", Ending::OF_READS),
    ];
}

/// What is recorded of calls, looked up once.
#[derive(Debug)]
pub(super) struct CallMetrics {
    /// By kind and ending. Those that can't be lead nowhere.
    calls: [[Histogram; Ending::COUNT]; Kind::COUNT],
    waiting: Gauge,
}

/// A call that waits for others of its client.
pub(super) struct Waiting<'a>(&'a Gauge);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Default for CallMetrics {
    /// With the recorder that is installed now.
    fn default() -> Self {
        let calls = Kind::ALL.map(|(kind, endings)| {
            let mut calls = [const { Histogram::noop() }; Ending::COUNT];
            for &ending in endings {
                let outcome = Ending::LABELS[ending as usize];
                calls[ending as usize] =
                    histogram!(DATABASE_CALL, "kind" => kind, "outcome" => outcome);
            }
            calls
        });
        CallMetrics { calls, waiting: gauge!(CALLS_WAITING) }
    }
}

impl CallMetrics {
    /// A call waits from now on.
    pub(super) fn waits(&self) -> Waiting<'_> {
        self.waiting.increment(1.0);
        Waiting(&self.waiting)
    }

    /// A call begins.
    pub(super) fn begun(&self) -> Begun {
        Instant::now()
    }

    pub(super) fn read(&self, kind: Kind, begun: Begun, is_answered: bool) {
        let ending = if is_answered { Ending::Answered } else { Ending::Failed };
        self.ended(kind, begun, ending);
    }

    pub(super) fn written(&self, kind: Kind, begun: Begun, outcome: Outcome) {
        let ending = match outcome {
            Outcome::Applied => Ending::Applied,
            Outcome::NotApplied => Ending::NotApplied,
            Outcome::Unknown => Ending::Unknown,
        };
        self.ended(kind, begun, ending);
    }

    /// A write is given up before it is answered.
    pub(super) fn given_up(&self, kind: Kind, begun: Begun) {
        self.ended(kind, begun, Ending::GivenUp);
    }

    fn ended(&self, kind: Kind, begun: Begun, ending: Ending) {
        self.calls[kind as usize][ending as usize].record(begun.elapsed());
    }
}
