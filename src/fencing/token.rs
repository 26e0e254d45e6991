//! The token itself.

use std::fmt;

use crate::core::bakery::SPACING;

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
/// [`FenceGate`](crate::FenceGate) keeps the largest token seen, for any resource that can ask it
/// before each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
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
    /// `None` if n is not below [`WRITES`](Self::WRITES): get another token.
    #[must_use]
    pub fn write_timestamp(self, n: u16) -> Option<i64> {
        (n < Self::WRITES).then(|| self.0.checked_add(i64::from(n))).flatten()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "serde")]
    #[test]
    fn token_is_stored_as_its_number() {
        let token = FencingToken::from_value(7);
        let stored = serde_json::to_string(&token).expect("a number can be written");
        assert_eq!(stored, "7");
        assert_eq!(serde_json::from_str::<FencingToken>(&stored).expect("it is a number"), token);
    }

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
        assert_eq!(i64::from(token), token.value());
    }
}
