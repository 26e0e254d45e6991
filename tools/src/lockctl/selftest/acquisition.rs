//! What a process reports of each lock that it asked for.
//!
//! Times are nanoseconds of the boot time, which all processes share. Each is noted on the side on
//! which it can't raise a false alarm: too late for the beginning of a hold, too early for its end.

use serde::{Deserialize, Serialize};

/// A try to get a lock, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Acquisition {
    /// The number of the name in the run.
    pub(super) name: u16,
    /// The number of the process, from 1.
    pub(super) process: u16,
    /// The number of the caller in its process, from 1.
    pub(super) caller: u16,
    /// Just before it asked.
    pub(super) asked: u64,
    /// Once a read had shown that its process waits with a ticket.
    pub(super) queued: Option<u64>,
    pub(super) outcome: Outcome,
    /// When its caller was done with it.
    pub(super) ended: u64,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The lock was held.
    Held(Hold),
    /// It was not granted in time.
    TimedOut,
    /// The run ended while it waited.
    Withdrawn,
    /// The client refused, or gave up.
    Failed(String),
}

/// A lock that was held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    /// Once it was granted.
    pub(super) granted: u64,
    /// The last moment at which it was certainly held; `None` if it was lost at once.
    pub(super) until: Option<u64>,
    pub(super) token: Option<Token>,
    /// Whether it was held to its end, and a quorum acknowledged its release, or another caller of
    /// the process went on with it.
    pub(super) released: bool,
    /// What went wrong meanwhile.
    pub(super) errors: Vec<String>,
}

/// A fencing token that a holder drew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// Just before it was asked for.
    pub(super) asked: u64,
    /// Once it was there.
    pub(super) given: u64,
    pub(super) value: i64,
}

impl Acquisition {
    pub(super) fn hold(&self) -> Option<&Hold> {
        match &self.outcome {
            Outcome::Held(hold) => Some(hold),
            Outcome::TimedOut | Outcome::Withdrawn | Outcome::Failed(_) => None,
        }
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.hold()?.token
    }

    /// How long it waited for its grant.
    pub(super) fn wait(&self) -> Option<u64> {
        Some(self.hold()?.granted - self.asked)
    }

    /// When it was granted, if it was certainly held then: a process that stood still before it
    /// noted the time may have lost the lock before.
    pub(super) fn certainly_granted(&self) -> Option<u64> {
        self.hold().filter(|hold| hold.until.is_some()).map(|hold| hold.granted)
    }
}
