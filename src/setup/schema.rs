//! Creates and checks the keyspace and the tables that locks need.
//!
//! The statements are in the directory `cql` of the package, in two dialects: Apache Cassandra and
//! ScyllaDB differ in table options. A cluster is asked for its dialect.
//!
//! The tool `lock-hosts` does the same from a shell.

mod commit_log;
mod definition;
mod error;
mod existing;
mod nodes;
mod options;
mod replication;
mod rights;
mod settings;
mod tables;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use scylla::client::session::Session;
use tokio::time::timeout;
use tracing::debug;
use uuid::Uuid;

use self::definition::{Definition, PROTOCOL_COLUMN, SEEN_AT_COLUMN};
use self::existing::{Names, Schema};
use self::nodes::NodeState;
use crate::clock::{Clock, SystemClock};
use crate::core::bakery::TIME_IN_FLIGHT;
use crate::driver::clock_skew::{self, ClockDifference, Clocks};
use crate::options::{Consistency, MAX_CLOCK_SKEW, MAX_CLOCK_SKEW_RANGE, Settings};
use crate::store::{
    CassandraStore, Catalog, Cql, DatabaseError, Dialect, Extras, Identifier, Nodes, Outcome,
    Recorded, SettingsRecord, at_the_same_time,
};

pub use self::error::SchemaError;
pub use self::options::CreateOptions;
#[cfg(feature = "redis")]
pub(crate) use self::options::{check_max_clock_skew, check_max_ttl};
pub use self::replication::Replication;
pub use crate::finding::{Finding, Severity};
pub use crate::store::InvalidIdentifier;

/// The default name of the lock table.
pub const LOCK_TABLE_DEFAULT: &str = "lock_table";

/// The default longest TTL of a new lock table.
pub const MAX_TTL_DEFAULT: Duration = Duration::from_secs(120);

/// The range of the longest TTL.
///
/// Tombstones are kept for twice as long, and must outlive the rows that they hide: the TTL, the
/// clock skew and the time in flight of a late write. That needs 16 s; 30 s leave time for a client
/// that is stopped in the middle of a write. Above 600 s, dead rows would slow down reads for too
/// long; locks are renewed while they are held, so they need no long TTL.
const MAX_TTL_RANGE: RangeInclusive<Duration> = Duration::from_secs(30)..=Duration::from_secs(600);
const _: () = assert!(
    MAX_TTL_RANGE.start().as_millis()
        >= MAX_CLOCK_SKEW_RANGE.end().as_millis() + TIME_IN_FLIGHT.as_millis()
);

/// The timeout of one step of a check, because a node may have failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// The table of the registry of hosts.
const LOCK_HOSTS: &str = "lock_hosts";

/// The table of clients that let others take turns.
const LOCK_PEERS: &str = "lock_peers";

/// Checks the names of a keyspace and of a lock table in it. Sends nothing.
///
/// # Errors
///
/// [`SchemaError::Name`] and [`SchemaError::ReservedName`].
pub fn check_names(keyspace: &str, lock_table: &str) -> Result<(), SchemaError> {
    Names::check(keyspace, lock_table).map(drop)
}

/// What [`create`] created; everything else existed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// Whether the keyspace was created.
    pub keyspace: bool,
    /// The tables that were created.
    pub tables: Vec<String>,
    /// The columns that were added to a table of an earlier version: `lock_hosts.seen_at`,
    /// `lock_hosts.protocol`.
    pub columns: Vec<String>,
    /// Whether the settings of the lock table were recorded.
    pub settings: bool,
}

/// Creates what is missing: the keyspace, if `options` name its replication, and the tables. Then
/// waits until the nodes agree on them, and records the settings of the lock table and the protocol
/// of its clients. Matching objects are left unchanged. What an earlier version made is completed.
///
/// The tables are the lock table; `lock_table` if the lock table has another name, because the
/// registry's own lock is there, whatever table the hosts use; the registry of hosts, `lock_hosts`;
/// and `lock_peers`, in which peers publish their keys, and where
/// they listen. A keyspace of an earlier version gets that one too.
///
/// Run it from one place at a time: Cassandra can't create one table twice at the same moment, and
/// of two different settings recorded at the same moment the later ones stay.
///
/// # Errors
///
/// See [`SchemaError`]. If something exists but differs from the options, nothing is changed.
///
/// # Cancel safety
///
/// If the future is dropped, some objects may have been created. Calling it again creates the rest.
///
/// # Example
///
/// ```no_run
/// # async fn example(session: scylla::client::session::Session)
/// # -> Result<(), bakery_lock::schema::SchemaError> {
/// use bakery_lock::schema::{self, CreateOptions, Replication};
///
/// let options = CreateOptions::new().replication(Replication::Factor(3));
/// let created = schema::create(&session, "bakery_lock", &options).await?;
/// println!("made: {created:?}");
/// # Ok(())
/// # }
/// ```
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
    let mut is_recorded = false;
    if schema.holds_settings(&names) {
        let record = names.record(session, schema.registry_has(PROTOCOL_COLUMN));
        let recorded = settings::known(&names, recorded(&record, &Consistency::Quorum).await?)?;
        is_recorded = recorded.is_some();
        let wanted = options.settings();
        differences.extend(recorded.and_then(|it| settings::difference(&names, &it, &wanted)));
    }
    if !differences.is_empty() {
        return Err(SchemaError::Differs { differences });
    }
    schema.check_replication(&names, options, &datacenters)?;
    if !is_recorded {
        check_measurable(session, options).await?;
    }
    let mut created = Created::default();
    if schema.keyspace.is_none() {
        let Some(replication) = &options.replication else {
            return Err(names.missing_keyspace());
        };
        let cql = Cql::create_keyspace(&names.keyspace, &replication.cql());
        catalog.define(cql).await?;
        created.keyspace = true;
    }
    for names in [&names, &of_registry] {
        let Schema { lock_table, dialect, .. } = Schema::read(&catalog, names).await?;
        if lock_table.is_none() {
            catalog.define(names.lock_table_definition(options.max_ttl, dialect).cql).await?;
            created.tables.push(names.lock_table.to_string());
        }
    }
    type Define = fn(&Identifier, Dialect) -> Definition;
    let beside: [(_, _, Define); 2] = [
        (&names.lock_hosts, &schema.lock_hosts, Definition::lock_hosts),
        (&names.lock_peers, &schema.lock_peers, Definition::lock_peers),
    ];
    for (name, existing, definition) in beside {
        if existing.is_none() {
            catalog.define(definition(&names.keyspace, schema.dialect).cql).await?;
            created.tables.push(name.to_string());
        }
    }
    // Another client may have created it at the same time, with other options.
    let schema = Schema::read(&catalog, &names).await?;
    let differences = schema.differences(&names, options, &datacenters);
    if !differences.is_empty() {
        return Err(SchemaError::Differs { differences });
    }
    for (column, statement) in schema.additions(&names) {
        if column == SEEN_AT_COLUMN {
            // Before the column exists, so that no host is ever wrongly taken for unseen.
            let now = SystemClock::new().unix_micros();
            names.record(session, false).begin_seen(now).await?;
        }
        catalog.define(statement).await?;
        created.columns.push(format!("{LOCK_HOSTS}.{column}"));
    }
    created.settings = settings::record(session, &names, &options.settings()).await?;
    Ok(created)
}

/// The names of the lock tables that clients can use in a keyspace: those whose settings
/// [`create`] has recorded. Empty if there is no such keyspace. Clients of different lock tables do
/// not exclude each other.
///
/// # Errors
///
/// [`SchemaError::Name`], and [`SchemaError::Database`].
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn lock_tables(session: &Session, keyspace: &str) -> Result<Vec<String>, SchemaError> {
    let names = Names::check(keyspace, LOCK_TABLE_DEFAULT)?;
    let catalog = Catalog::new(session);
    let mut tables = Vec::new();
    if !Schema::read(&catalog, &names).await?.holds_settings(&names) {
        return Ok(tables);
    }
    let recorded = names.record(session, false).names().await?;
    for names in recorded.iter().filter_map(|table| Names::check(keyspace, table).ok()) {
        if catalog.table_id(&names.keyspace, &names.lock_table).await?.is_some() {
            tables.push(names.lock_table.to_string());
        }
    }
    Ok(tables)
}

/// Refuses a bound that clocks are never seen to keep, because they can't be read as exactly.
async fn check_measurable(session: &Session, options: &CreateOptions) -> Result<(), SchemaError> {
    let Settings { consistency, max_clock_skew } = options.settings();
    let clocks = Nodes::new(session).probe_clocks(consistency.datacenter()).await;
    match clock_skew::measurable(&clocks) {
        Some(measurable) if measurable > max_clock_skew => {
            Err(SchemaError::unmeasurable(max_clock_skew, measurable))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks all that locks rely on: tables and their options, replication, the quorum, the nodes'
/// clocks and commit logs, and the rights of the session's user to take locks. Changes nothing.
/// Each warning and error says what to do.
///
/// Locks work without the table `lock_peers`, so it is a warning if an earlier version made the
/// keyspace without it, or if its options differ; the advice has the statement that creates it. A
/// table of that name with other columns is an error.
///
/// # Errors
///
/// [`SchemaError::Name`], and [`SchemaError::Database`] when the cluster does not answer at all.
/// Other problems are in the report.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
///
/// # Example
///
/// ```no_run
/// # async fn example(session: scylla::client::session::Session)
/// # -> Result<(), bakery_lock::schema::SchemaError> {
/// use bakery_lock::Consistency;
/// use bakery_lock::schema::{self, LOCK_TABLE_DEFAULT, Severity};
///
/// let report =
///     schema::check(&session, "bakery_lock", LOCK_TABLE_DEFAULT, &Consistency::Quorum).await?;
/// for finding in &report.findings {
///     println!("{finding:?}");
/// }
/// assert!(report.worst() < Severity::Error);
/// # Ok(())
/// # }
/// ```
pub async fn check(
    session: &Session,
    keyspace: &str,
    lock_table: &str,
    consistency: &Consistency,
) -> Result<Report, SchemaError> {
    let names = Names::check(keyspace, lock_table)?;
    let nodes = Nodes::new(session);
    // If the driver's own connection to a node is broken, its old metadata must do.
    let refreshed = timeout(STEP_TIMEOUT, nodes.refresh()).await;
    debug!(?refreshed, "what the driver knows of the nodes");
    let catalog = Catalog::new(session);
    let schema = Schema::read(&catalog, &names).await?;
    let datacenters = datacenters(session);
    let mut findings = schema.findings(&names, consistency, &datacenters);
    findings.extend(nodes::within_reach(&nodes.all(), consistency));
    let max_ttl = schema.max_ttl(&names).unwrap_or(MAX_TTL_DEFAULT);
    let record = names.record(session, schema.registry_has(PROTOCOL_COLUMN));
    let recorded = async {
        let held = schema.holds_settings(&names);
        if held { Some(recorded(&record, consistency).await) } else { None }
    };
    let rights = timeout(STEP_TIMEOUT, catalog.rights());
    let (recorded, reports, rights) =
        tokio::join!(recorded, interrogate(&nodes, schema.dialect), rights);
    if let Ok(Ok(Some(rights))) = rights {
        findings.extend(rights::findings(&names, &rights));
    }
    let mut max_clock_skew = MAX_CLOCK_SKEW;
    if let Some(recorded) = recorded {
        if let Ok(Some(Recorded::Settings(settings))) = &recorded {
            max_clock_skew = settings.max_clock_skew;
        }
        findings.push(settings::finding(&names, max_ttl, recorded, consistency));
    }
    if let Ok(quorum) = schema.quorum(consistency, &datacenters) {
        let answering = nodes::answering(&reports);
        let coverage = nodes.coverage(
            &names.keyspace,
            &names.lock_table,
            consistency.datacenter(),
            quorum.required,
            &answering,
        );
        findings.extend(nodes::liveness(&reports, quorum, coverage));
    }
    let clocks = nodes::clocks_told(&reports, consistency);
    findings.extend(clock_skew::clocks(&clocks, max_clock_skew));
    findings.extend(commit_log::findings(&reports, schema.dialect, max_ttl + max_clock_skew));
    Ok(Report { findings })
}

/// The findings of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// All findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst severity among the findings.
    #[must_use]
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }
}

/// A usable lock table.
#[derive(Clone, Debug)]
pub(crate) struct LockTableFacts {
    /// Its keyspace.
    pub(crate) keyspace: Identifier,
    /// Its name.
    pub(crate) lock_table: Identifier,
    /// Changes when the table is dropped and created again.
    pub(crate) id: Uuid,
    /// Its longest TTL.
    pub(crate) max_ttl: Duration,
    /// How far clocks may differ.
    pub(crate) max_clock_skew: Duration,
    /// What of the keyspace an earlier version may not have made.
    pub(crate) extras: Extras,
    /// Whether the registry has a column for the protocol.
    has_protocol: bool,
}

impl LockTableFacts {
    /// Refuses a store if its table is not the one that was checked, because that was dropped
    /// before the store's statements were prepared.
    pub(crate) async fn confirm(&self, store: &CassandraStore) -> Result<(), SchemaError> {
        if store.lock_table_id().await? == Some(self.id) {
            return Ok(());
        }
        let (keyspace, lock_table) = (self.keyspace.to_string(), self.lock_table.to_string());
        Err(SchemaError::Replaced { keyspace, lock_table })
    }
}

/// Checks all that a client relies on, and refuses what is certainly wrong: tables, replication,
/// the recorded settings, the clocks. A node that does not answer is left out.
pub(crate) async fn read_facts(
    session: &Session,
    keyspace: &str,
    lock_table: &str,
    consistency: &Consistency,
) -> Result<LockTableFacts, SchemaError> {
    let names = Names::check(keyspace, lock_table)?;
    let facts = read_table_facts(session, &names, consistency).await?;
    let (record, nodes) = (names.record(session, facts.has_protocol), Nodes::new(session));
    let datacenter = consistency.datacenter();
    let (recorded, clocks) =
        tokio::join!(record.read_for(consistency), nodes.probe_clocks(datacenter));
    // Nodes drop the requests of a node with a clock that is behind, so a wrong clock may be why
    // the record can't be read: it comes first.
    let bound = match &recorded {
        Ok(Some(Recorded::Settings(settings))) => settings.max_clock_skew,
        Ok(Some(Recorded::OtherProtocol(_)) | None) | Err(_) => *MAX_CLOCK_SKEW_RANGE.end(),
    };
    if let Clocks::Differ(ClockDifference { problems, .. }) = Clocks::judge(&clocks, bound) {
        return Err(SchemaError::ClocksDiffer { problems });
    }
    let settings = settings::agreed(&names, facts.max_ttl, recorded?, consistency)?;
    let facts = LockTableFacts { max_clock_skew: settings.max_clock_skew, ..facts };
    debug!(?facts, %consistency, "the lock table can be used");
    Ok(facts)
}

/// Checks the lock table of the registry's own lock, which is always taken at QUORUM, and with the
/// largest skew that settings may allow: so it needs no settings, and none can be wrong for it. A
/// table whose clients are seen to follow another protocol is refused.
pub(crate) async fn read_registry_facts(
    session: &Session,
    keyspace: &str,
) -> Result<LockTableFacts, SchemaError> {
    let names = Names::check(keyspace, LOCK_TABLE_DEFAULT)?;
    let facts = read_table_facts(session, &names, &Consistency::Quorum).await?;
    let record = names.record(session, facts.has_protocol);
    match recorded(&record, &Consistency::Quorum).await {
        Ok(recorded) => settings::known(&names, recorded).map(drop)?,
        // Without a quorum there is no lock either, and its error says more.
        Err(error) => debug!(?error, "what is recorded of the registry's lock table is unknown"),
    }
    Ok(facts)
}

/// Checks the tables and their replication, and refuses what is wrong.
async fn read_table_facts(
    session: &Session,
    names: &Names,
    consistency: &Consistency,
) -> Result<LockTableFacts, SchemaError> {
    let catalog = Catalog::new(session);
    let mut schema = Schema::read(&catalog, names).await?;
    if schema.missing(names).is_some() {
        // The node asked may not know yet what another one created.
        catalog.settle().await;
        schema = Schema::read(&catalog, names).await?;
    }
    if let Some(missing) = schema.missing(names) {
        return Err(missing);
    }
    let mut problems = schema.findings(names, consistency, &datacenters(session));
    problems.extend(nodes::within_reach(&Nodes::new(session).all(), consistency));
    problems.retain(|finding| finding.severity == Severity::Error);
    let extras = Extras {
        last_seen: schema.registry_has(SEEN_AT_COLUMN),
        peers: schema.lock_peers.is_some(),
    };
    let has_protocol = schema.registry_has(PROTOCOL_COLUMN);
    match (schema.max_ttl(names), schema.lock_table) {
        (Some(max_ttl), Some(table)) if problems.is_empty() => Ok(LockTableFacts {
            keyspace: names.keyspace.clone(),
            lock_table: names.lock_table.clone(),
            id: table.id,
            max_ttl,
            max_clock_skew: *MAX_CLOCK_SKEW_RANGE.end(),
            extras,
            has_protocol,
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

/// What is recorded, read within a time that suffices if nothing is wrong.
async fn recorded(
    record: &SettingsRecord<'_>,
    consistency: &Consistency,
) -> Result<Option<Recorded>, DatabaseError> {
    let read = timeout(STEP_TIMEOUT, record.read_for(consistency)).await;
    read.unwrap_or_else(|_| {
        let slow = format!("no quorum of replicas answered within {STEP_TIMEOUT:?}");
        Err(DatabaseError::new(Outcome::NotApplied, slow))
    })
}

/// Asks all nodes for their clocks and their settings at the same time.
async fn interrogate(nodes: &Nodes<'_>, dialect: Dialect) -> Vec<NodeState> {
    let interrogations = nodes.all().into_iter().map(|node| async move {
        let clock = if node.connected { nodes.clock(&node).await.ok() } else { None };
        let settings = match clock {
            Some(_) => nodes.settings(&node, dialect).await,
            None => Ok(BTreeMap::new()),
        };
        NodeState { node, clock, settings }
    });
    at_the_same_time(interrogations).await
}
