//! Options that clients and requests share: defaults, and relations checked once.

mod consistency;
mod duration;
#[cfg(feature = "serde")]
pub(crate) mod files;
mod hold_limit;
mod shell;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use thiserror::Error;

pub use self::consistency::{Consistency, ParseConsistencyError};
pub use self::duration::{ParseDurationError, parse_duration};
pub use self::shell::shell_operand;
use crate::core::bakery::{LeaseTerms, TTL_MIN};

/// How long an acquisition waits by default, as in `QCassandraLock`.
pub(crate) const ACQUIRE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// How long a client with peers keeps an idle lock.
pub(crate) const KEEP_IDLE_OF_PEERS: Duration = Duration::from_secs(1);

/// How long rows live without renewal by default, as in `QCassandraLock`.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How far clocks may differ unless a lock table's settings say otherwise (design section 5).
pub(crate) const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// The range of the clock skew in a lock table's settings, in whole milliseconds.
pub(crate) const MAX_CLOCK_SKEW_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(1_499);

/// The longest object name, in bytes: a partition key holds no more.
pub(crate) const NAME_BYTES_MAX: usize = 65_535;

/// The longest label of a request, and the longest reason of a revocation, in bytes. Each look of a
/// client reads them with the rows.
const TEXT_BYTES_MAX: usize = 1_024;

/// The lock under which the registry of hosts is changed.
pub(crate) const REGISTRY_LOCK: &str = "bakery-lock::hosts";

/// The priorities of candidates, the best one first, as in snaplock.
pub(crate) const PRIORITIES: RangeInclusive<u8> = 1..=14;

// Whatever the settings say, the shortest TTL must leave a useful lease.
const _: () = assert!(TTL_MIN.as_millis() > 2 * (MAX_CLOCK_SKEW_RANGE.end().as_millis() + 1_000));
const _: () = assert!(MAX_CLOCK_SKEW.as_millis() <= MAX_CLOCK_SKEW_RANGE.end().as_millis());

/// The number of the protocol that clients of this version follow. It is recorded with the settings
/// of a lock table, and a client refuses a table with another number. Increase it with each change
/// after which clients of the old and of the new version could hold a lock at the same time, or
/// would wait for each other. In protocol 1, clients sweep dead rows and heed the marks of sweeps;
/// in protocol 2, the ticket is in the `entering::` row, and not in a row of its own.
pub(crate) const PROTOCOL: i32 = 2;

/// The settings that all clients of a lock table share. They are recorded when the table is
/// created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How many replicas must answer.
    pub(crate) consistency: Consistency,
    /// How far clocks may differ, within [`MAX_CLOCK_SKEW_RANGE`].
    pub(crate) max_clock_skew: Duration,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and a max_clock_skew of {:?}", self.consistency, self.max_clock_skew)
    }
}

/// An invalid option or name. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// An object name is empty.
    #[error("an object name must not be empty")]
    EmptyName,
    /// An object name does not fit into a partition key.
    #[error("an object name has {NAME_BYTES_MAX} bytes at most, not {bytes}; hash longer ones")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The [prefix](crate::LockClientBuilder::prefix) of a client's names is too long.
    #[error("a prefix has {TEXT_BYTES_MAX} bytes at most, not {bytes}")]
    PrefixTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The name is that of the lock under which the registry of hosts is changed.
    #[error("the lock {REGISTRY_LOCK:?} belongs to the registry of hosts: use another name")]
    ReservedName,
    /// A [label](crate::LockRequest::label) is too long: all clients of the lock read it.
    #[error("a label has {TEXT_BYTES_MAX} bytes at most, not {bytes}")]
    LabelTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A [note](crate::LockRequest::note) is too long: all clients of the lock may read it.
    #[error("a note has {TEXT_BYTES_MAX} bytes at most, not {bytes}")]
    NoteTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The reason of a [revocation](crate::LockClient::revoke) is too long.
    #[error("the reason of a revocation has {TEXT_BYTES_MAX} bytes at most, not {bytes}")]
    ReasonTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The client was built to [observe](crate::LockClientBuilder::read_only) locks.
    #[error("this client takes no locks: build it without `read_only(true)`")]
    ReadOnly,
    /// No object is named where several are to be locked at once.
    #[error("no name is given: name at least one object to lock")]
    NoNames,
    /// An object is named twice where several are to be locked at once. It would wait for itself.
    #[error("lock {:?} is named twice: leave one of them out", shown(name))]
    NameTwice {
        /// The object.
        name: String,
    },
    /// A TTL is below the minimum of 5 seconds.
    #[error("a ttl of {ttl:?} is too short: use at least {TTL_MIN:?}")]
    TtlTooShort {
        /// The requested TTL.
        ttl: Duration,
    },
    /// A TTL is above the longest one of the lock table.
    #[error(
        "a ttl of {ttl:?} is longer than the lock table allows: use at most {max_ttl:?}; locks are \
         renewed while they are held, so they need no long one"
    )]
    TtlTooLong {
        /// The requested TTL.
        ttl: Duration,
        /// The table's `default_time_to_live`.
        max_ttl: Duration,
    },
    /// A TTL has a fraction of a second, which Cassandra can't store.
    #[error("a ttl of {ttl:?} is not in whole seconds")]
    TtlNotWholeSeconds {
        /// The requested TTL.
        ttl: Duration,
    },
    /// An acquire timeout is zero.
    #[error("an acquire timeout of zero never succeeds: use `try_lock` to not wait")]
    ZeroTimeout,
    /// A request both shares a lock and limits its holders.
    #[error("a lock is shared or limited, not both: use `shared` or `max_holders`")]
    SharedAndLimited,
    /// A request that holds a lock with others is to yield to those that share it.
    #[error("only a request that wants a lock alone can yield to those that share it")]
    YieldsWithOthers,
    /// A lock can't stay taken for that long without a renewal.
    #[error("a min_hold of {min_hold:?} is longer than the {longest:?} that the table allows")]
    MinHoldTooLong {
        /// The requested time.
        min_hold: Duration,
        /// The longest that the table allows.
        longest: Duration,
    },
    /// No lease lasts for that long.
    #[error("at_least {at_least:?} is longer than the {longest:?} that the table allows")]
    AtLeastTooLong {
        /// The requested time.
        at_least: Duration,
        /// The longest that the table allows.
        longest: Duration,
    },
    /// A lock that is not renewed ends before its minimum time.
    #[error("without renewal, a min_hold of {min_hold:?} needs a ttl of at least {least:?}")]
    MinHoldWithoutRenewal {
        /// The requested time.
        min_hold: Duration,
        /// The shortest TTL for it.
        least: Duration,
    },
    /// A request shares a lock that is to stay taken.
    #[error("a shared lock has no min_hold")]
    SharedWithMinHold,
    /// A number of holders is zero, or more than a column of Cassandra counts.
    #[error("a max_holders of {max_holders} is not between 1 and {}", i32::MAX)]
    MaxHolders {
        /// The requested number.
        max_holders: u32,
    },
    /// A candidate's priority is none.
    #[error(
        "a priority of {priority} is not between {} and {}",
        PRIORITIES.start(),
        PRIORITIES.end()
    )]
    Priority {
        /// The requested priority.
        priority: u8,
    },
    /// An election is to be watched without a pause.
    #[error("a watch interval of zero would ask the database all the time")]
    ZeroWatch,
    /// A hold limit is zero.
    #[error("a max_hold of zero would take the lock back at once: leave it out for no limit")]
    ZeroMaxHold,
    /// A grace is set without a hold limit.
    #[error("a grace follows a max_hold: set that too")]
    GraceWithoutMaxHold,
}

/// Checks the name of a lock, before anything is sent: 1 to 65,535 bytes, as a partition key has.
///
/// # Errors
///
/// [`InvalidOption::EmptyName`], [`InvalidOption::NameTooLong`].
pub fn check_name(name: &str) -> Result<(), InvalidOption> {
    match name.len() {
        0 => Err(InvalidOption::EmptyName),
        bytes if bytes > NAME_BYTES_MAX => Err(InvalidOption::NameTooLong { bytes }),
        _ => Ok(()),
    }
}

/// Checks the prefix of a client's names.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), InvalidOption> {
    check_text(Some(prefix), |bytes| InvalidOption::PrefixTooLong { bytes })
}

/// Checks the label of a request.
pub(crate) fn check_label(label: Option<&str>) -> Result<(), InvalidOption> {
    check_text(label, |bytes| InvalidOption::LabelTooLong { bytes })
}

/// Checks the note of a holder.
pub(crate) fn check_note(note: Option<&str>) -> Result<(), InvalidOption> {
    check_text(note, |bytes| InvalidOption::NoteTooLong { bytes })
}

/// Checks the reason of a revocation.
pub(crate) fn check_reason(why: &str) -> Result<(), InvalidOption> {
    check_text(Some(why), |bytes| InvalidOption::ReasonTooLong { bytes })
}

fn check_text(
    text: Option<&str>,
    too_long: impl FnOnce(usize) -> InvalidOption,
) -> Result<(), InvalidOption> {
    let bytes = text.map_or(0, str::len);
    if bytes > TEXT_BYTES_MAX { Err(too_long(bytes)) } else { Ok(()) }
}

/// Checks an acquire timeout.
pub(crate) fn check_timeout(timeout: Duration) -> Result<(), InvalidOption> {
    if timeout.is_zero() { Err(InvalidOption::ZeroTimeout) } else { Ok(()) }
}

/// Checks a TTL against the table's longest one. The skew is that of the table's settings.
pub(crate) fn lease_terms(
    ttl: Duration,
    max_ttl: Duration,
    max_clock_skew: Duration,
) -> Result<LeaseTerms, InvalidOption> {
    if ttl.subsec_nanos() != 0 {
        return Err(InvalidOption::TtlNotWholeSeconds { ttl });
    }
    if ttl < TTL_MIN {
        return Err(InvalidOption::TtlTooShort { ttl });
    }
    if ttl > max_ttl {
        return Err(InvalidOption::TtlTooLong { ttl, max_ttl });
    }
    Ok(LeaseTerms::new(ttl, max_clock_skew))
}

/// A name for errors and spans: long ones are truncated.
pub(crate) fn shown(name: &str) -> String {
    const CHARS_MAX: usize = 100;
    match name.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &name[..end], name.len()),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_a_partition_key() {
        assert_eq!(check_name(""), Err(InvalidOption::EmptyName));
        assert_eq!(check_name("a"), Ok(()));
        assert_eq!(check_name(&"é".repeat(32_767)), Ok(()));
        assert_eq!(check_name(&"a".repeat(65_535)), Ok(()));
        let bytes = 65_536;
        assert_eq!(check_name(&"a".repeat(bytes)), Err(InvalidOption::NameTooLong { bytes }));
    }

    #[test]
    fn ttls_are_whole_and_within_bounds() {
        let s = Duration::from_secs;
        let terms = |ttl| lease_terms(ttl, s(120), MAX_CLOCK_SKEW);
        let refused = |ttl| terms(ttl).expect_err("this ttl is refused");
        assert_eq!(refused(s(4)), InvalidOption::TtlTooShort { ttl: s(4) });
        assert_eq!(refused(s(121)), InvalidOption::TtlTooLong { ttl: s(121), max_ttl: s(120) });
        let ttl = Duration::from_millis(5_500);
        assert_eq!(refused(ttl), InvalidOption::TtlNotWholeSeconds { ttl });
        assert!(terms(s(5)).is_ok() && terms(s(120)).is_ok());
        assert_eq!(check_timeout(Duration::ZERO), Err(InvalidOption::ZeroTimeout));
    }

    #[test]
    fn skew_of_the_settings_shortens_the_lease() {
        let s = Duration::from_secs;
        for skew in [*MAX_CLOCK_SKEW_RANGE.start(), MAX_CLOCK_SKEW, *MAX_CLOCK_SKEW_RANGE.end()] {
            let terms = lease_terms(s(5), s(120), skew).expect("the shortest ttl is allowed");
            assert_eq!(terms.deadline(s(100)), s(104) - skew);
        }
    }

    #[test]
    fn long_names_are_shown_cut() {
        assert_eq!(shown("users::snap"), "users::snap");
        assert_eq!(shown(&"é".repeat(200)), format!("{}… (400 bytes)", "é".repeat(100)));
    }
}
