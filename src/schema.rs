//! The keyspace and the tables that locks need: to make them, and to check them.
//!
//! The statements are in the directory `cql` of the package, in two dialects: Apache Cassandra and
//! ScyllaDB differ in table options. Which one a cluster speaks is found out by asking it.
//!
//! The tool `lock-hosts` does from a shell what this module does from a program.

mod definition;
mod nodes;
mod replication;
mod report;
mod settings;
mod tables;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use scylla::client::session::Session;
use thiserror::Error;
use tracing::debug;
use uuid::Uuid;

use self::definition::{Definition, keyspace_cql};
use self::nodes::Witness;
use self::replication::{Quorum, Strategy};
use self::report::Joined;
use crate::error::DatabaseError;
use crate::options::{Consistency, MAX_CLOCK_SKEW, MAX_CLOCK_SKEW_RANGE, Settings};
use crate::store::{
    CassandraStore, Catalog, Dialect, Identifier, KeyspaceFacts, Nodes, SettingsRecord, TableFacts,
};

pub use self::replication::Replication;
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

/// The table of the registry of hosts.
const LOCK_HOSTS: &str = "lock_hosts";

/// How a keyspace and its tables are to be made.
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
    replication: Option<Replication>,
    max_ttl: Duration,
    lock_table: String,
    consistency: Consistency,
    max_clock_skew: Duration,
}

impl CreateOptions {
    /// The defaults: the keyspace is there, the longest TTL is 120 s, the table is `lock_table`,
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

    /// How the keyspace is replicated. Without it, the keyspace has to be there.
    #[must_use]
    pub fn replication(mut self, replication: Replication) -> Self {
        self.replication = Some(replication);
        self
    }

    /// The longest TTL that clients may use: whole seconds, 30 to 600 s.
    ///
    /// It is a property of the table: tombstones are kept for twice as long, and have to outlive
    /// each row that they hide, late writes included. That is why it can't be shorter than 30 s.
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

    /// The consistency that all clients of the lock table have to use; QUORUM by default. It is
    /// recorded; clients that use another one are refused.
    #[must_use]
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// How far clocks may differ, those of the nodes among each other and those of clients from
    /// them: whole milliseconds, 1 to 1499, so that the shortest TTL leaves a lease. 1 s by
    /// default. It is recorded; clients take it from there, shorten their leases by it, and are
    /// refused where clocks differ by more.
    #[must_use]
    pub fn max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.max_clock_skew = max_clock_skew;
        self
    }

    /// What is recorded.
    fn settings(&self) -> Settings {
        Settings { consistency: self.consistency.clone(), max_clock_skew: self.max_clock_skew }
    }

    fn check(&self) -> Result<(), SchemaError> {
        let CreateOptions { max_ttl, max_clock_skew, .. } = *self;
        if max_ttl.subsec_nanos() != 0 || !MAX_TTL_RANGE.contains(&max_ttl) {
            return Err(SchemaError::MaxTtl { max_ttl });
        }
        let fraction = max_clock_skew.subsec_nanos() % 1_000_000;
        if fraction != 0 || !MAX_CLOCK_SKEW_RANGE.contains(&max_clock_skew) {
            return Err(SchemaError::MaxClockSkew { max_clock_skew });
        }
        match &self.replication {
            Some(Replication::Factor(0)) => Err(SchemaError::NoReplicas),
            Some(Replication::PerDatacenter(factors)) if factors.values().all(|n| *n == 0) => {
                Err(SchemaError::NoReplicas)
            }
            Some(Replication::Factor(_) | Replication::PerDatacenter(_)) | None => Ok(()),
        }
    }
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Why keyspace and tables could not be made, checked or used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A name can't be that of a keyspace or a table. Nothing was sent.
    #[error(transparent)]
    Name(#[from] InvalidIdentifier),
    /// The lock table would have the name of the registry of hosts. Nothing was sent.
    #[error("{LOCK_HOSTS:?} is the registry of hosts: use another name for the lock table")]
    ReservedName,
    /// The longest TTL is not in whole seconds, or out of bounds. Nothing was sent.
    #[error("a max_ttl of {max_ttl:?} can't be used: use whole seconds, from 30 to 600")]
    MaxTtl {
        /// The one asked for.
        max_ttl: Duration,
    },
    /// The clock skew is not in whole milliseconds, or out of bounds. Nothing was sent.
    #[error(
        "a max_clock_skew of {max_clock_skew:?} can't be used: use whole milliseconds, from 1 to \
         {}, so that the shortest ttl leaves a lease",
        MAX_CLOCK_SKEW_RANGE.end().as_millis()
    )]
    MaxClockSkew {
        /// The one asked for.
        max_clock_skew: Duration,
    },
    /// A keyspace without replicas was asked for. Nothing was sent.
    #[error("a keyspace needs replicas: use a replication factor of 1 or more, best 3")]
    NoReplicas,
    /// The keyspace does not exist, and it was not said how to replicate a new one. Nothing was
    /// changed.
    #[error(
        "keyspace {keyspace:?} does not exist: run `lock-hosts init --keyspace {keyspace} \
         --replication 3`"
    )]
    MissingKeyspace {
        /// Its name.
        keyspace: String,
    },
    /// A table does not exist. Nothing was changed.
    #[error(
        "table {table:?} does not exist in keyspace {keyspace:?}: run `lock-hosts init --keyspace \
         {keyspace}`, or see whether the names are right"
    )]
    MissingTable {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
    },
    /// What was to be made is there already, but not as it was asked for. It was left as it is, and
    /// nothing else was changed.
    #[error(
        "it exists already, but not as asked for; nothing was changed: {}",
        Joined(differences)
    )]
    Differs {
        /// How it differs, and what to do.
        differences: Vec<Finding>,
    },
    /// With keyspace and tables as they are or would be made, locks would not work, or would let
    /// two in. Nothing was changed.
    #[error("the tables can't be used for locks: {}", Joined(problems))]
    Unfit {
        /// What is wrong, and what to do.
        problems: Vec<Finding>,
    },
    /// Nobody recorded what the clients of the lock table have to agree on. Nothing was changed.
    #[error(
        "the settings of lock table {lock_table:?} are not recorded, so its clients might differ \
         in them: run `lock-hosts init --keyspace {keyspace} --lock-table {lock_table} --max-ttl \
         {}s`, with the --consistency and the --max-clock-skew that all clients shall use",
        max_ttl.as_secs()
    )]
    NotRecorded {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
        /// The longest TTL that the table was made for.
        max_ttl: Duration,
    },
    /// The client's consistency is not the one that is recorded for the lock table, so it would not
    /// exclude the others. Nothing was changed.
    #[error(
        "lock table {lock_table:?} is used with {recorded}, but this client asks for {asked_for}: \
         two that differ could hold one lock; use {recorded}, or {}",
        settings::how_to_change(keyspace, lock_table)
    )]
    OtherConsistency {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
        /// What is recorded.
        recorded: Consistency,
        /// What the client was told to use.
        asked_for: Consistency,
    },
    /// Clocks certainly differ by more than the settings of the lock table allow. Nothing was
    /// changed.
    #[error("the clocks differ by too much for locks: {}", Joined(problems))]
    ClocksDiffer {
        /// Which ones, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped or made again while it was being looked at. Nothing was changed.
    #[error(
        "lock table {lock_table:?} of keyspace {keyspace:?} was dropped or made again just now: do \
         the same again"
    )]
    Replaced {
        /// The keyspace.
        keyspace: String,
        /// The lock table.
        lock_table: String,
    },
    /// The database failed. What was being made may be there in part; making it again completes it.
    #[error("the schema could not be read or changed")]
    Database(#[from] DatabaseError),
}

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
    let settings = settings::agreed(&names, facts.max_ttl, recorded?, consistency)?;
    let max_clock_skew = settings.max_clock_skew;
    let mut problems = nodes::clocks(&clocks, max_clock_skew);
    problems.retain(|finding| finding.severity == Severity::Error);
    if !problems.is_empty() {
        return Err(SchemaError::ClocksDiffer { problems });
    }
    let facts = LockTableFacts { max_clock_skew, ..facts };
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

/// The names of keyspace and tables.
#[derive(Debug)]
struct Names {
    keyspace: Identifier,
    lock_table: Identifier,
    lock_hosts: Identifier,
}

impl Names {
    fn check(keyspace: &str, lock_table: &str) -> Result<Self, SchemaError> {
        if lock_table == LOCK_HOSTS {
            return Err(SchemaError::ReservedName);
        }
        Ok(Names {
            keyspace: Identifier::keyspace(keyspace)?,
            lock_table: Identifier::table(lock_table)?,
            lock_hosts: Identifier::table(LOCK_HOSTS)?,
        })
    }

    /// The record of the lock table's settings.
    fn record<'a>(&'a self, session: &'a Session) -> SettingsRecord<'a> {
        SettingsRecord::new(session, &self.keyspace, &self.lock_table)
    }

    fn lock_table_definition(&self, max_ttl: Duration, dialect: Dialect) -> Definition {
        Definition::lock_table(&self.keyspace, &self.lock_table, max_ttl, dialect)
    }

    fn missing_keyspace(&self) -> SchemaError {
        SchemaError::MissingKeyspace { keyspace: self.keyspace.to_string() }
    }

    fn missing_table(&self, table: &Identifier) -> SchemaError {
        SchemaError::MissingTable { keyspace: self.keyspace.to_string(), table: table.to_string() }
    }
}

/// What is there.
#[derive(Debug)]
struct Schema {
    dialect: Dialect,
    keyspace: Option<KeyspaceFacts>,
    lock_table: Option<TableFacts>,
    lock_hosts: Option<TableFacts>,
}

impl Schema {
    async fn read(catalog: &Catalog<'_>, names: &Names) -> Result<Self, DatabaseError> {
        let dialect = catalog.dialect().await?;
        Ok(Schema {
            dialect,
            keyspace: catalog.keyspace(&names.keyspace).await?,
            lock_table: catalog.table(&names.keyspace, &names.lock_table, dialect).await?,
            lock_hosts: catalog.table(&names.keyspace, &names.lock_hosts, dialect).await?,
        })
    }

    /// What is missing first of all.
    fn missing(&self, names: &Names) -> Option<SchemaError> {
        match (&self.keyspace, &self.lock_table, &self.lock_hosts) {
            (None, _, _) => Some(names.missing_keyspace()),
            (Some(_), None, _) => Some(names.missing_table(&names.lock_table)),
            (Some(_), Some(_), None) => Some(names.missing_table(&names.lock_hosts)),
            (Some(_), Some(_), Some(_)) => None,
        }
    }

    /// How what is there differs from what was asked for.
    fn differences(
        &self,
        names: &Names,
        options: &CreateOptions,
        datacenters: &BTreeMap<String, u32>,
    ) -> Vec<Finding> {
        let mut differences = Vec::new();
        if let (Some(facts), Some(wanted)) = (&self.keyspace, &options.replication) {
            differences.extend(wanted.difference(&names.keyspace, facts, datacenters));
        }
        if let Some(facts) = &self.lock_table {
            let wanted = names.lock_table_definition(options.max_ttl, self.dialect);
            differences.extend(tables::findings(names.lock_table.as_str(), &wanted, facts));
        }
        differences.extend(self.lock_hosts_findings(names));
        differences
    }

    /// What there is to say of keyspace and tables.
    fn findings(
        &self,
        names: &Names,
        consistency: &Consistency,
        datacenters: &BTreeMap<String, u32>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &self.keyspace {
            None => findings.push(tables::refusal("keyspace", &names.missing_keyspace())),
            Some(facts) => {
                findings.extend(tables::keyspace(&names.keyspace, facts));
                findings.push(match self.quorum(consistency, datacenters) {
                    Ok(quorum) => quorum.finding(),
                    Err(found) => replication::unserved(&names.keyspace, found),
                });
            }
        }
        match &self.lock_table {
            None => {
                let missing = names.missing_table(&names.lock_table);
                findings.push(tables::refusal(names.lock_table.as_str(), &missing));
            }
            Some(facts) => findings.extend(self.lock_table_findings(names, facts)),
        }
        match &self.lock_hosts {
            None => {
                let missing = names.missing_table(&names.lock_hosts);
                findings.push(tables::refusal(LOCK_HOSTS, &missing));
            }
            Some(_) => {
                let differences = self.lock_hosts_findings(names);
                findings.extend(tables::or_ok(LOCK_HOSTS, "as it has to be", differences));
            }
        }
        findings
    }

    fn lock_table_findings(&self, names: &Names, facts: &TableFacts) -> Vec<Finding> {
        let subject = names.lock_table.as_str();
        match tables::max_ttl(subject, facts) {
            Err(finding) => vec![finding],
            Ok(max_ttl) => {
                let wanted = names.lock_table_definition(max_ttl, self.dialect);
                let differences = tables::findings(subject, &wanted, facts);
                let fine = format!("as it has to be, for TTLs of up to {} s", max_ttl.as_secs());
                tables::or_ok(subject, &fine, differences)
            }
        }
    }

    fn lock_hosts_findings(&self, names: &Names) -> Vec<Finding> {
        let wanted = Definition::lock_hosts(&names.keyspace, self.dialect);
        let findings = |facts| tables::findings(LOCK_HOSTS, &wanted, facts);
        self.lock_hosts.as_ref().map(findings).unwrap_or_default()
    }

    /// Whether there is a place where settings are recorded.
    fn holds_settings(&self, names: &Names) -> bool {
        let errors = |finding: &Finding| finding.severity == Severity::Error;
        self.lock_hosts.is_some() && !self.lock_hosts_findings(names).iter().any(errors)
    }

    /// Refuses a replication that serves neither the registry, which is always used with a quorum
    /// of all replicas, nor the consistency that is to be recorded.
    fn check_quorum(
        &self,
        names: &Names,
        options: &CreateOptions,
        datacenters: &BTreeMap<String, u32>,
    ) -> Result<(), SchemaError> {
        let strategy = match (&self.keyspace, &options.replication) {
            (Some(facts), _) => Strategy::parse(&facts.replication),
            (None, Some(replication)) => replication.strategy(datacenters),
            (None, None) => return Ok(()),
        };
        for consistency in [&Consistency::Quorum, &options.consistency] {
            if let Err(found) = Quorum::of(&strategy, consistency, datacenters) {
                let problems = vec![replication::unserved(&names.keyspace, found)];
                return Err(SchemaError::Unfit { problems });
            }
        }
        Ok(())
    }

    fn max_ttl(&self, names: &Names) -> Option<Duration> {
        tables::max_ttl(names.lock_table.as_str(), self.lock_table.as_ref()?).ok()
    }

    fn quorum(
        &self,
        consistency: &Consistency,
        datacenters: &BTreeMap<String, u32>,
    ) -> Result<Quorum, String> {
        let facts = self.keyspace.as_ref().ok_or("the keyspace does not exist")?;
        Quorum::of(&Strategy::parse(&facts.replication), consistency, datacenters)
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
