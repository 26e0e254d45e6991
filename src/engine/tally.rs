//! Counts the locks of a client.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{LockError, LostReason};
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
    lost: [AtomicU64; Reason::COUNT],
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
        let grants = read(&self.grants);
        let lost = |reason: Reason| read(&self.lost[reason as usize]);
        Statistics {
            grants,
            held: grants.saturating_sub(ended),
            waiting: read(&self.waits).saturating_sub(waited),
            timeouts: read(&self.timeouts),
            refused_tries: read(&self.refused_tries),
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

    /// A lock was granted.
    pub(crate) fn granted(&self) {
        count(&self.grants);
    }

    /// A granted lock was released.
    pub(crate) fn released(&self) {
        count(&self.ended);
    }

    /// A granted lock was lost. In a fork nothing is counted.
    pub(crate) fn lost(&self, reason: &LostReason) {
        if let Some(reason) = Reason::of(reason) {
            count(&self.ended);
            count(&self.lost[reason as usize]);
        }
    }

    /// A caller waits for a lock.
    pub(crate) fn waits(&self) {
        count(&self.waits);
    }

    /// A caller waits no more.
    pub(crate) fn waited(&self) {
        count(&self.waited);
    }

    /// A caller was answered: `false` if a try found the lock taken.
    pub(crate) fn answered(&self, answer: Result<bool, &LockError>) {
        match answer {
            Ok(false) => count(&self.refused_tries),
            Err(LockError::TimedOut { .. }) => count(&self.timeouts),
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
