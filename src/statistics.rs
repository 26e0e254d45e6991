//! What a client has done, in numbers.

use crate::store::Calls;

/// What a client has done since it was built, in numbers.
///
/// Calls to the database include failed and repeated ones. Calls to the registry of hosts and the
/// table of peers do not count, nor do looks at clocks and table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Locks granted to callers, each turn of a place by itself.
    pub grants: u64,
    /// Locks that callers hold now.
    pub held: u64,
    /// Locks that callers wait for now, tries included, and those that let others go first.
    pub waiting: u64,
    /// Requests that [timed out](crate::LockError::TimedOut).
    pub timeouts: u64,
    /// Tries that found the lock taken.
    pub refused_tries: u64,
    /// Held locks whose holders were to finish: see [`ExpiringReason`](crate::ExpiringReason).
    pub expiring: u64,
    /// Idle locks that are [kept](crate::LockClientBuilder::keep_idle) now.
    pub kept: u64,
    /// Grants of locks that were kept until then: these asked nothing of the database.
    pub kept_used: u64,
    /// Locks that were lost.
    pub lost: Losses,
    /// Writes of lock rows: announcements, tickets, renewals and revocations. On
    /// masters the first two read as well, and a waiter's questions write, so that they count here.
    pub writes: u64,
    /// Deletes of lock rows.
    pub deletes: u64,
    /// Reads of all rows of an object: the costly ones.
    pub object_reads: u64,
    /// Reads of all rows of an object, or of several, as one replica has them, to see whether other
    /// clients wait.
    pub one_replica_reads: u64,
    /// Reads of a page of the whole lock table.
    pub page_reads: u64,
    /// Reads of the rows of one contender.
    pub contender_reads: u64,
    /// Reads of the fence of an object.
    pub fence_reads: u64,
    /// Writes of the fence of an object.
    pub fence_writes: u64,
    /// Writes and deletes whose outcome is unknown: they may have been applied. Those given up
    /// before they were answered count too.
    pub unknown_outcomes: u64,
    /// Other calls that failed.
    pub failures: u64,
    /// Messages to other clients. A turn that a guest takes and asks for again costs the guest two
    /// and its keeper three; while the guest waits, both send one a second, or four a second if it
    /// is among the first two.
    pub messages: u64,
}

/// How many locks were lost, by the [reason](crate::LostReason).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The lease ran out.
    pub expired: u64,
    /// A row of the lock was missing.
    pub row_missing: u64,
    /// Another client revoked it.
    pub revoked: u64,
    /// Another client held it too.
    pub conflict: u64,
    /// It was held for longer than its limit and the grace allow.
    pub hold_limit: u64,
    /// The lock table was dropped or made again.
    pub table_gone: u64,
    /// The client that keeps the place was not reached in time.
    pub keeper_unreachable: u64,
    /// The client that keeps the place had lost it.
    pub keeper_lost: u64,
    /// The client was shut down while the lock was held.
    pub client_closed: u64,
}

impl Losses {
    /// Of all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Losses {
            expired,
            row_missing,
            revoked,
            conflict,
            hold_limit,
            table_gone,
            keeper_unreachable,
            keeper_lost,
            client_closed,
        } = *self;
        let of_database = expired + row_missing + revoked + conflict + table_gone;
        of_database + hold_limit + keeper_unreachable + keeper_lost + client_closed
    }
}

impl Statistics {
    /// All calls to the lock table: reads and writes of rows and fences, failed ones included.
    #[must_use]
    pub fn operations(&self) -> u64 {
        let reads =
            self.object_reads + self.one_replica_reads + self.page_reads + self.contender_reads;
        self.writes + self.deletes + reads + self.fence_reads + self.fence_writes
    }

    /// The same with the calls to the database.
    pub(crate) fn with_calls(self, calls: Calls) -> Self {
        let Calls {
            writes,
            deletes,
            object_reads,
            one_replica_reads,
            page_reads,
            contender_reads,
            fence_reads,
            fence_writes,
            unknown_outcomes,
            failures,
        } = calls;
        Statistics {
            writes,
            deletes,
            object_reads,
            one_replica_reads,
            page_reads,
            contender_reads,
            fence_reads,
            fence_writes,
            unknown_outcomes,
            failures,
            ..self
        }
    }
}
