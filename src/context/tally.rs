//! Counts the locks of a client, for its statistics and for the recorder of metrics.

mod metrics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::metrics::LockMetrics;
use crate::core::object::io::Origin;
use crate::core::turns::KeptEnd;
use crate::error::{ExpiringReason, LockError, LostReason};
use crate::statistics::{Losses, Statistics};

/// The locks of a client so far. Atomics, and no mutex, because a fork may copy a locked one.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    grants: AtomicU64,
    ended: AtomicU64,
    waits: AtomicU64,
    waited: AtomicU64,
    timeouts: AtomicU64,
    refused_tries: AtomicU64,
    expiring: AtomicU64,
    kept: AtomicU64,
    kept_ended: AtomicU64,
    kept_used: AtomicU64,
    lost: [AtomicU64; Reason::COUNT],
    metrics: LockMetrics,
}

/// A reason for a loss, without its details.
#[derive(Clone, Copy)]
enum Reason {
    Expired,
    RowMissing,
    Revoked,
    Conflict,
    HoldLimit,
    TableGone,
    KeeperUnreachable,
    KeeperLost,
    ClientClosed,
}

impl Reason {
    const COUNT: usize = Reason::ClientClosed as usize + 1;

    /// `None` in a fork, where there is nothing to lose: the parent holds the lock.
    fn of(reason: &LostReason) -> Option<Self> {
        match reason {
            LostReason::Expired => Some(Reason::Expired),
            LostReason::RowMissing => Some(Reason::RowMissing),
            LostReason::Revoked { .. } => Some(Reason::Revoked),
            LostReason::Conflict { .. } => Some(Reason::Conflict),
            LostReason::HoldLimit => Some(Reason::HoldLimit),
            LostReason::TableGone => Some(Reason::TableGone),
            LostReason::KeeperUnreachable => Some(Reason::KeeperUnreachable),
            LostReason::KeeperLost => Some(Reason::KeeperLost),
            LostReason::ClientClosed => Some(Reason::ClientClosed),
            LostReason::Forked => None,
        }
    }
}

impl Tally {
    /// The counts so far; calls to the database and messages are zero.
    pub(crate) fn counts(&self) -> Statistics {
        // What ends is read first, so that nothing ends more often than it began.
        let (ended, waited) = (read(&self.ended), read(&self.waited));
        let (grants, kept_ended) = (read(&self.grants), read(&self.kept_ended));
        let lost = |reason: Reason| read(&self.lost[reason as usize]);
        Statistics {
            grants,
            held: grants.saturating_sub(ended),
            waiting: read(&self.waits).saturating_sub(waited),
            timeouts: read(&self.timeouts),
            refused_tries: read(&self.refused_tries),
            expiring: read(&self.expiring),
            kept: read(&self.kept).saturating_sub(kept_ended),
            kept_used: read(&self.kept_used),
            lost: Losses {
                expired: lost(Reason::Expired),
                row_missing: lost(Reason::RowMissing),
                revoked: lost(Reason::Revoked),
                conflict: lost(Reason::Conflict),
                hold_limit: lost(Reason::HoldLimit),
                table_gone: lost(Reason::TableGone),
                keeper_unreachable: lost(Reason::KeeperUnreachable),
                keeper_lost: lost(Reason::KeeperLost),
                client_closed: lost(Reason::ClientClosed),
            },
            ..Statistics::default()
        }
    }

    /// A lock was granted, after its caller had waited for so long.
    pub(crate) fn granted(&self, origin: Origin, waited: Duration) {
        count(&self.grants);
        self.metrics.granted(origin, waited);
    }

    /// A guest was given a turn.
    pub(crate) fn sublease(&self) {
        self.metrics.sublease();
    }

    /// A caller or guest left a line with a turn; `waiting` others still wait there.
    pub(crate) fn passed_on(&self, waiting: usize) {
        self.metrics.passed_on(waiting);
    }

    /// The holder of a lock is to finish.
    pub(crate) fn expiring(&self, reason: &ExpiringReason) {
        count(&self.expiring);
        self.metrics.expiring(reason);
    }

    /// An idle place is kept. Returns how many are.
    pub(crate) fn kept(&self) -> u64 {
        self.metrics.kept();
        let ended = read(&self.kept_ended);
        (self.kept.fetch_add(1, Ordering::Release) + 1).saturating_sub(ended)
    }

    /// A place is kept no longer.
    pub(crate) fn kept_ends(&self, end: KeptEnd) {
        count(&self.kept_ended);
        if end == KeptEnd::Used {
            count(&self.kept_used);
        }
        self.metrics.kept_ends(end);
    }

    /// A granted lock was released, after it was held for so long.
    pub(crate) fn released(&self, held: impl FnOnce() -> Duration) {
        count(&self.ended);
        self.metrics.ended(held);
    }

    /// A granted lock was lost, after it was held for so long. In a fork nothing is counted.
    pub(crate) fn lost(&self, reason: &LostReason, held: impl FnOnce() -> Duration) {
        if let Some(reason) = Reason::of(reason) {
            count(&self.ended);
            count(&self.lost[reason as usize]);
            self.metrics.ended(held);
            self.metrics.lost(reason);
        }
    }

    /// A lease was renewed when this share of it was left, from 0 to 1.
    pub(crate) fn renewed(&self, left: f64) {
        self.metrics.renewed(left);
    }

    /// A held lock became at risk.
    pub(crate) fn at_risk(&self) {
        self.metrics.at_risk();
    }

    /// A caller waits for a lock.
    pub(crate) fn waits(&self) {
        count(&self.waits);
        self.metrics.waits();
    }

    /// A caller waits no more.
    pub(crate) fn waited(&self) {
        count(&self.waited);
        self.metrics.waited();
    }

    /// A caller was answered: `false` if a try found the lock taken.
    pub(crate) fn answered(&self, answer: Result<bool, &LockError>) {
        match answer {
            Ok(false) => {
                count(&self.refused_tries);
                self.metrics.refused_try();
            }
            Err(LockError::TimedOut { .. }) => {
                count(&self.timeouts);
                self.metrics.timed_out();
            }
            Ok(true) | Err(_) => {}
        }
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

/// Released, so that a reader of a later count sees the earlier ones.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Release);
}
