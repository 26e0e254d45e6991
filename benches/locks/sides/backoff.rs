//! Pauses of those that poll.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a contender pauses between tries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Backoff {
    /// The first pause; each one is twice the one before,
    pub(crate) first: Duration,
    /// up to this one.
    pub(crate) longest: Duration,
}

/// What is tried for the locks on Redis. Redlock's client has pauses of one length only: it takes
/// the longest.
pub(crate) const CANDIDATES: [Backoff; 6] = [
    Backoff::of(1, 2),
    Backoff::of(1, 10),
    Backoff::of(5, 20),
    Backoff::of(5, 50),
    Backoff::of(10, 100),
    Backoff::of(50, 200),
];

/// The pauses of one acquisition.
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn of(first: u64, longest: u64) -> Self {
        let (first, longest) = (Duration::from_millis(first), Duration::from_millis(longest));
        Backoff { first, longest }
    }

    pub(crate) fn pauses(self) -> Pauses {
        Pauses { next: self.first, longest: self.longest }
    }
}

impl Pauses {
    /// Pauses once, jittered by half.
    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.next.mul_f64(rand::random_range(0.5..1.5))).await;
        self.next = (self.next * 2).min(self.longest);
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {:?}", self.first, self.longest)
    }
}
