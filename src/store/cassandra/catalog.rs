//! What a cluster's system tables say about a keyspace and its tables, and changes to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::serialize::row::SerializeRow;
use scylla::statement::unprepared::Statement;
use scylla::statement::{self, SerialConsistency};
use scylla::value::CqlValue;
use tracing::{debug, warn};
use uuid::Uuid;

use super::classify::classify;
use super::codec::{decode, decode_columns};
use super::cql::{Cql, Template, query};
use crate::store::permission::quoted;
use crate::store::{DatabaseError, Identifier};

/// How long a read or a change of the schema may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long one node may take to answer about the schema before the next one is asked too.
const HEDGE_PAUSE: Duration = Duration::from_millis(500);

/// How long nodes may take to agree on the schema before we continue without. During an upgrade of
/// the cluster they never agree.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The dialect of CQL that a cluster speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Apache Cassandra.
    Cassandra,
    /// ScyllaDB.
    Scylla,
}

/// A keyspace as it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceFacts {
    /// The replication strategy and its options.
    pub(crate) replication: BTreeMap<String, String>,
    /// Whether writes go through the commit log.
    pub(crate) durable_writes: bool,
    /// Whether its tables are spread over tablets, as only ScyllaDB does.
    pub(crate) tablets: bool,
}

/// A table as it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableFacts {
    /// Changes when the table is dropped and made again.
    pub(crate) id: Uuid,
    /// Its columns, in no particular order.
    pub(crate) columns: Vec<Column>,
    /// Its options; each option of a map by itself, as in `compaction.class`.
    pub(crate) options: BTreeMap<String, String>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its CQL type.
    pub(crate) cql_type: String,
    /// Its role: `partition_key`, `clustering`, `regular` or `static`.
    pub(crate) kind: String,
    /// Its place within the key; -1 outside of it.
    pub(crate) position: i32,
}

/// What a database user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The role that it logs in as.
    pub(crate) role: String,
    /// Its permissions, those of roles granted to it too: each with what it is for.
    pub(crate) permissions: Vec<(String, String)>,
}

/// Reads and changes the schema through a session.
#[derive(Debug)]
pub(crate) struct Catalog<'a> {
    session: &'a Session,
}

impl<'a> Catalog<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Catalog { session }
    }

    /// Which dialect the cluster speaks.
    pub(crate) async fn dialect(&self) -> Result<Dialect, DatabaseError> {
        let rows = self.rows::<(String,)>(Template::FindDialect.fill(&[]), ()).await?;
        Ok(if rows.is_empty() { Dialect::Cassandra } else { Dialect::Scylla })
    }

    /// A keyspace, if it exists.
    pub(crate) async fn keyspace(
        &self,
        keyspace: &Identifier,
        dialect: Dialect,
    ) -> Result<Option<KeyspaceFacts>, DatabaseError> {
        let (read, key) = (Template::ReadKeyspace.fill(&[]), (keyspace.as_str(),));
        let mut rows = self.rows::<(HashMap<String, String>, bool)>(read, key).await?;
        let Some((replication, durable_writes)) = rows.pop() else {
            return Ok(None);
        };
        let replication = replication.into_iter().collect();
        let tablets = match dialect {
            Dialect::Cassandra => false,
            Dialect::Scylla => {
                let rows = self.rows::<(Option<i32>,)>(Template::ReadTablets.fill(&[]), key);
                rows.await?.into_iter().any(|(tablets,)| tablets.is_some())
            }
        };
        Ok(Some(KeyspaceFacts { replication, durable_writes, tablets }))
    }

    /// A table, if it exists.
    pub(crate) async fn table(
        &self,
        keyspace: &Identifier,
        table: &Identifier,
        dialect: Dialect,
    ) -> Result<Option<TableFacts>, DatabaseError> {
        type Row = (Uuid, i32, i32, String, HashMap<String, String>, HashMap<String, String>);
        let (read, key) = (Template::ReadTable.fill(&[]), (keyspace.as_str(), table.as_str()));
        let mut rows = self.rows::<Row>(read, key).await?;
        let Some((id, ttl, gc_grace, speculative_retry, compaction, caching)) = rows.pop() else {
            return Ok(None);
        };
        let mut options = BTreeMap::from([
            ("default_time_to_live".to_owned(), ttl.to_string()),
            ("gc_grace_seconds".to_owned(), gc_grace.to_string()),
            ("speculative_retry".to_owned(), speculative_retry),
        ]);
        options.extend(flat("compaction", compaction));
        options.extend(flat("caching", caching));
        if dialect == Dialect::Scylla {
            options.extend(self.tombstone_gc(keyspace, table).await?);
        }
        Ok(Some(TableFacts { id, columns: self.columns(keyspace, table).await?, options }))
    }

    /// The present id of a table, if it exists.
    pub(crate) async fn table_id(
        &self,
        keyspace: &Identifier,
        table: &Identifier,
    ) -> Result<Option<Uuid>, DatabaseError> {
        let (read, key) = (Template::ReadTableId.fill(&[]), (keyspace.as_str(), table.as_str()));
        let rows = self.rows::<(Uuid,)>(read, key).await?;
        Ok(rows.into_iter().next().map(|(id,)| id))
    }

    /// Changes the schema, and waits until the nodes agree on it.
    pub(crate) async fn define(&self, cql: Cql) -> Result<(), DatabaseError> {
        let result = query(self.session, statement(cql), ()).await;
        result.map_err(|error| classify(&error))?;
        self.settle().await;
        Ok(())
    }

    /// Waits for a limited time until the nodes agree on the schema.
    pub(crate) async fn settle(&self) {
        let agreement = self.session.await_schema_agreement();
        match tokio::time::timeout(AGREEMENT_TIMEOUT, agreement).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(%error, "the nodes can't be asked whether schemas agree"),
            Err(_) => warn!("the nodes do not agree on the schema; going on without"),
        }
    }

    /// What the session's user may do. `None` if the database restricts no user or not this one, or
    /// does not say.
    pub(crate) async fn rights(&self) -> Result<Option<Rights>, DatabaseError> {
        told(self.known_rights().await)
    }

    async fn known_rights(&self) -> Result<Option<Rights>, DatabaseError> {
        let roles = self.listed(Template::ListRoles.fill(&[]), ["role", "super"]).await?;
        let is_super = |role: &[CqlValue; 2]| role[1].as_boolean() == Some(true);
        let Some(role) = self.login_role(&roles).await? else {
            return Ok(None);
        };
        if roles.iter().any(is_super) {
            return Ok(None);
        }
        let list = Template::ListPermissionsOf.fill(&[("role", quoted(&role).as_str())]);
        let permissions = self.listed(list, ["resource", "permission"]).await?.into_iter();
        let texts = permissions.map(|[resource, permission]| {
            Some((resource.into_string()?, permission.into_string()?))
        });
        Ok(Some(Rights { role, permissions: texts.flatten().collect() }))
    }

    /// The role that the session logged in as: the one that the others of its user are granted to.
    async fn login_role(&self, roles: &[[CqlValue; 2]]) -> Result<Option<String>, DatabaseError> {
        for role in roles.iter().filter_map(|[role, _]| role.as_text()) {
            let list = Template::ListRolesOf.fill(&[("role", quoted(role).as_str())]);
            if self.listed(list, ["role"]).await?.len() == roles.len() {
                return Ok(Some(role.clone()));
            }
        }
        Ok(None)
    }

    /// Some columns of a list, whose others differ from version to version.
    async fn listed<const N: usize>(
        &self,
        cql: Cql,
        columns: [&str; N],
    ) -> Result<Vec<[CqlValue; N]>, DatabaseError> {
        let result = query(self.session, statement(cql), ()).await;
        decode_columns(result.map_err(|error| classify(&error))?, columns)
    }

    async fn columns(
        &self,
        keyspace: &Identifier,
        table: &Identifier,
    ) -> Result<Vec<Column>, DatabaseError> {
        let (read, key) = (Template::ReadColumns.fill(&[]), (keyspace.as_str(), table.as_str()));
        let rows = self.rows::<(String, String, String, i32)>(read, key).await?.into_iter();
        let column = |(name, cql_type, kind, position): (_, String, _, _)| {
            // As the files in `cql/` write them.
            let cql_type = cql_type.replace(", ", ",");
            Column { name, cql_type, kind, position }
        };
        Ok(rows.map(column).collect())
    }

    /// How ScyllaDB collects tombstones.
    async fn tombstone_gc(
        &self,
        keyspace: &Identifier,
        table: &Identifier,
    ) -> Result<Option<(String, String)>, DatabaseError> {
        let names = [("keyspace", keyspace.as_str()), ("table", table.as_str())];
        let describe = Template::DescribeTable.fill(&names);
        let rows = self.rows::<(String, String, String, String)>(describe, ()).await?;
        let mode = rows.iter().find_map(|(_, _, _, description)| tombstone_gc_mode(description));
        Ok(mode.map(|mode| ("tombstone_gc.mode".to_owned(), mode.to_owned())))
    }

    async fn rows<R>(&self, cql: Cql, values: impl SerializeRow) -> Result<Vec<R>, DatabaseError>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let mut statement = statement(cql);
        statement.set_execution_profile_handle(Some(self.hedged()));
        let result = query(self.session, statement, values).await;
        decode(result.map_err(|error| classify(&error))?)
    }

    /// The session's own profile, which also asks another node if one is slow to answer: a frozen
    /// node stays connected for up to a minute. For reads only, which every node answers.
    fn hedged(&self) -> ExecutionProfileHandle {
        let policy =
            SimpleSpeculativeExecutionPolicy { max_retry_count: 2, retry_interval: HEDGE_PAUSE };
        let profile = self.session.get_default_execution_profile_handle().pointee_to_builder();
        profile.speculative_execution_policy(Some(Arc::new(policy))).build().into_handle()
    }
}

/// The listed rights; `None` if the database refuses that: it has no logins, or a user may
/// do all.
fn told<T>(rights: Result<Option<T>, DatabaseError>) -> Result<Option<T>, DatabaseError> {
    match rights {
        Err(error) if error.is_permanent() => {
            debug!(?error, "the database does not tell the rights of its user");
            Ok(None)
        }
        rights => rights,
    }
}

/// A statement on the system tables, which each node keeps for itself, or on the schema.
fn statement(cql: Cql) -> Statement {
    let mut statement = cql.unprepared();
    statement.set_consistency(statement::Consistency::One);
    statement.set_serial_consistency(Some(SerialConsistency::Serial));
    statement.set_request_timeout(Some(TIMEOUT));
    statement.set_is_idempotent(true);
    statement
}

/// The options of a map, with class names as they are written in CQL.
fn flat(
    option: &str,
    map: HashMap<String, String>,
) -> impl Iterator<Item = (String, String)> + use<'_> {
    map.into_iter().map(move |(key, value)| {
        let value = match key.as_str() {
            "class" => value.rsplit('.').next().unwrap_or_default().to_owned(),
            _ => value,
        };
        (format!("{option}.{key}"), value)
    })
}

fn tombstone_gc_mode(description: &str) -> Option<&str> {
    let (_, options) = description.split_once("tombstone_gc")?;
    let (map, _) = options.split_once('}')?;
    let (_, mode) = map.split_once("'mode'")?;
    mode.split('\'').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_found_in_a_description() {
        let description = "CREATE TABLE k.t (a int PRIMARY KEY) WITH comment = ''\n    AND \
                           tombstone_gc = {'mode': 'timeout', 'propagation_delay': '3600'};";
        assert_eq!(tombstone_gc_mode(description), Some("timeout"));
        assert_eq!(tombstone_gc_mode("CREATE TABLE k.t (a int PRIMARY KEY);"), None);
    }

    #[test]
    fn classes_lose_their_package() {
        let class = "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy".to_owned();
        let map = HashMap::from([("class".to_owned(), class)]);
        let expected = ("compaction.class".to_owned(), "SizeTieredCompactionStrategy".to_owned());
        assert_eq!(flat("compaction", map).collect::<Vec<_>>(), [expected]);
    }
}
