//! Why the keyspace and the tables could not be created, checked or used.

use std::time::Duration;

use thiserror::Error;

use super::{LOCK_HOSTS, LOCK_PEERS, LOCK_TABLE_DEFAULT, settings};
use crate::error::{Class, predicates};
use crate::finding::{Finding, Joined};
use crate::options::{Consistency, MAX_CLOCK_SKEW_RANGE};
use crate::store::{DatabaseError, InvalidIdentifier};

/// Why the keyspace and the tables could not be created, checked or used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A name is invalid for a keyspace or a table. Nothing was sent.
    #[error("{0}")]
    Name(#[from] InvalidIdentifier),
    /// The lock table would have the name of the registry of hosts, or that of the table of peers.
    /// Nothing was sent.
    #[error(
        "{LOCK_HOSTS:?} is the registry of hosts, and {LOCK_PEERS:?} the table of peers: use \
         another name for the lock table"
    )]
    ReservedName,
    /// The longest TTL is not in whole seconds, or out of bounds. Nothing was sent.
    #[error("a max_ttl of {max_ttl:?} can't be used: use whole seconds, from 30 to 600")]
    #[non_exhaustive]
    MaxTtl {
        /// The requested one.
        max_ttl: Duration,
    },
    /// The clock skew is not in whole milliseconds, or out of bounds. Nothing was sent.
    #[error(
        "a max_clock_skew of {max_clock_skew:?} can't be used: use whole milliseconds, from 1 to \
         {}, so that the shortest ttl leaves a lease",
        MAX_CLOCK_SKEW_RANGE.end().as_millis()
    )]
    #[non_exhaustive]
    MaxClockSkew {
        /// The requested one.
        max_clock_skew: Duration,
    },
    /// The clocks of the nodes can't be compared as exactly as the clock skew requires: they would
    /// never be seen to agree within it. Nothing was changed.
    #[error(
        "a max_clock_skew of {max_clock_skew:?} can't be kept here: the clocks of the nodes can be \
         compared to within {measurable:?} at best; use {usable:?} or more"
    )]
    #[non_exhaustive]
    Unmeasurable {
        /// The requested one.
        max_clock_skew: Duration,
        /// How exactly two clocks were just compared, with the best of several readings each.
        measurable: Duration,
        /// A value with room for slower answers: twice as much, in whole milliseconds.
        usable: Duration,
    },
    /// A keyspace without replicas was requested. Nothing was sent.
    #[error("a keyspace needs replicas: use a replication factor of 1 or more, best 3")]
    NoReplicas,
    /// The keyspace does not exist, and no replication was given for a new one. Nothing was
    /// changed.
    #[error(
        "keyspace {keyspace:?} does not exist: run `lock-hosts init --keyspace {keyspace} \
         --replication 3`"
    )]
    #[non_exhaustive]
    MissingKeyspace {
        /// Its name.
        keyspace: String,
    },
    /// A table does not exist. Nothing was changed.
    #[error(
        "table {table:?} does not exist in keyspace {keyspace:?}: run `lock-hosts init --keyspace \
         {keyspace}{}`, or see whether the names are right",
        lock_table_option(table)
    )]
    #[non_exhaustive]
    MissingTable {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
    },
    /// An object exists already, but differs from the options. It was left as it is, and nothing
    /// else was changed.
    #[error(
        "it exists already, but not as asked for; nothing was changed: {}",
        Joined(differences)
    )]
    #[non_exhaustive]
    Differs {
        /// The differences, and what to do.
        differences: Vec<Finding>,
    },
    /// With the keyspace and the tables as they are or would be created, locks would not work, or
    /// would admit two holders. Nothing was changed.
    #[error("the tables can't be used for locks: {}", Joined(problems))]
    #[non_exhaustive]
    Unfit {
        /// The problems, and what to do.
        problems: Vec<Finding>,
    },
    /// The settings of the lock table are not recorded. Nothing was changed.
    #[error(
        "the settings of lock table {lock_table:?} are not recorded, so its clients might differ \
         in them: run `lock-hosts init --keyspace {keyspace} --lock-table {lock_table} --max-ttl \
         {}s`, with the --consistency and the --max-clock-skew that all clients shall use",
        max_ttl.as_secs()
    )]
    #[non_exhaustive]
    NotRecorded {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
        /// The longest TTL of the table.
        max_ttl: Duration,
    },
    /// The client's consistency differs from the recorded one of the lock table, so it would not
    /// exclude the others. Nothing was changed.
    #[error(
        "lock table {lock_table:?} is used with {recorded}, but this client asks for {asked_for}: \
         two that differ could hold one lock; use {recorded}, or {}",
        settings::how_to_change(keyspace, lock_table)
    )]
    #[non_exhaustive]
    OtherConsistency {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
        /// The recorded consistency.
        recorded: Consistency,
        /// The client's consistency.
        asked_for: Consistency,
    },
    /// The clients of the lock table follow another protocol. One of them and this client could
    /// hold a lock at the same time. Nothing was changed.
    #[error(
        "lock table {lock_table:?} is for clients of protocol {recorded}, and this version knows \
         protocol {known}: clients of both could hold one lock, or wait for each other; use a \
         version of bakery-lock that knows protocol {recorded}, or {}",
        settings::how_to_change_the_protocol(keyspace, lock_table)
    )]
    #[non_exhaustive]
    OtherProtocol {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
        /// The recorded protocol.
        recorded: i32,
        /// The protocol of this version.
        known: i32,
    },
    /// Clocks certainly differ by more than the settings of the lock table allow. Nothing was
    /// changed.
    #[error("the clocks differ by too much for locks: {}", Joined(problems))]
    #[non_exhaustive]
    ClocksDiffer {
        /// Which ones, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped or created again during the check. Nothing was changed.
    #[error(
        "lock table {lock_table:?} of keyspace {keyspace:?} was dropped or made again just now: do \
         the same again"
    )]
    #[non_exhaustive]
    Replaced {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
    },
    /// The database failed. What was being created may exist in part; repeating the call completes
    /// it.
    #[error("the schema could not be read or changed{}", .0.remedy(""))]
    Database(#[from] DatabaseError),
}

impl SchemaError {
    pub(super) fn unmeasurable(max_clock_skew: Duration, measurable: Duration) -> Self {
        let rounded_up = |time: Duration| {
            let millis = time.as_micros().div_ceil(1_000);
            Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
        };
        let usable = rounded_up(measurable * 2).min(*MAX_CLOCK_SKEW_RANGE.end());
        SchemaError::Unmeasurable { max_clock_skew, measurable: rounded_up(measurable), usable }
    }
}

/// The option of `lock-hosts init` that creates a table, if it needs one.
fn lock_table_option(table: &str) -> String {
    if [LOCK_TABLE_DEFAULT, LOCK_HOSTS, LOCK_PEERS].contains(&table) {
        return String::new();
    }
    format!(" --lock-table {table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_a_missing_table_creates_that_table() {
        let advice = |table: &str| {
            let (keyspace, table) = ("app".to_owned(), table.to_owned());
            SchemaError::MissingTable { keyspace, table }.to_string()
        };
        assert!(advice("jobs").contains("`lock-hosts init --keyspace app --lock-table jobs`"));
        assert!(advice("lock_hosts").contains("`lock-hosts init --keyspace app`"));
    }
}

predicates!(SchemaError);

impl SchemaError {
    pub(crate) fn class(&self) -> Class {
        match self {
            SchemaError::Database(error) => Class::of_database(error),
            SchemaError::Replaced { .. } => Class::Passing,
            SchemaError::ClocksDiffer { .. } => Class::Disorder,
            SchemaError::Name(_)
            | SchemaError::ReservedName
            | SchemaError::MaxTtl { .. }
            | SchemaError::MaxClockSkew { .. }
            | SchemaError::Unmeasurable { .. }
            | SchemaError::NoReplicas
            | SchemaError::MissingKeyspace { .. }
            | SchemaError::MissingTable { .. }
            | SchemaError::Differs { .. }
            | SchemaError::Unfit { .. }
            | SchemaError::NotRecorded { .. }
            | SchemaError::OtherConsistency { .. }
            | SchemaError::OtherProtocol { .. } => Class::Misconfigured,
        }
    }
}
