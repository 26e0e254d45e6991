//! All CQL that is sent to a cluster. What is not among the [`Template`]s here can't be sent:
//! nothing else makes a [`Cql`], and `scripts/check-layers` refuses other ways to the driver.
//!
//! `tests/cql/statements.snap` shows each statement as it is sent. A test compares it with them.

use std::fmt;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;

use super::catalog::Dialect;
use super::settings::{LAST_SEEN, LOCK_TABLES};
use crate::core::bakery::row_name;
use crate::store::{HOSTS_PER_PAGE, Identifier, PEER_TTL_MAX};

/// The options of all tables, in each dialect.
const CASSANDRA: &str = include_str!("../../../cql/cassandra.cql");
const SCYLLA: &str = include_str!("../../../cql/scylla.cql");

/// What rows say.
macro_rules! columns {
    () => {
        "row_name, host, client, slot, state, about"
    };
}

/// Reads rows of an object, with its static columns.
macro_rules! read {
    () => {
        concat!(
            "SELECT ",
            columns!(),
            ", last_release, WRITETIME(last_release) AS released_stamp, mark \
             FROM \"{keyspace}\".\"{table}\" WHERE object_name = ?"
        )
    };
}

/// Reads rows with their objects and times. A row is written whole, so one column shows the times
/// of both.
macro_rules! read_with_times {
    () => {
        concat!(
            "SELECT object_name, ",
            columns!(),
            ", WRITETIME(state) AS stamp, TTL(state) AS ttl_seconds FROM \"{keyspace}\".\"{table}\""
        )
    };
}

/// All rows of a contender, in `WHERE`.
macro_rules! all_rows {
    () => {
        "row_name IN ('{entering}', '{revoked}')"
    };
}

/// One contender, in `WHERE`.
macro_rules! of_contender {
    () => {
        "host = ? AND client = ? AND slot = ?"
    };
}

/// Defines the templates, and the list of all of them for the test.
macro_rules! templates {
    ($($(#[$attribute:meta])* $name:ident: $text:expr,)*) => {
        /// A statement whose names are still to be filled in, each as `{name}`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Template {
            $($(#[$attribute])* $name,)*
        }

        impl Template {
            #[cfg(test)]
            const ALL: &'static [Template] = &[$(Template::$name,)*];

            fn text(self) -> &'static str {
                match self {
                    $(Template::$name => $text,)*
                }
            }
        }
    };
}

templates! {
    // The lock table.
    /// Rows are written whole, and a write never names `fence`: a null would be a tombstone on it.
    InsertRow: concat!(
        "INSERT INTO \"{keyspace}\".\"{table}\" (object_name, ",
        columns!(),
        ") VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
    ),
    /// By the full primary key: nothing else of the object may be deleted, but by a sweep.
    DeleteRow: concat!(
        "DELETE FROM \"{keyspace}\".\"{table}\" USING TIMESTAMP ? \
         WHERE object_name = ? AND row_name = ? AND ",
        of_contender!()
    ),
    WriteLastRelease: "UPDATE \"{keyspace}\".\"{table}\" USING TIMESTAMP ? AND TTL ? \
                       SET last_release = ? \
                       WHERE object_name = ?",
    ReadObject: read!(),
    ReadContender: concat!(read!(), " AND ", all_rows!(), " AND ", of_contender!()),
    ReadEntering: concat!(read!(), " AND row_name = '{entering}' AND ", of_contender!()),
    /// Rows by their keys.
    ReadFront: concat!(read!(), " AND (row_name, host, client, slot) IN ?"),
    /// All rows of an object with their times.
    ReadWithTimes: concat!(read_with_times!(), " WHERE object_name = ?"),
    /// All rows of several objects, with their times.
    ReadEach: concat!(read_with_times!(), " WHERE object_name IN ?"),
    /// Rows of many objects with their times, page by page.
    ReadPart: concat!(
        read_with_times!(),
        " WHERE token(object_name) > ? AND token(object_name) <= ?"
    ),
    ReadStamps: concat!(
        "SELECT row_name, state, WRITETIME(state) FROM \"{keyspace}\".\"{table}\" \
         WHERE object_name = ? AND ",
        all_rows!(),
        " AND ",
        of_contender!()
    ),
    /// Distinct, or it would return the fence once for each row of the partition.
    ReadFence: "SELECT DISTINCT object_name, fence FROM \"{keyspace}\".\"{table}\" \
                WHERE object_name = ?",
    /// With a TTL of its own, or it would expire with the rows, by the table's default.
    WriteFence: "UPDATE \"{keyspace}\".\"{table}\" USING TIMESTAMP ? AND TTL ? SET fence = ? \
                 WHERE object_name = ?",
    /// By the table's default it would expire with the rows. A TTL of 0 is none: a client may stop
    /// for any time between the mark and the deletes.
    WriteMark: "UPDATE \"{keyspace}\".\"{table}\" USING TIMESTAMP ? AND TTL 0 SET mark = ? \
                WHERE object_name = ?",
    /// With its write stamp. A partition with only a static part is one row, too.
    ReadMark: "SELECT mark, WRITETIME(mark) FROM \"{keyspace}\".\"{table}\" \
               WHERE object_name = ? LIMIT 1",
    /// The rows between two keys, without those. One relation on all clustering columns with both
    /// bounds: ScyllaDB takes no other mixture.
    SweepRange: "DELETE FROM \"{keyspace}\".\"{table}\" USING TIMESTAMP ? \
                 WHERE object_name = ? AND (row_name, host, client, slot) > (?, ?, ?, ?) \
                 AND (row_name, host, client, slot) < (?, ?, ?, ?)",

    // The registry of hosts.
    ReadHost: "SELECT host_name, number, added_at, removed_at, WRITETIME(number), seen_at \
               FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = ? AND host_name = ?",
    /// In a registry of an earlier version, which has no column `seen_at`.
    ReadHostWithoutLastSeen: "SELECT host_name, number, added_at, removed_at, WRITETIME(number) \
                     FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = ? AND host_name = ?",
    ReadHosts: "SELECT host_name, number, added_at, removed_at, WRITETIME(number), seen_at \
                FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = ? AND host_name > ? \
                LIMIT {hosts_per_page}",
    /// In a registry of an earlier version, which has no column `seen_at`.
    ReadHostsWithoutLastSeen: "SELECT host_name, number, added_at, removed_at, WRITETIME(number) \
                      FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = ? AND host_name > ? \
                      LIMIT {hosts_per_page}",
    /// Distinct, or it would return `next` once for each host.
    ReadNext: "SELECT DISTINCT registry, next FROM \"{keyspace}\".\"lock_hosts\" \
               WHERE registry = ?",
    RaiseNext: "UPDATE \"{keyspace}\".\"lock_hosts\" USING TIMESTAMP ? SET next = ? \
                WHERE registry = ?",
    WriteHost: "INSERT INTO \"{keyspace}\".\"lock_hosts\" \
                (registry, host_name, number, added_at, removed_at) VALUES (?, ?, ?, ?, ?) \
                USING TIMESTAMP ?",
    /// Writes only its own cell, so that it can't undo a removal; and no row marker, so that it
    /// makes no row either.
    WriteLastSeen: "UPDATE \"{keyspace}\".\"lock_hosts\" USING TIMESTAMP ? SET seen_at = ? \
                    WHERE registry = ? AND host_name = ?",
    BeginLastSeen: "INSERT INTO \"{keyspace}\".\"lock_hosts\" (registry, host_name, added_at) \
                     VALUES (?, ?, ?) USING TIMESTAMP ?",
    ReadSeenSince: "SELECT added_at FROM \"{keyspace}\".\"lock_hosts\" \
                         WHERE registry = '{lock_tables}' AND host_name = '{last_seen}'",

    // The settings of lock tables.
    ReadSettings: "SELECT consistency, datacenter, max_clock_skew_ms, protocol \
                   FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = ? AND host_name = ?",
    /// In a registry of an earlier version, which has no column `protocol`.
    ReadSettingsWithoutProtocol: "SELECT consistency, datacenter, max_clock_skew_ms \
                                  FROM \"{keyspace}\".\"lock_hosts\" \
                                  WHERE registry = ? AND host_name = ?",
    ListSettings: "SELECT host_name FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = ?",
    WriteSettings: "INSERT INTO \"{keyspace}\".\"lock_hosts\" \
                    (registry, host_name, consistency, datacenter, max_clock_skew_ms, protocol) \
                    VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",

    // The table of peers.
    WritePeer: "INSERT INTO \"{keyspace}\".\"lock_peers\" \
                (client, addresses, public_key, version) VALUES (?, ?, ?, ?) \
                USING TIMESTAMP ? AND TTL ?",
    ReadPeer: "SELECT addresses, public_key, version, WRITETIME(public_key) \
               FROM \"{keyspace}\".\"lock_peers\" WHERE client = ?",
    DeletePeer: "DELETE FROM \"{keyspace}\".\"lock_peers\" USING TIMESTAMP ? WHERE client = ?",

    // What system tables say.
    FindDialect: "SELECT table_name FROM system_schema.tables \
                  WHERE keyspace_name = 'system_schema' AND table_name = 'scylla_tables'",
    ReadKeyspace: "SELECT replication, durable_writes FROM system_schema.keyspaces \
                   WHERE keyspace_name = ?",
    /// On ScyllaDB: a keyspace with a row and a number there is spread over tablets.
    ReadTablets: "SELECT initial_tablets FROM system_schema.scylla_keyspaces \
                  WHERE keyspace_name = ?",
    ReadTable: "SELECT id, default_time_to_live, gc_grace_seconds, speculative_retry, compaction, \
                caching FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
    ReadColumns: "SELECT column_name, type, kind, position FROM system_schema.columns \
                  WHERE keyspace_name = ? AND table_name = ?",
    /// On ScyllaDB, whose system tables hold how tombstones are collected in a form of their own.
    DescribeTable: "DESCRIBE TABLE \"{keyspace}\".\"{table}\"",
    ReadTableId: "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
    /// An identifier needs no quoting, and with values the driver would prepare this each time.
    ReadTableIdOfNode: "SELECT id FROM system_schema.tables WHERE keyspace_name = '{keyspace}' \
                        AND table_name = '{table}'",
    /// `now()` never goes back; `currentTimestamp()` does, with the clock.
    ReadClock: "SELECT toUnixTimestamp(currentTimestamp()) FROM system.local",
    /// The settings of a Cassandra node: whole, since their names differ from version to version.
    ReadNodeSettings: "SELECT name, value FROM system_views.settings",
    /// The settings of a ScyllaDB node.
    ReadNodeConfig: "SELECT name, value FROM system.config WHERE name = 'commitlog_sync'",
    ListRoles: "LIST ROLES",
    ListRolesOf: "LIST ROLES OF {role}",
    ListPermissionsOf: "LIST ALL PERMISSIONS OF {role}",

    // The schema.
    CreateKeyspace: include_str!("../../../cql/keyspace.cql"),
    CreateLockTable: include_str!("../../../cql/lock_table.cql"),
    CreateLockHosts: include_str!("../../../cql/lock_hosts.cql"),
    CreateLockPeers: include_str!("../../../cql/lock_peers.cql"),
    AddColumn: "ALTER TABLE \"{keyspace}\".\"{table}\" ADD {column}",
}

impl Template {
    /// The statement with these names and values, which are put in as they are.
    pub(super) fn fill(self, values: &[(&str, &str)]) -> Cql {
        let hosts_per_page = HOSTS_PER_PAGE.to_string();
        let always = [
            ("entering", row_name::ENTERING),
            ("revoked", row_name::REVOKED),
            ("lock_tables", LOCK_TABLES),
            ("last_seen", LAST_SEEN),
            ("hosts_per_page", hosts_per_page.as_str()),
        ];
        let text = without_comments(self.text());
        let fill = |text: String, (name, value): &(&str, &str)| {
            text.replace(&format!("{{{name}}}"), value)
        };
        Cql(always.iter().chain(values).fold(text, fill))
    }
}

/// The text of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cql(String);

impl Cql {
    /// Creates the keyspace. `replication` is a map in CQL.
    pub(crate) fn create_keyspace(keyspace: &Identifier, replication: &str) -> Self {
        let values = [("keyspace", keyspace.as_str()), ("replication", replication)];
        Template::CreateKeyspace.fill(&values)
    }

    /// Creates the lock table, for TTLs of up to `max_ttl`.
    pub(crate) fn create_lock_table(
        keyspace: &Identifier,
        table: &Identifier,
        max_ttl: Duration,
        dialect: Dialect,
    ) -> Self {
        let ([max_ttl, gc_grace], options) = (lifetimes(max_ttl), options(dialect));
        Template::CreateLockTable.fill(&[
            ("keyspace", keyspace.as_str()),
            ("table", table.as_str()),
            ("max_ttl", max_ttl.as_str()),
            ("gc_grace", gc_grace.as_str()),
            ("dialect", options.as_str()),
        ])
    }

    /// Creates the registry of hosts.
    pub(crate) fn create_lock_hosts(keyspace: &Identifier, dialect: Dialect) -> Self {
        let options = options(dialect);
        let values = [("keyspace", keyspace.as_str()), ("dialect", options.as_str())];
        Template::CreateLockHosts.fill(&values)
    }

    /// Creates the table of peers.
    pub(crate) fn create_lock_peers(keyspace: &Identifier, dialect: Dialect) -> Self {
        let ([max_ttl, gc_grace], options) = (lifetimes(PEER_TTL_MAX), options(dialect));
        Template::CreateLockPeers.fill(&[
            ("keyspace", keyspace.as_str()),
            ("max_ttl", max_ttl.as_str()),
            ("gc_grace", gc_grace.as_str()),
            ("dialect", options.as_str()),
        ])
    }

    /// Adds a column, given as in a definition: its name, its type, and `static` if it is.
    pub(crate) fn add_column(keyspace: &Identifier, table: &Identifier, column: &str) -> Self {
        let (keyspace, table) = (keyspace.as_str(), table.as_str());
        let values = [("keyspace", keyspace), ("table", table), ("column", column)];
        Template::AddColumn.fill(&values)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// A statement with this text that is not prepared.
    #[expect(clippy::disallowed_methods, reason = "the text is a template")]
    pub(super) fn unprepared(self) -> Statement {
        Statement::new(self.0)
    }
}

impl fmt::Display for Cql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sends a statement that is not prepared.
#[expect(clippy::disallowed_methods, reason = "the text is a template")]
pub(super) async fn query(
    session: &Session,
    statement: Statement,
    values: impl SerializeRow,
) -> Result<QueryResult, ExecutionError> {
    session.query_unpaged(statement, values).await
}

/// Prepares a statement on the nodes.
#[expect(clippy::disallowed_methods, reason = "the text is a template")]
pub(super) async fn prepare(
    session: &Session,
    cql: Cql,
) -> Result<PreparedStatement, PrepareError> {
    session.prepare(cql.0).await
}

/// The options of all tables.
fn options(dialect: Dialect) -> String {
    let options = match dialect {
        Dialect::Cassandra => CASSANDRA,
        Dialect::Scylla => SCYLLA,
    };
    without_comments(options).trim().to_owned()
}

/// How long rows and tombstones live at most, in seconds. A tombstone must outlive every cell that
/// it hides: the longest TTL, the clock skew and the time in flight of a late write.
fn lifetimes(max_ttl: Duration) -> [String; 2] {
    [max_ttl, 2 * max_ttl].map(|time| time.as_secs().to_string())
}

fn without_comments(cql: &str) -> String {
    let lines = cql.lines().filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A template as it is sent: in each dialect, if that matters.
    fn sent(template: Template) -> Vec<Cql> {
        let of_peers = template == Template::CreateLockPeers;
        let [max_ttl, gc_grace] =
            lifetimes(if of_peers { PEER_TTL_MAX } else { Duration::from_secs(120) });
        let filled = |dialect| {
            template.fill(&[
                ("keyspace", "bakery_lock"),
                ("table", "lock_table"),
                ("max_ttl", max_ttl.as_str()),
                ("gc_grace", gc_grace.as_str()),
                ("dialect", options(dialect).as_str()),
                ("replication", "{'class': 'NetworkTopologyStrategy', 'replication_factor': '3'}"),
                ("column", "fence bigint static"),
                ("role", "\"app\""),
            ])
        };
        let mut sent = [Dialect::Cassandra, Dialect::Scylla].map(filled).to_vec();
        sent.dedup();
        sent
    }

    // Goal: no statement changes or comes without being seen in review, and no name is left open in
    // one; `CONTRIBUTING.md` says how to accept a change.
    // Method: compare all templates, filled in, with those that were last accepted.
    #[test]
    fn all_statements_are_accepted() {
        let mut text = String::new();
        for template in Template::ALL {
            for cql in sent(*template) {
                let cql = cql.as_str().trim().trim_end_matches(';');
                let is_open = |(start, _): (usize, &str)| {
                    cql[start + 1..].starts_with(|first: char| first.is_ascii_lowercase())
                };
                assert!(!cql.match_indices('{').any(is_open), "{template:?} lacks a value: {cql}");
                text.push_str(&format!("-- {template:?}\n{cql};\n\n"));
            }
        }
        insta::with_settings!({
            prepend_module_to_snapshot => false,
            omit_expression => true,
            snapshot_path => "../../../tests/cql",
        }, {
            insta::assert_snapshot!("statements", text);
        });
    }
}
