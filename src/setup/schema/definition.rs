//! The schema as the files in `cql/` define it, for creating and comparing tables.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LOCK_HOSTS, LOCK_PEERS};
use crate::store::{Column, Cql, Dialect, Identifier, TableFacts};

/// The column of the registry that says when hosts were seen.
pub(super) const SEEN_AT_COLUMN: &str = "seen_at";

/// The column of the registry that numbers the protocol of a lock table's clients.
pub(super) const PROTOCOL_COLUMN: &str = "protocol";

/// Columns of the registry that tables of an earlier version lack. Without them, only their own
/// feature is missing.
const LATER_COLUMNS: [&str; 2] = [SEEN_AT_COLUMN, PROTOCOL_COLUMN];

/// The required definition of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    keyspace: Identifier,
    table: Identifier,
    /// The statement that creates it.
    pub(super) cql: Cql,
    /// Its columns.
    columns: Vec<Column>,
    /// Its options, as written in the statement.
    options: BTreeMap<String, String>,
    /// Whether locks work without it: an earlier version did not make it.
    pub(super) is_optional: bool,
}

impl Definition {
    /// The lock table, for TTLs of up to `max_ttl`.
    pub(super) fn lock_table(
        keyspace: &Identifier,
        table: &Identifier,
        max_ttl: Duration,
        dialect: Dialect,
    ) -> Self {
        let cql = Cql::create_lock_table(keyspace, table, max_ttl, dialect);
        Self::parse(keyspace, table, cql)
    }

    /// The registry of hosts.
    pub(super) fn lock_hosts(keyspace: &Identifier, dialect: Dialect) -> Self {
        let cql = Cql::create_lock_hosts(keyspace, dialect);
        Self::parse(keyspace, &fixed(LOCK_HOSTS), cql)
    }

    /// The table of peers.
    pub(super) fn lock_peers(keyspace: &Identifier, dialect: Dialect) -> Self {
        let cql = Cql::create_lock_peers(keyspace, dialect);
        let definition = Self::parse(keyspace, &fixed(LOCK_PEERS), cql);
        Definition { is_optional: true, ..definition }
    }

    /// The statement that creates it, on one line, to be shown and copied.
    pub(super) fn cql_on_one_line(&self) -> String {
        let cql = self.cql.as_str().split_whitespace().collect::<Vec<_>>().join(" ");
        cql.trim_end_matches(';').to_owned()
    }

    /// How a table differs. Additional columns and options do not matter.
    pub(super) fn differences(&self, facts: &TableFacts) -> Vec<Difference> {
        let columns = self.columns.iter().filter_map(|wanted| {
            let found = facts.columns.iter().find(|column| column.name == wanted.name);
            (found != Some(wanted) && !(found.is_none() && is_later(wanted)))
                .then(|| Difference::Column { wanted: wanted.clone(), found: found.cloned() })
        });
        let options = self.options.iter().filter_map(|(name, wanted)| {
            let is = |key: &str| facts.options.get(key).map(|found| normal(found));
            let differs = |(key, wanted): (String, String)| is(&key) != Some(normal(&wanted));
            flat(name, wanted).into_iter().any(differs).then(|| Difference::Option {
                name: name.clone(),
                wanted: wanted.clone(),
                found: shown(name, &facts.options),
            })
        });
        columns.chain(options).collect()
    }

    /// The columns that a table of an earlier version lacks.
    pub(super) fn additions<'a>(&'a self, facts: &TableFacts) -> impl Iterator<Item = &'a Column> {
        let lacks = |column: &&Column| !facts.columns.iter().any(|it| it.name == column.name);
        self.columns.iter().filter(|column| is_later(column)).filter(lacks)
    }

    /// The statement that adds a column.
    pub(super) fn addition_cql(&self, column: &Column) -> Cql {
        let kind = if column.kind == "static" { " static" } else { "" };
        let column = format!("{} {}{kind}", column.name, column.cql_type);
        Cql::add_column(&self.keyspace, &self.table, &column)
    }

    /// The statement that sets an option.
    pub(super) fn remedy(&self, option: &str, value: &str) -> String {
        let Definition { keyspace, table, .. } = self;
        format!("ALTER TABLE \"{keyspace}\".\"{table}\" WITH {option} = {value}")
    }

    /// The table of this definition, as the system tables show it.
    #[cfg(test)]
    pub(super) fn facts(&self) -> TableFacts {
        let options = self.options.iter().flat_map(|(name, value)| flat(name, value));
        let (columns, options) = (self.columns.clone(), options.collect());
        TableFacts { id: uuid::Uuid::nil(), columns, options }
    }

    fn parse(keyspace: &Identifier, table: &Identifier, cql: Cql) -> Self {
        let parts =
            cql.as_str().split_once('(').and_then(|(_, rest)| rest.split_once("\n)\nWITH "));
        let (columns, options) = parts.expect("a file in cql/ has columns and options");
        let options = options.trim_end().trim_end_matches(';').split("\n AND ");
        let option = |option: &str| {
            let parts = option.split_once('=');
            let (name, value) = parts.expect("an option in cql/ has a value");
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (name.trim().to_owned(), value)
        };
        let (columns, options) = (parse_columns(columns), options.map(option).collect());
        let (keyspace, table) = (keyspace.clone(), table.clone());
        Definition { keyspace, table, cql, columns, options, is_optional: false }
    }
}

/// How a table differs from its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// A column is missing or differs.
    Column { wanted: Column, found: Option<Column> },
    /// An option has another value. `wanted` is CQL; `found` is for people.
    Option { name: String, wanted: String, found: String },
}

fn is_later(column: &Column) -> bool {
    LATER_COLUMNS.contains(&column.name.as_str())
}

/// The name of a table that every keyspace has.
fn fixed(table: &str) -> Identifier {
    Identifier::table(table).expect("the names of our tables are legal")
}

fn parse_columns(text: &str) -> Vec<Column> {
    let lines = || text.lines().map(|line| line.trim().trim_end_matches(','));
    let key = lines().find_map(|line| line.strip_prefix("PRIMARY KEY ((")?.strip_suffix(')'));
    let (partition, clustering) =
        key.and_then(|key| key.split_once(')')).expect("a table in cql/ has a partition key");
    let partition = partition.split(", ").map(|name| ("partition_key", name));
    let clustering = clustering.split(", ").skip(1).map(|name| ("clustering", name));
    let place = |columns: Vec<(&'static str, &str)>, name: &str| {
        let position = columns.iter().position(|(_, column)| *column == name)?;
        Some((columns[position].0, i32::try_from(position).ok()?))
    };
    let column = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, cql_type) = (words.next()?, words.next()?);
        let (kind, position) = place(partition.clone().collect(), name)
            .or_else(|| place(clustering.clone().collect(), name))
            .unwrap_or((if words.next() == Some("static") { "static" } else { "regular" }, -1));
        let (name, cql_type, kind) = (name.to_owned(), cql_type.to_owned(), kind.to_owned());
        Some(Column { name, cql_type, kind, position })
    };
    lines().filter(|line| !line.starts_with("PRIMARY KEY")).filter_map(column).collect()
}

/// An option by its name, or each entry of a map by itself, as in the system tables.
fn flat(name: &str, value: &str) -> Vec<(String, String)> {
    let unquoted = |text: &str| text.trim().trim_matches('\'').to_owned();
    let Some(map) = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return vec![(name.to_owned(), unquoted(value))];
    };
    let entries = map.split(',').filter_map(|entry| entry.split_once(':'));
    entries.map(|(key, value)| (format!("{name}.{}", unquoted(key)), unquoted(value))).collect()
}

/// The value of an option for people, or all values of a map.
fn shown(name: &str, options: &BTreeMap<String, String>) -> String {
    if let Some(value) = options.get(name) {
        return value.clone();
    }
    let prefix = format!("{name}.");
    let entries = options.iter().filter_map(|(key, value)| {
        let key = key.strip_prefix(&prefix)?;
        Some(format!("{key} {value}"))
    });
    let entries = entries.collect::<Vec<_>>();
    if entries.is_empty() { "not set".to_owned() } else { entries.join(", ") }
}

/// Servers format some values in their own way: ScyllaDB turns `10ms` into `10.00ms`.
fn normal(value: &str) -> String {
    value.to_lowercase().replace(".00", "").replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock_table(dialect: Dialect) -> Definition {
        let keyspace = Identifier::keyspace("K").expect("K is an identifier");
        let table = Identifier::table("lock_table").expect("lock_table is an identifier");
        Definition::lock_table(&keyspace, &table, Duration::from_secs(120), dialect)
    }

    #[test]
    fn statements_hold_no_comment_and_no_placeholder() {
        let keyspace = Identifier::keyspace("K").expect("K is an identifier");
        for dialect in [Dialect::Cassandra, Dialect::Scylla] {
            let tables = [
                lock_table(dialect),
                Definition::lock_hosts(&keyspace, dialect),
                Definition::lock_peers(&keyspace, dialect),
            ];
            let keyspace = Cql::create_keyspace(&keyspace, "{'class': 'X'}");
            for cql in tables.map(|table| table.cql).into_iter().chain([keyspace]) {
                let cql = cql.as_str();
                assert!(cql.contains("\"K\"") && !cql.contains("--"), "{cql}");
                let names = ["keyspace", "table", "max_ttl", "gc_grace", "replication", "dialect"];
                for name in names {
                    assert!(!cql.contains(&format!("{{{name}}}")), "{cql}");
                }
            }
        }
    }

    #[test]
    fn files_are_understood() {
        let table = lock_table(Dialect::Scylla);
        let column = |name: &str| {
            let found = table.columns.iter().find(|column| column.name == name);
            let Column { cql_type, kind, position, .. } = found.expect("the column is there");
            (cql_type.as_str(), kind.as_str(), *position)
        };
        assert_eq!(table.columns.len(), 10);
        assert_eq!(column("object_name"), ("text", "partition_key", 0));
        assert_eq!(column("slot"), ("smallint", "clustering", 3));
        let about = "frozen<tuple<text,text,timestamp>>";
        assert_eq!(column("about"), (about, "regular", -1));
        assert_eq!(column("fence"), ("bigint", "static", -1));
        let mark = table.columns.iter().find(|column| column.name == "mark");
        let added = table.addition_cql(mark.expect("the column is there"));
        assert_eq!(added.as_str(), "ALTER TABLE \"K\".\"lock_table\" ADD mark bigint static");
        let options = table.facts().options;
        let option = |name: &str| options.get(name).map(String::as_str);
        assert_eq!(option("default_time_to_live"), Some("120"));
        assert_eq!(option("gc_grace_seconds"), Some("240"));
        assert_eq!(option("compaction.tombstone_compaction_interval"), Some("60"));
        assert_eq!(option("speculative_retry"), Some("10ms"));
        assert_eq!(option("tombstone_gc.mode"), Some("timeout"));
        let cassandra = lock_table(Dialect::Cassandra).facts().options;
        assert_eq!(cassandra.get("speculative_retry").map(String::as_str), Some("MIN(99p,10ms)"));
        assert!(!cassandra.contains_key("tombstone_gc.mode"));
    }

    #[test]
    fn table_of_peers_has_a_key_of_one_column() {
        let keyspace = Identifier::keyspace("K").expect("K is an identifier");
        let table = Definition::lock_peers(&keyspace, Dialect::Cassandra);
        let columns = table.columns.iter().map(|column| {
            let Column { name, cql_type, kind, position } = column;
            (name.as_str(), cql_type.as_str(), kind.as_str(), *position)
        });
        let expected = [
            ("client", "uuid", "partition_key", 0),
            ("addresses", "frozen<list<text>>", "regular", -1),
            ("public_key", "blob", "regular", -1),
            ("version", "int", "regular", -1),
        ];
        assert_eq!(columns.collect::<Vec<_>>(), expected);
        let shown = "CREATE TABLE IF NOT EXISTS \"K\".\"lock_peers\" ( client uuid, addresses \
                     frozen<list<text>>, public_key blob, version int, PRIMARY KEY \
                     ((client)) ) WITH default_time_to_live = 3600 AND gc_grace_seconds = 7200 AND \
                     caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'} AND \
                     speculative_retry = 'MIN(99p,10ms)'";
        assert_eq!(table.cql_on_one_line(), shown);
    }

    #[test]
    fn registry_of_an_earlier_version_is_completed() {
        let keyspace = Identifier::keyspace("K").expect("K is an identifier");
        let table = Definition::lock_hosts(&keyspace, Dialect::Cassandra);
        let mut facts = table.facts();
        assert_eq!(table.additions(&facts).count(), 0);
        facts.columns.retain(|column| column.name != SEEN_AT_COLUMN);
        assert_eq!(table.differences(&facts), []);
        let additions: Vec<_> = table.additions(&facts).collect();
        let [added] = additions.as_slice() else { panic!("one column is new: {additions:?}") };
        let cql = "ALTER TABLE \"K\".\"lock_hosts\" ADD seen_at timestamp";
        assert_eq!(table.addition_cql(added).as_str(), cql);
        // A column of the same name but another type is no older table.
        let other = Column { cql_type: "int".into(), ..(*added).clone() };
        facts.columns.push(other);
        assert_eq!((table.additions(&facts).count(), table.differences(&facts).len()), (0, 1));
    }

    #[test]
    fn differences_are_found() {
        let table = lock_table(Dialect::Scylla);
        let mut facts = table.facts();
        let further = Column {
            name: "further".into(),
            cql_type: "int".into(),
            kind: "regular".into(),
            position: -1,
        };
        facts.columns.push(further);
        facts.options.insert("speculative_retry".into(), "10.00ms".into());
        assert_eq!(table.differences(&facts), []);

        facts.columns.retain(|column| column.name != "state");
        facts.options.insert("gc_grace_seconds".into(), "0".into());
        facts.options.remove("tombstone_gc.mode");
        facts.options.insert("compaction.min_threshold".into(), "4".into());
        facts.options.remove("compaction.unchecked_tombstone_compaction");
        facts.options.remove("compaction.tombstone_compaction_interval");
        let names = table.differences(&facts).into_iter().map(|difference| match difference {
            Difference::Column { wanted, found: None } => format!("no {}", wanted.name),
            Difference::Column { wanted, found: Some(_) } => wanted.name,
            Difference::Option { name, found, .. } => format!("{name} is {found}"),
        });
        let expected = [
            "no state",
            "compaction is class SizeTieredCompactionStrategy, min_threshold 4",
            "gc_grace_seconds is 0",
            "tombstone_gc is not set",
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let remedy = "ALTER TABLE \"K\".\"lock_table\" WITH gc_grace_seconds = 240";
        assert_eq!(table.remedy("gc_grace_seconds", "240"), remedy);
    }
}
