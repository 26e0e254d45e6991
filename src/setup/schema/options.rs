//! How to create the keyspace and the tables.

use std::time::Duration;

use super::replication::Replication;
use super::{LOCK_TABLE_DEFAULT, MAX_TTL_DEFAULT, MAX_TTL_RANGE, SchemaError};
use crate::options::{Consistency, MAX_CLOCK_SKEW, MAX_CLOCK_SKEW_RANGE, Settings};

/// How to create a keyspace and its tables.
///
/// ```
/// use std::time::Duration;
/// use bakery_lock::schema::{CreateOptions, Replication};
///
/// let options = CreateOptions::new()
///     .replication(Replication::Factor(3))
///     .max_ttl(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    pub(super) replication: Option<Replication>,
    pub(super) max_ttl: Duration,
    pub(super) lock_table: String,
    pub(super) consistency: Consistency,
    max_clock_skew: Duration,
}

impl CreateOptions {
    /// The defaults: the keyspace exists, the longest TTL is 120 s, the table is `lock_table`,
    /// clients use QUORUM, and clocks differ by a second at most.
    #[must_use]
    pub fn new() -> Self {
        CreateOptions {
            replication: None,
            max_ttl: MAX_TTL_DEFAULT,
            lock_table: LOCK_TABLE_DEFAULT.to_owned(),
            consistency: Consistency::default(),
            max_clock_skew: MAX_CLOCK_SKEW,
        }
    }

    /// The replication of the keyspace. Without it, the keyspace must exist.
    #[must_use]
    pub fn replication(mut self, replication: Replication) -> Self {
        self.replication = Some(replication);
        self
    }

    /// The longest TTL that clients may use: whole seconds, 30 to 600 s.
    ///
    /// It is a property of the table: tombstones are kept for twice as long, and must outlive
    /// each row that they hide, including late writes, so it can't be shorter than 30 s.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// The name of the lock table.
    #[must_use]
    pub fn lock_table(mut self, name: impl Into<String>) -> Self {
        self.lock_table = name.into();
        self
    }

    /// The consistency that all clients of the lock table must use; QUORUM by default. It is
    /// recorded; clients with another one are refused.
    #[must_use]
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// How far clocks may differ, between nodes and between clients and nodes: whole milliseconds,
    /// 1 to 1499, so that the shortest TTL leaves a lease. 1 s by default. It is recorded; clients
    /// read it, shorten their leases by it, and are refused if clocks differ by more. A value below
    /// the error with which this cluster's clocks can be compared is refused.
    #[must_use]
    pub fn max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.max_clock_skew = max_clock_skew;
        self
    }

    /// The settings to record.
    pub(super) fn settings(&self) -> Settings {
        Settings { consistency: self.consistency.clone(), max_clock_skew: self.max_clock_skew }
    }

    pub(super) fn check(&self) -> Result<(), SchemaError> {
        check_max_ttl(self.max_ttl)?;
        check_max_clock_skew(self.max_clock_skew)?;
        match &self.replication {
            Some(Replication::Factor(0)) => Err(SchemaError::NoReplicas),
            Some(Replication::PerDatacenter(factors)) if factors.values().all(|n| *n == 0) => {
                Err(SchemaError::NoReplicas)
            }
            Some(Replication::Factor(_) | Replication::PerDatacenter(_)) | None => Ok(()),
        }
    }
}

/// Checks the longest TTL of a lock table.
pub(crate) fn check_max_ttl(max_ttl: Duration) -> Result<(), SchemaError> {
    if max_ttl.subsec_nanos() != 0 || !MAX_TTL_RANGE.contains(&max_ttl) {
        return Err(SchemaError::MaxTtl { max_ttl });
    }
    Ok(())
}

/// Checks how far clocks may differ.
pub(crate) fn check_max_clock_skew(max_clock_skew: Duration) -> Result<(), SchemaError> {
    let fraction = max_clock_skew.subsec_nanos() % 1_000_000;
    if fraction != 0 || !MAX_CLOCK_SKEW_RANGE.contains(&max_clock_skew) {
        return Err(SchemaError::MaxClockSkew { max_clock_skew });
    }
    Ok(())
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self::new()
    }
}
