//! The existing keyspace and tables, and findings about them.

use std::collections::BTreeMap;
use std::time::Duration;

use scylla::client::session::Session;

use super::definition::Definition;
use super::options::CreateOptions;
use super::replication::{self, Quorum, Strategy};
use super::{LOCK_HOSTS, LOCK_PEERS, SchemaError, tables};
use crate::finding::{Finding, Severity};
use crate::options::Consistency;
use crate::store::{
    Catalog, Column, Cql, DatabaseError, Dialect, Identifier, KeyspaceFacts, SettingsRecord,
    TableFacts,
};

/// The names of the keyspace and the tables.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) keyspace: Identifier,
    pub(super) lock_table: Identifier,
    pub(super) lock_hosts: Identifier,
    pub(super) lock_peers: Identifier,
}

impl Names {
    pub(super) fn check(keyspace: &str, lock_table: &str) -> Result<Self, SchemaError> {
        if [LOCK_HOSTS, LOCK_PEERS].contains(&lock_table) {
            return Err(SchemaError::ReservedName);
        }
        Ok(Names {
            keyspace: Identifier::keyspace(keyspace)?,
            lock_table: Identifier::table(lock_table)?,
            lock_hosts: Identifier::table(LOCK_HOSTS)?,
            lock_peers: Identifier::table(LOCK_PEERS)?,
        })
    }

    /// The record of the lock table's settings, in a registry with a column for the protocol or
    /// without.
    pub(super) fn record<'a>(
        &'a self,
        session: &'a Session,
        has_protocol: bool,
    ) -> SettingsRecord<'a> {
        SettingsRecord::new(session, &self.keyspace, &self.lock_table, has_protocol)
    }

    pub(super) fn lock_table_definition(&self, max_ttl: Duration, dialect: Dialect) -> Definition {
        Definition::lock_table(&self.keyspace, &self.lock_table, max_ttl, dialect)
    }

    pub(super) fn missing_keyspace(&self) -> SchemaError {
        SchemaError::MissingKeyspace { keyspace: self.keyspace.to_string() }
    }

    pub(super) fn missing_table(&self, table: &Identifier) -> SchemaError {
        SchemaError::MissingTable { keyspace: self.keyspace.to_string(), table: table.to_string() }
    }
}

/// The existing keyspace and tables.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) dialect: Dialect,
    pub(super) keyspace: Option<KeyspaceFacts>,
    pub(super) lock_table: Option<TableFacts>,
    pub(super) lock_hosts: Option<TableFacts>,
    pub(super) lock_peers: Option<TableFacts>,
}

impl Schema {
    pub(super) async fn read(catalog: &Catalog<'_>, names: &Names) -> Result<Self, DatabaseError> {
        let dialect = catalog.dialect().await?;
        Ok(Schema {
            dialect,
            keyspace: catalog.keyspace(&names.keyspace, dialect).await?,
            lock_table: catalog.table(&names.keyspace, &names.lock_table, dialect).await?,
            lock_hosts: catalog.table(&names.keyspace, &names.lock_hosts, dialect).await?,
            lock_peers: catalog.table(&names.keyspace, &names.lock_peers, dialect).await?,
        })
    }

    /// The error for the first missing object that locks need.
    pub(super) fn missing(&self, names: &Names) -> Option<SchemaError> {
        match (&self.keyspace, &self.lock_table, &self.lock_hosts) {
            (None, _, _) => Some(names.missing_keyspace()),
            (Some(_), None, _) => Some(names.missing_table(&names.lock_table)),
            (Some(_), Some(_), None) => Some(names.missing_table(&names.lock_hosts)),
            (Some(_), Some(_), Some(_)) => None,
        }
    }

    /// How existing objects differ from the options.
    pub(super) fn differences(
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
        differences.extend(self.lock_peers_differences(names));
        differences
    }

    /// Findings about the keyspace and the tables.
    pub(super) fn findings(
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
            Some(facts) => {
                let mut differences = self.lock_hosts_findings(names);
                let wanted = Definition::lock_hosts(&names.keyspace, self.dialect);
                let additions = wanted.additions(facts);
                differences.extend(additions.map(|column| tables::addition(LOCK_HOSTS, column)));
                findings.extend(tables::or_ok(LOCK_HOSTS, "as it should be", differences));
            }
        }
        findings.extend(self.lock_peers_findings(names));
        findings
    }

    fn lock_table_findings(&self, names: &Names, facts: &TableFacts) -> Vec<Finding> {
        let subject = names.lock_table.as_str();
        match tables::max_ttl(subject, facts) {
            Err(finding) => vec![finding],
            Ok(max_ttl) => {
                let wanted = names.lock_table_definition(max_ttl, self.dialect);
                let differences = tables::findings(subject, &wanted, facts);
                let fine = format!("as it should be, for TTLs of up to {} s", max_ttl.as_secs());
                tables::or_ok(subject, &fine, differences)
            }
        }
    }

    fn lock_hosts_findings(&self, names: &Names) -> Vec<Finding> {
        let wanted = Definition::lock_hosts(&names.keyspace, self.dialect);
        let findings = |facts| tables::findings(LOCK_HOSTS, &wanted, facts);
        self.lock_hosts.as_ref().map(findings).unwrap_or_default()
    }

    fn lock_peers_findings(&self, names: &Names) -> Vec<Finding> {
        match (&self.lock_hosts, &self.lock_peers) {
            // What creates the registry creates this table too.
            (None, None) => Vec::new(),
            (Some(_), None) => {
                let wanted = Definition::lock_peers(&names.keyspace, self.dialect);
                vec![tables::missing_addition(LOCK_PEERS, &wanted)]
            }
            (_, Some(_)) => {
                let differences = self.lock_peers_differences(names);
                tables::or_ok(LOCK_PEERS, "as it should be", differences)
            }
        }
    }

    fn lock_peers_differences(&self, names: &Names) -> Vec<Finding> {
        let wanted = Definition::lock_peers(&names.keyspace, self.dialect);
        let findings = |facts| tables::findings(LOCK_PEERS, &wanted, facts);
        self.lock_peers.as_ref().map(findings).unwrap_or_default()
    }

    /// What completes a registry of an earlier version: names of columns, and statements.
    pub(super) fn additions(&self, names: &Names) -> Vec<(String, Cql)> {
        let wanted = Definition::lock_hosts(&names.keyspace, self.dialect);
        let Some(facts) = &self.lock_hosts else {
            return Vec::new();
        };
        let statement = |column: &Column| (column.name.clone(), wanted.addition_cql(column));
        wanted.additions(facts).map(statement).collect()
    }

    /// Whether there is a registry with this column.
    pub(super) fn registry_has(&self, column: &str) -> bool {
        let has = |facts: &TableFacts| facts.columns.iter().any(|it| it.name == column);
        self.lock_hosts.as_ref().is_some_and(has)
    }

    /// Whether there is a table that can hold settings.
    pub(super) fn holds_settings(&self, names: &Names) -> bool {
        let errors = |finding: &Finding| finding.severity == Severity::Error;
        self.lock_hosts.is_some() && !self.lock_hosts_findings(names).iter().any(errors)
    }

    /// Refuses a replication that names unknown data centres, or does not serve the registry, which
    /// always uses a quorum of all replicas, or the consistency to be recorded; and one with which
    /// the keyspace could be made, but no table in it.
    pub(super) fn check_replication(
        &self,
        names: &Names,
        options: &CreateOptions,
        datacenters: &BTreeMap<String, u32>,
    ) -> Result<(), SchemaError> {
        let strategy = match (&self.keyspace, &options.replication) {
            (Some(facts), _) => Strategy::parse(&facts.replication),
            (None, Some(replication)) => {
                let problems = replication.unknown(datacenters);
                if !problems.is_empty() {
                    return Err(SchemaError::Unfit { problems });
                }
                replication.strategy(datacenters)
            }
            (None, None) => return Ok(()),
        };
        for consistency in [&Consistency::Quorum, &options.consistency] {
            if let Err(found) = Quorum::of(&strategy, consistency, datacenters) {
                let problems = vec![replication::unserved(&names.keyspace, found)];
                return Err(SchemaError::Unfit { problems });
            }
        }
        let replicas = Quorum::of(&strategy, &Consistency::Quorum, datacenters).ok();
        match replicas.and_then(|replicas| replicas.unplaced(&names.keyspace)) {
            Some(finding) if self.uses_tablets() => {
                Err(SchemaError::Unfit { problems: vec![finding] })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the keyspace is spread over tablets, or would be if it was created: ScyllaDB does so
    /// unless it is configured otherwise, which a client may not be allowed to read.
    fn uses_tablets(&self) -> bool {
        match &self.keyspace {
            Some(facts) => facts.tablets,
            None => self.dialect == Dialect::Scylla,
        }
    }

    pub(super) fn max_ttl(&self, names: &Names) -> Option<Duration> {
        tables::max_ttl(names.lock_table.as_str(), self.lock_table.as_ref()?).ok()
    }

    pub(super) fn quorum(
        &self,
        consistency: &Consistency,
        datacenters: &BTreeMap<String, u32>,
    ) -> Result<Quorum, String> {
        let facts = self.keyspace.as_ref().ok_or("the keyspace does not exist")?;
        Quorum::of(&Strategy::parse(&facts.replication), consistency, datacenters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::schema::Replication;

    // Goal: `init` refuses more replicas than nodes before it writes anything, where it could make
    // the keyspace but no table: with tablets. Elsewhere they are a warning of a check.
    // Method: three replicas on two nodes, which make a quorum; a new keyspace, and existing ones.
    #[test]
    fn more_replicas_than_nodes_are_refused_with_tablets() {
        use Dialect::{Cassandra, Scylla};
        let names = Names::check("k", "t").expect("these are names");
        let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        let existing = |tablets| {
            let replication = [("class", class), ("dc1", "3")];
            let replication = replication.map(|(key, value)| (key.to_owned(), value.to_owned()));
            Some(KeyspaceFacts { replication: replication.into(), durable_writes: true, tablets })
        };
        for (dialect, keyspace, nodes, is_refused) in [
            (Scylla, None, 2, true),
            (Scylla, None, 3, false),
            (Scylla, existing(true), 2, true),
            (Scylla, existing(true), 3, false),
            (Scylla, existing(false), 2, false),
            (Cassandra, None, 2, false),
            (Cassandra, existing(false), 2, false),
        ] {
            let case = format!("{dialect:?}, {keyspace:?}, {nodes} nodes");
            let (lock_table, lock_hosts, lock_peers) = (None, None, None);
            let schema = Schema { dialect, keyspace, lock_table, lock_hosts, lock_peers };
            let options = CreateOptions::new().replication(Replication::Factor(3));
            let datacenters = BTreeMap::from([("dc1".to_owned(), nodes)]);
            let checked = schema.check_replication(&names, &options, &datacenters);
            assert_eq!(checked.is_err(), is_refused, "{case}");
            let Err(error) = checked else { continue };
            let message = error.to_string();
            assert!(message.contains("3 replicas need a node each"), "{message}");
        }
    }
}
