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
mod tables;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use scylla::client::session::Session;
use thiserror::Error;
use tracing::debug;

use self::definition::{Definition, keyspace_cql};
use self::nodes::Witness;
use self::replication::{Quorum, Strategy};
use self::report::Joined;
use crate::error::DatabaseError;
use crate::options::Consistency;
use crate::store::{Catalog, Dialect, Identifier, KeyspaceFacts, Nodes, TableFacts};

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
}

impl CreateOptions {
    /// The defaults: the keyspace is there, the longest TTL is 120 s, the table is `lock_table`.
    #[must_use]
    pub fn new() -> Self {
        CreateOptions {
            replication: None,
            max_ttl: MAX_TTL_DEFAULT,
            lock_table: LOCK_TABLE_DEFAULT.to_owned(),
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

    fn check(&self) -> Result<(), SchemaError> {
        let max_ttl = self.max_ttl;
        if max_ttl.subsec_nanos() != 0 || !MAX_TTL_RANGE.contains(&max_ttl) {
            return Err(SchemaError::MaxTtl { max_ttl });
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
    /// Keyspace and tables are there, but locks would not work, or would let two in. Nothing was
    /// changed.
    #[error("the tables can't be used for locks: {}", Joined(problems))]
    Unfit {
        /// What is wrong, and what to do.
        problems: Vec<Finding>,
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
}

/// Makes the keyspace, if `options` say how to replicate it, and the tables, as far as they are
/// missing; then waits until the nodes agree on them. What is there as asked for stays as it is.
///
/// The tables are the lock table, the registry of hosts, and `lock_table` if the lock table has
/// another name: the registry's own lock is in that one, whatever table the hosts use.
///
/// Run it from one place at a time: Cassandra can't make one table twice at the same moment.
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
    let schema = Schema::read(&catalog, &names).await?;
    let differences = schema.differences(&names, options, &datacenters(session));
    if !differences.is_empty() {
        return Err(SchemaError::Differs { differences });
    }
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
    let differences = schema.differences(&names, options, &datacenters(session));
    if differences.is_empty() { Ok(created) } else { Err(SchemaError::Differs { differences }) }
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
    let mut findings = schema.findings(&names, consistency, &datacenters(session));
    let witnesses = interrogate(&nodes, schema.dialect).await;
    if let Ok(quorum) = schema.quorum(consistency, &datacenters(session)) {
        let datacenter = match consistency {
            Consistency::Quorum => None,
            Consistency::LocalQuorum(name) => Some(name.as_str()),
        };
        let answering = nodes::answering(&witnesses);
        let coverage = nodes.coverage(
            &names.keyspace,
            &names.lock_table,
            datacenter,
            quorum.required,
            &answering,
        );
        findings.extend(nodes::liveness(&witnesses, quorum, coverage));
    }
    findings.extend(nodes::clocks(&witnesses));
    let max_ttl = schema.max_ttl(&names).unwrap_or(MAX_TTL_DEFAULT);
    findings.extend(nodes::commit_logs(&witnesses, max_ttl));
    Ok(Report { findings })
}

/// A lock table that can be used.
#[derive(Clone, Debug)]
pub(crate) struct LockTableFacts {
    /// Its keyspace.
    pub(crate) keyspace: Identifier,
    /// Its name.
    pub(crate) lock_table: Identifier,
    /// The longest TTL that it was made for.
    pub(crate) max_ttl: Duration,
}

/// Looks at what can be told without asking each node, and refuses what is wrong.
pub(crate) async fn inspect(
    session: &Session,
    keyspace: &str,
    lock_table: &str,
    consistency: &Consistency,
) -> Result<LockTableFacts, SchemaError> {
    let names = Names::check(keyspace, lock_table)?;
    let catalog = Catalog::new(session);
    let mut schema = Schema::read(&catalog, &names).await?;
    if schema.missing(&names).is_some() {
        // The node that was asked may not know yet what another one made.
        catalog.settle().await;
        schema = Schema::read(&catalog, &names).await?;
    }
    if let Some(missing) = schema.missing(&names) {
        return Err(missing);
    }
    let mut problems = schema.findings(&names, consistency, &datacenters(session));
    problems.retain(|finding| finding.severity == Severity::Error);
    match (schema.max_ttl(&names), schema.lock_table) {
        (Some(max_ttl), Some(table)) if problems.is_empty() => {
            debug!(keyspace, lock_table, id = %table.id, ?max_ttl, "the lock table can be used");
            let Names { keyspace, lock_table, .. } = names;
            Ok(LockTableFacts { keyspace, lock_table, max_ttl })
        }
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
            None => findings.push(tables::missing("keyspace", &names.missing_keyspace())),
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
                findings.push(tables::missing(names.lock_table.as_str(), &missing));
            }
            Some(facts) => findings.extend(self.lock_table_findings(names, facts)),
        }
        match &self.lock_hosts {
            None => {
                let missing = names.missing_table(&names.lock_hosts);
                findings.push(tables::missing(LOCK_HOSTS, &missing));
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
