//! Fencing tokens: numbers that let a resource tell the holder of a lock from one that has not yet
//! noticed its loss (design section 6).

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;

use crate::core::bakery::SPACING;
use crate::error::LostReason;
use crate::options::shown;
use crate::store::DatabaseError;

/// A number that grows from holder to holder, drawn by
/// [`LockHandle::fencing_token`](crate::LockHandle::fencing_token).
///
/// A process that was stopped for longer than its lease no longer holds the lock, but continues its
/// work until it looks at its guard. No lock can prevent this; the written resource can, if each
/// write carries a token: after a larger one, smaller ones are rejected.
///
/// Tokens of one lock grow whatever the clients' clocks say, as long as the lock is fenced at least
/// once in 30 days; after a longer pause they grow by the clocks. Tokens of different locks are
/// unrelated.
///
/// # What Cassandra and ScyllaDB refuse by themselves
///
/// A token is a legal write timestamp, with room for [`WRITES`](Self::WRITES) writes, so if each
/// write of a row says `USING TIMESTAMP` [`write_timestamp(n)`](Self::write_timestamp), the late
/// write of a stale holder loses to the writes of the next holder:
///
/// ```
/// # fn write(cql: &str, stamp: i64) {}
/// # fn pay(token: bakery_lock::FencingToken) -> Option<()> {
/// write("UPDATE accounts USING TIMESTAMP ? SET balance = 90 WHERE name = 'snap'",
///     token.write_timestamp(0)?);
/// write("UPDATE accounts USING TIMESTAMP ? SET note = 'paid' WHERE name = 'snap'",
///     token.write_timestamp(1)?);
/// # Some(())
/// # }
/// ```
///
/// It works cell by cell, by comparing timestamps and nothing else. Therefore:
///
/// - Every writer of those cells uses tokens of the same lock. A write with the server's or the
///   driver's timestamp, by a machine with a clock that is ahead, hides those that carry tokens.
/// - The n of one token are below 1000 and increase: a later write to the same cell has the larger
///   one.
/// - The next holder must write a cell to protect it. A cell that only the stale holder writes
///   takes its value, so rewrite what you rely on, even if it stays the same.
/// - No lightweight transactions on those cells: they choose timestamps themselves. No counters:
///   they have none.
/// - A delete beats an insert of the same timestamp. To delete and then insert, use two n.
/// - Write and read at QUORUM, as always with this lock, or the next holder may not see the write
///   at all.
///
/// If tables were written without tokens before, make sure that no clock was ahead then.
///
/// # Other resources
///
/// [`FenceGate`] keeps the largest token seen, for any resource that can ask it before each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(i64);

impl FencingToken {
    /// How many writes a token has room for.
    pub const WRITES: u16 = SPACING;

    /// A token from its [`value`](Self::value), from another process or a file.
    #[must_use]
    pub const fn from_value(value: i64) -> Self {
        FencingToken(value)
    }

    /// The token as a number: roughly microseconds since the Unix epoch.
    #[must_use]
    pub const fn value(self) -> i64 {
        self.0
    }

    /// The timestamp, in µs, for the n-th write of the holder, counted from 0. It is above those of
    /// all earlier holders and below those of all later ones. The other rules are [above](Self).
    ///
    /// `None` if n is not below [`WRITES`](Self::WRITES): draw another token.
    #[must_use]
    pub fn write_timestamp(self, n: u16) -> Option<i64> {
        (n < Self::WRITES).then(|| self.0.checked_add(i64::from(n))).flatten()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Admits holders of one lock in the order of their tokens, for resources outside of Cassandra.
///
/// It belongs to the resource, not to the holder. A token is admitted if no larger one was; an
/// equal one is, because a holder writes more than once, and shared holders have the same token.
///
/// # What it needs of the resource
///
/// - Admitting a token and doing the admitted work must be one step: hold the resource's own lock
///   over both, or a larger token may be admitted in between.
/// - The [high-water mark](Self::high_water) must be stored with the work, and the gate created
///   from it after a restart. A gate that forgets it admits a stale holder.
///
/// ```
/// use bakery_lock::{FenceGate, FencingToken};
///
/// let stored = None;
/// let gate = FenceGate::new(stored);
/// let [old, new] = [5_000, 6_000].map(FencingToken::from_value);
/// assert!(gate.admit(old).is_ok());
/// assert!(gate.admit(new).is_ok());
/// assert_eq!(gate.admit(old).map_err(|stale| stale.high_water), Err(new));
/// assert_eq!(gate.high_water(), Some(new));
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    high_water: Mutex<Option<FencingToken>>,
}

impl FenceGate {
    /// A gate that refuses tokens below `high_water`, the mark of an earlier gate of the same
    /// resource; `None` if there was none.
    #[must_use]
    pub const fn new(high_water: Option<FencingToken>) -> Self {
        FenceGate { high_water: Mutex::new(high_water) }
    }

    /// Admits a token, unless a larger one was admitted before.
    ///
    /// # Errors
    ///
    /// [`StaleToken`]: its holder lost the lock, and a later holder was here. The gate is
    /// unchanged.
    pub fn admit(&self, token: FencingToken) -> Result<(), StaleToken> {
        let mut mark = self.high_water.lock().unwrap_or_else(PoisonError::into_inner);
        match *mark {
            Some(high_water) if high_water > token => Err(StaleToken { token, high_water }),
            Some(_) | None => {
                *mark = Some(token);
                Ok(())
            }
        }
    }

    /// The largest admitted token, to be stored with the resource; `None` if there is none.
    #[must_use]
    pub fn high_water(&self) -> Option<FencingToken> {
        *self.high_water.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token that came too late: its holder lost the lock, and a later holder was here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("fencing token {token} is stale: {high_water} was here, so its holder has lost the lock")]
#[non_exhaustive]
pub struct StaleToken {
    /// The refused token.
    pub token: FencingToken,
    /// The largest admitted one.
    pub high_water: FencingToken,
}

/// Why a guard has no fencing token. The lock itself is unaffected: ask the guard whether it is
/// held. The fence may have been raised, which only makes the next token larger.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FencingError {
    /// The lock was lost before a token was confirmed. Another client may hold it by now.
    #[error("no fencing token: the lock is lost: {0}")]
    Lost(LostReason),
    /// A limited number of holders share the lock and exclude others, so they have no order.
    #[error("no fencing token: one of a limited number of holders has none")]
    Limited,
    /// The last token is ahead of this machine's clock by more than clocks may differ. A client
    /// with a wrong clock drew it, or this machine's clock is wrong. Tokens are refused until the
    /// clock catches up, because timestamps in the future would hide the writes of others.
    #[error(
        "no fencing token: the last one of lock {:?} is {ahead:?} ahead of this machine's clock; \
         set the clocks of all clients right, then wait that long or use another name",
        shown(name)
    )]
    Poisoned {
        /// The object.
        name: String,
        /// How far the last token is ahead.
        ahead: Duration,
    },
    /// The database refuses a statement: the table is gone, or access is denied. `lock-hosts check`
    /// shows what is wrong.
    #[error(
        "no fencing token: the database refuses the request for lock {:?}{}",
        shown(name),
        cause.remedy("; run `lock-hosts check`")
    )]
    Refused {
        /// The object.
        name: String,
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
    /// No quorum answered within the client's acquire timeout. A retry may help.
    #[error("no fencing token of lock {:?} within {waited:?}", shown(name))]
    TimedOut {
        /// The object.
        name: String,
        /// How long the call waited.
        waited: Duration,
        /// The last error of the database, if any.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// The lock is released. Only a [handle](crate::LockHandle) that outlived its guard finds that.
    #[error("no fencing token: the lock is released")]
    Released,
    /// The client's runtime has ended.
    #[error("no fencing token: the lock client is closed")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_room_for_a_thousand_writes() {
        let token = FencingToken::from_value(1_700_000_000_000_000);
        assert_eq!(token.write_timestamp(0), Some(token.value()));
        assert_eq!(token.write_timestamp(999), Some(token.value() + 999));
        assert_eq!(token.write_timestamp(1_000), None);
        assert_eq!(token.write_timestamp(u16::MAX), None);
        assert_eq!(FencingToken::from_value(i64::MAX).write_timestamp(1), None);
        // The next holder's token is above all of them.
        let next = FencingToken::from_value(token.value() + i64::from(SPACING));
        assert!(next.write_timestamp(0) > token.write_timestamp(FencingToken::WRITES - 1));
        assert_eq!(token.to_string(), "1700000000000000");
    }

    #[test]
    fn gate_lets_tokens_pass_in_their_order() {
        let [one, two, three] = [1, 2, 3].map(FencingToken::from_value);
        let gate = FenceGate::default();
        assert_eq!(gate.high_water(), None);
        for (token, admitted) in
            [(two, true), (two, true), (one, false), (three, true), (two, false), (three, true)]
        {
            let before = gate.high_water();
            assert_eq!(gate.admit(token).is_ok(), admitted, "{token} after {before:?}");
        }
        assert_eq!(gate.admit(one), Err(StaleToken { token: one, high_water: three }));
        // After a restart it continues where it was.
        let gate = FenceGate::new(gate.high_water());
        assert_eq!(gate.admit(two), Err(StaleToken { token: two, high_water: three }));
        assert_eq!(gate.admit(three), Ok(()));
    }

    #[test]
    fn gate_may_be_asked_by_many_at_once() {
        let gate = FenceGate::new(None);
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let gate = &gate;
                    let tokens = (0..1_000).map(move |n| FencingToken::from_value(n * 4 + thread));
                    scope.spawn(move || tokens.filter(|token| gate.admit(*token).is_ok()).max())
                })
                .collect();
            let largest = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            largest.max().flatten()
        });
        assert_eq!(admitted, Some(FencingToken::from_value(3_999)));
        assert_eq!(gate.high_water(), admitted);
    }
}
