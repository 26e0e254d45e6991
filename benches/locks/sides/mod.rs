//! What is measured: one side each, and what all of them have in common.

pub(crate) mod bakery;
pub(crate) mod bare;
pub(crate) mod lwt;
pub(crate) mod tuning;

use std::future::Future;
use std::iter::Sum;
use std::ops::{Add, Sub};

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// Something that is locked and unlocked.
pub(crate) trait Side: Send + Sync + 'static {
    /// A held lock.
    type Held: Send;

    /// Locks `name`, waiting for others.
    fn lock(&self, name: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Unlocks it again, and waits until that is acknowledged.
    fn unlock(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// What it has asked of the database so far.
    fn operations(&self) -> Operations;
}

/// Operations on the database.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Operations {
    /// Statements sent, reads and writes.
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

impl Sum for Operations {
    fn sum<I: Iterator<Item = Operations>>(all: I) -> Operations {
        all.fold(Operations::default(), Add::add)
    }
}
