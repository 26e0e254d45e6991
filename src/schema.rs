//! The keyspace and the tables that locks need: to make them, and to check them.
//!
//! The statements are in the directory `cql` of the package, in two dialects: Apache Cassandra and
//! ScyllaDB differ in table options. Which one a cluster speaks is found out by asking it.
//!
//! The tool `lock-hosts` does from a shell what this module does from a program.

mod definition;
mod error;
mod existing;
mod nodes;
mod options;
mod replication;
mod report;
mod settings;
mod tables;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use scylla::client::session::Session;
use tracing::debug;
use uuid::Uuid;

use self::definition::{Definition, keyspace_cql};
use self::existing::{Names, Schema};
use self::nodes::Witness;
use crate::options::{Consistency, MAX_CLOCK_SKEW, MAX_CLOCK_SKEW_RANGE};
use crate::protocol::TIME_IN_FLIGHT;
use crate::store::{CassandraStore, Catalog, Dialect, Identifier, Nodes};

pub use self::error::SchemaError;
pub(crate) use self::nodes::Clocks;
pub use self::options::CreateOptions;
pub use self::replication::Replication;
pub(crate) use self::report::Joined;
pub use self::report::{Finding, Report, Severity};
pub use crate::store::InvalidIdentifier;

/// The name of the lock table unless another one is asked for.
pub const LOCK_TABLE_DEFAULT: &str = "lock_table";

/// The longest TTL of a new lock table unless another one is asked for.
pub const MAX_TTL_DEFAULT: Duration = Duration::from_secs(120);

/// What the longest TTL may be.
///
/// Tombstones are kept for twice as long, and have to outlive the rows that they hide: the TTL, the
/// clock skew and the time that a late write may still be on its way. That needs 16 s; 30 s leave
/// time for a client that is stopped in the middle of a write. Above 600 s dead rows would slow
/// reads down for too long; locks are renewed while they are held, so they need no long TTL.
const MAX_TTL_RANGE: RangeInclusive<Duration> = Duration::from_secs(30)..=Duration::from_secs(600);
const _: () = assert!(
    MAX_TTL_RANGE.start().as_millis()
        >= MAX_CLOCK_SKEW_RANGE.end().as_millis() + TIME_IN_FLIGHT.as_millis()
);

/// The table of the registry of hosts.
const LOCK_HOSTS: &str = "lock_hosts";

/// Checks the names of a keyspace and of a lock table in it. Sends nothing.
///
/// # Errors
///
/// [`SchemaError::Name`] and [`SchemaError::ReservedName`].
pub fn check_names(keyspace: &str, lock_table: &str) -> Result<(), SchemaError> {
    Names::check(keyspace, lock_table).map(drop)
}

/// What [`create`] made; all else was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// Whether the keyspace was made.
    pub keyspace: bool,
    /// The tables that were made.
    pub tables: Vec<String>,
    /// Whether the settings of the lock table were recorded.
    pub settings: bool,
}

/// Makes the keyspace, if `options` say how to replicate it, and the tables, as far as they are
/// missing; then waits until the nodes agree on them, and records the settings of the lock table,
/// unless they are. What is there as asked for stays as it is.
///
/// The tables are the lock table, the registry of hosts, and `lock_table` if the lock table has
/// another name: the registry's own lock is in that one, whatever table the hosts use.
///
/// Run it from one place at a time: Cassandra can't make one table twice at the same moment, and of
/// two different settings that are recorded at the same moment the later ones stay.
///
/// # Errors
///
/// See [`SchemaError`]. When something is there but differs from what was asked for, nothing is
/// changed.
///
/// # Cancel safety
///
/// When the future is dropped, some of it may have been made. Making it again completes it.
pub async fn create(
    session: &Session,
    keyspace: &str,
    options: &CreateOptions,
) -> Result<Created, SchemaError> {
    let names = Names::check(keyspace, &options.lock_table)?;
    let of_registry = Names::check(keyspace, LOCK_TABLE_DEFAULT)?;
    options.check()?;
    let catalog = Catalog::new(session);
    let datacenters = datacenters(session);
    let schema = Schema::read(&catalog, &names).await?;
    let mut differences = schema.differences(&names, options, &datacenters);
    if schema.holds_settings(&names) {
        let recorded = names.record(session).read().await?;
        let wanted = options.settings();
        differences.extend(recorded.and_then(|it| settings::difference(&names, &it, &wanted)));
    }
    if !differences.is_empty() {
        return Err(SchemaError::Differs { differences });
    }
    schema.check_quorum(&names, options, &datacenters)?;
    let mut created = Created::default();
    if schema.keyspace.is_none() {
        let Some(replication) = &options.replication else {
            return Err(names.missing_keyspace());
        };
        catalog.define(keyspace_cql(&names.keyspace, &replication.cql())).await?;
        created.keyspace = true;
    }
    for names in [&names, &of_registry] {
        let Schema { lock_table, dialect, .. } = Schema::read(&catalog, names).await?;
        if lock_table.is_none() {
            catalog.define(names.lock_table_definition(options.max_ttl, dialect).cql).await?;
            created.tables.push(names.lock_table.to_string());
        }
    }
    if schema.lock_hosts.is_none() {
        catalog.define(Definition::lock_hosts(&names.keyspace, schema.dialect).cql).await?;
        created.tables.push(names.lock_hosts.to_string());
    }
    // Somebody else may have made it at the same time, and otherwise.
    let schema = Schema::read(&catalog, &names).await?;
    let differences = schema.differences(&names, options, &datacenters);
    if !differences.is_empty() {
        return Err(SchemaError::Differs { differences });
    }
    created.settings = settings::record(session, &names, &options.settings()).await?;
    Ok(created)
}

/// Looks at all that locks rely on: tables and their options, replication, the quorum, the nodes'
/// clocks and commit logs. Changes nothing. Each finding that is not as it should be says what to
/// do.
///
/// # Errors
///
/// [`SchemaError::Name`], and [`SchemaError::Database`] when the cluster does not answer at all.
/// What is wrong with it otherwise is in the report.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn check(
    session: &Session,
    keyspace: &str,
    lock_table: &str,
    consistency: &Consistency,
) -> Result<Report, SchemaError> {
    let names = Names::check(keyspace, lock_table)?;
    let nodes = Nodes::new(session);
    nodes.refresh().await?;
    let schema = Schema::read(&Catalog::new(session), &names).await?;
    let datacenters = datacenters(session);
    let mut findings = schema.findings(&names, consistency, &datacenters);
    findings.extend(nodes::within_reach(&nodes.all(), consistency));
    let max_ttl = schema.max_ttl(&names).unwrap_or(MAX_TTL_DEFAULT);
    let mut max_clock_skew = MAX_CLOCK_SKEW;
    if schema.holds_settings(&names) {
        let recorded = names.record(session).read().await;
        if let Ok(Some(settings)) = &recorded {
            max_clock_skew = settings.max_clock_skew;
        }
        findings.push(settings::finding(&names, max_ttl, recorded, consistency));
    }
    let witnesses = interrogate(&nodes, schema.dialect).await;
    if let Ok(quorum) = schema.quorum(consistency, &datacenters) {
        let answering = nodes::answering(&witnesses);
        let coverage = nodes.coverage(
            &names.keyspace,
            &names.lock_table,
            consistency.datacenter(),
            quorum.required,
            &answering,
        );
        findings.extend(nodes::liveness(&witnesses, quorum, coverage));
    }
    let clocks = nodes::clocks_told(&witnesses, consistency);
    findings.extend(nodes::clocks(&clocks, max_clock_skew));
    findings.extend(nodes::commit_logs(&witnesses, max_ttl + max_clock_skew));
    Ok(Report { findings })
}

/// A lock table that can be used.
#[derive(Clone, Debug)]
pub(crate) struct LockTableFacts {
    /// Its keyspace.
    pub(crate) keyspace: Identifier,
    /// Its name.
    pub(crate) lock_table: Identifier,
    /// Changes when the table is dropped and made again.
    pub(crate) id: Uuid,
    /// The longest TTL that it was made for.
    pub(crate) max_ttl: Duration,
    /// How far clocks may differ.
    pub(crate) max_clock_skew: Duration,
}

impl LockTableFacts {
    /// Refuses a store whose table is another one than that which was looked at, because it was
    /// dropped before the store's statements were prepared.
    pub(crate) async fn confirm(&self, store: &CassandraStore) -> Result<(), SchemaError> {
        if store.lock_table_id().await? == Some(self.id) {
            return Ok(());
        }
        let (keyspace, lock_table) = (self.keyspace.to_string(), self.lock_table.to_string());
        Err(SchemaError::Replaced { keyspace, lock_table })
    }
}

/// Looks at all that a client relies on and refuses what is certainly wrong: tables, replication,
/// the recorded settings, the clocks. A node that does not answer is left out.
pub(crate) async fn inspect(
    session: &Session,
    keyspace: &str,
    lock_table: &str,
    consistency: &Consistency,
) -> Result<LockTableFacts, SchemaError> {
    let names = Names::check(keyspace, lock_table)?;
    let facts = inspect_tables(session, &names, consistency).await?;
    let (record, nodes) = (names.record(session), Nodes::new(session));
    let datacenter = consistency.datacenter();
    let (recorded, clocks) = tokio::join!(record.read(), nodes.glance_at_clocks(datacenter));
    // Nodes drop what a node whose clock is behind asks of them, so a wrong clock may be the reason
    // why the record can't be read: it comes first.
    let bound = match &recorded {
        Ok(Some(settings)) => settings.max_clock_skew,
        Ok(None) | Err(_) => *MAX_CLOCK_SKEW_RANGE.end(),
    };
    if let Clocks::Differ(problems) = Clocks::judge(&clocks, bound) {
        return Err(SchemaError::ClocksDiffer { problems });
    }
    let settings = settings::agreed(&names, facts.max_ttl, recorded?, consistency)?;
    let facts = LockTableFacts { max_clock_skew: settings.max_clock_skew, ..facts };
    debug!(?facts, %consistency, "the lock table can be used");
    Ok(facts)
}

/// Looks at the lock table of the registry's own lock, which is always taken at QUORUM, and with
/// the largest skew that settings may allow: so it needs no settings, and none can be wrong for it.
pub(crate) async fn inspect_registry(
    session: &Session,
    keyspace: &str,
) -> Result<LockTableFacts, SchemaError> {
    let names = Names::check(keyspace, LOCK_TABLE_DEFAULT)?;
    inspect_tables(session, &names, &Consistency::Quorum).await
}

/// Looks at the tables and their replication, and refuses what is wrong.
async fn inspect_tables(
    session: &Session,
    names: &Names,
    consistency: &Consistency,
) -> Result<LockTableFacts, SchemaError> {
    let catalog = Catalog::new(session);
    let mut schema = Schema::read(&catalog, names).await?;
    if schema.missing(names).is_some() {
        // The node that was asked may not know yet what another one made.
        catalog.settle().await;
        schema = Schema::read(&catalog, names).await?;
    }
    if let Some(missing) = schema.missing(names) {
        return Err(missing);
    }
    let mut problems = schema.findings(names, consistency, &datacenters(session));
    problems.extend(nodes::within_reach(&Nodes::new(session).all(), consistency));
    problems.retain(|finding| finding.severity == Severity::Error);
    match (schema.max_ttl(names), schema.lock_table) {
        (Some(max_ttl), Some(table)) if problems.is_empty() => Ok(LockTableFacts {
            keyspace: names.keyspace.clone(),
            lock_table: names.lock_table.clone(),
            id: table.id,
            max_ttl,
            max_clock_skew: *MAX_CLOCK_SKEW_RANGE.end(),
        }),
        _ => Err(SchemaError::Unfit { problems }),
    }
}

/// The data centres of the cluster, and how many nodes each has.
fn datacenters(session: &Session) -> BTreeMap<String, u32> {
    let mut datacenters = BTreeMap::new();
    for node in Nodes::new(session).all() {
        *datacenters.entry(node.datacenter).or_default() += 1;
    }
    datacenters
}

/// Asks each node for its clock and its commit log.
async fn interrogate(nodes: &Nodes<'_>, dialect: Dialect) -> Vec<Witness> {
    let mut witnesses = Vec::new();
    for node in nodes.all() {
        let clock = if node.connected { nodes.clock(&node).await.ok() } else { None };
        let commitlog_sync = match clock {
            Some(_) => nodes.commitlog_sync(&node, dialect).await,
            None => Ok(None),
        };
        witnesses.push(Witness { node, clock, commitlog_sync });
    }
    witnesses
}
