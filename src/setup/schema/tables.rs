//! Findings about the keyspace and the tables.

use std::time::Duration;

use super::definition::{Definition, Difference, PROTOCOL_COLUMN};
use super::{MAX_TTL_RANGE, SchemaError};
use crate::finding::{Finding, Severity};
use crate::store::{Column, Identifier, KeyspaceFacts, TableFacts};

/// The option that holds the longest TTL.
const MAX_TTL: &str = "default_time_to_live";

/// The finding about a keyspace, except for its replication.
pub(super) fn keyspace(name: &Identifier, facts: &KeyspaceFacts) -> Option<Finding> {
    (!facts.durable_writes).then(|| {
        let found = "durable_writes is off, so a node that restarts forgets acknowledged rows";
        let advice = format!("run ALTER KEYSPACE \"{name}\" WITH durable_writes = true");
        Finding::error(format!("keyspace {name}"), found, advice)
    })
}

/// An error as a finding: the text before the first colon is what was found, the rest is advice.
pub(super) fn refusal(subject: impl Into<String>, error: &SchemaError) -> Finding {
    let text = error.to_string();
    let (found, advice) = text.split_once(": ").unwrap_or((&text, ""));
    Finding::error(subject, found, advice)
}

/// The longest TTL of a lock table, or why it can't be one.
pub(super) fn max_ttl(subject: &str, facts: &TableFacts) -> Result<Duration, Finding> {
    let found = option(facts, MAX_TTL);
    let max_ttl = Duration::from_secs(found.parse().unwrap_or(0));
    if MAX_TTL_RANGE.contains(&max_ttl) {
        return Ok(max_ttl);
    }
    let found = format!("default_time_to_live is {found}, so it was not made for locks");
    let (least, most) = (MAX_TTL_RANGE.start().as_secs(), MAX_TTL_RANGE.end().as_secs());
    let advice = format!(
        "use another table, or drop this one and run `lock-hosts init`; it sets {least} to {most} s"
    );
    Err(Finding::error(subject, found, advice))
}

/// How a table differs from its definition, and what to do.
pub(super) fn findings(subject: &str, definition: &Definition, facts: &TableFacts) -> Vec<Finding> {
    let finding = |difference| match difference {
        Difference::Column { wanted, found } => {
            let is_absent = found.is_none();
            let is = found.map_or_else(
                || "is missing".to_owned(),
                |found| format!("is a {} {} column", found.kind, found.cql_type),
            );
            let remedy = if definition.is_optional {
                "use another keyspace; or, if no other program needs the table, drop it and run \
                 `lock-hosts init`"
                    .to_owned()
            } else if is_absent {
                let addition = definition.addition_cql(&wanted);
                format!(
                    "use another keyspace or lock table; or, if an earlier version made this one, \
                     stop all its clients and run {addition}"
                )
            } else {
                "use another keyspace or lock table".to_owned()
            };
            let (kind, cql_type) = (wanted.kind, wanted.cql_type);
            let advice = format!("it must be a {kind} {cql_type} column: {remedy}");
            Finding::error(subject, format!("column {} {is}", wanted.name), advice)
        }
        Difference::Option { name, wanted, found } => {
            let (severity, why) = judge(&name, &wanted, &found);
            // Without the table there are locks, and no row of it lets two in.
            let most = if definition.is_optional { Severity::Warning } else { Severity::Error };
            let severity = severity.min(most);
            let remedy = definition.remedy(&name, &wanted);
            let advice = match name.as_str() {
                MAX_TTL if !definition.is_optional => {
                    format!("use a max_ttl of {found} s, or stop all clients and run {remedy}")
                }
                _ => format!("run {remedy}"),
            };
            let found = format!("{name} is {found}, not {wanted}, so {why}");
            Finding { severity, ..Finding::warning(subject, found, advice) }
        }
    };
    definition.differences(facts).into_iter().map(finding).collect()
}

/// The finding about a column that an earlier version did not have.
pub(super) fn addition(subject: &str, column: &Column) -> Finding {
    let found = format!("column {} is missing, as an earlier version made the table", column.name);
    let advice = if column.name == PROTOCOL_COLUMN {
        "run `lock-hosts init`, which adds it; without it no table can say that its clients follow \
         another protocol"
    } else {
        "run `lock-hosts init`, which adds it, and then build clients again; without it hosts that \
         are in use can't be told from others"
    };
    Finding::warning(subject, found, advice)
}

/// The finding about a table that an earlier version did not make.
pub(super) fn missing_addition(subject: &str, definition: &Definition) -> Finding {
    let advice = format!(
        "run `lock-hosts init`, which adds it, or {}; and then build clients again; without it \
         they can't pass locks on to other processes",
        definition.cql_on_one_line()
    );
    Finding::warning(subject, "does not exist, as an earlier version made the keyspace", advice)
}

/// The findings, or one that all is well if there are none.
pub(super) fn or_ok(subject: &str, fine: &str, findings: Vec<Finding>) -> Vec<Finding> {
    if findings.is_empty() { vec![Finding::ok(subject, fine)] } else { findings }
}

fn option<'a>(facts: &'a TableFacts, name: &str) -> &'a str {
    facts.options.get(name).map_or("not set", String::as_str)
}

/// The severity and the effect of a wrong option.
fn judge(option: &str, wanted: &str, found: &str) -> (Severity, &'static str) {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    match option {
        MAX_TTL => (Severity::Error, "rows live for another time than they should"),
        "gc_grace_seconds" if number(found) < number(wanted) => {
            (Severity::Error, "deleted rows may come back")
        }
        "tombstone_gc" if found.contains("immediate") => {
            (Severity::Error, "deleted rows may come back")
        }
        "speculative_retry" => (Severity::Warning, "a dead node slows down reads"),
        "caching" => (Severity::Warning, "rows that never stay are cached"),
        _ => (Severity::Warning, "dead rows slow down reads for longer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Dialect;

    const SECOND: Duration = Duration::from_secs(1);

    fn definition(max_ttl: Duration) -> Definition {
        let keyspace = Identifier::keyspace("K").expect("K is an identifier");
        let table = Identifier::table("t").expect("t is an identifier");
        Definition::lock_table(&keyspace, &table, max_ttl, Dialect::Cassandra)
    }

    fn facts(option: &str, value: &str) -> TableFacts {
        let mut facts = definition(120 * SECOND).facts();
        facts.options.insert(option.to_owned(), value.to_owned());
        facts
    }

    #[test]
    fn table_tells_its_longest_ttl() {
        let read = |value| max_ttl("t", &facts("default_time_to_live", value));
        assert_eq!(read("30"), Ok(30 * SECOND));
        assert_eq!(read("600"), Ok(600 * SECOND));
        for value in ["0", "29", "601"] {
            let finding = read(value).expect_err("this is no lock table");
            assert_eq!(finding.severity, Severity::Error);
        }
    }

    #[test]
    fn unsafe_settings_are_errors_and_slow_ones_warnings() {
        for (option, value, severity) in [
            ("default_time_to_live", "60", Severity::Error),
            ("gc_grace_seconds", "239", Severity::Error),
            ("gc_grace_seconds", "864000", Severity::Warning),
            ("speculative_retry", "99p", Severity::Warning),
            ("compaction.class", "UnifiedCompactionStrategy", Severity::Warning),
            ("caching.rows_per_partition", "ALL", Severity::Warning),
        ] {
            let found = findings("t", &definition(120 * SECOND), &facts(option, value));
            let [finding] = found.as_slice() else { panic!("one finding, not {found:?}") };
            assert_eq!(finding.severity, severity, "{finding}");
            let advice = finding.advice.as_deref().expect("what is wrong has an advice");
            assert!(advice.contains("run ALTER TABLE \"K\".\"t\" WITH "), "{advice}");
        }
        let mut facts = definition(120 * SECOND).facts();
        facts.columns.retain(|column| column.name != "state");
        let found = findings("t", &definition(120 * SECOND), &facts);
        assert_eq!(found.len(), 1);
        assert!(found[0].found.starts_with("column state is missing"), "{}", found[0]);
        assert_eq!(found[0].severity, Severity::Error);
    }

    #[test]
    fn optional_table_options_are_no_errors() {
        let keyspace = Identifier::keyspace("K").expect("K is an identifier");
        let definition = Definition::lock_peers(&keyspace, Dialect::Cassandra);
        for (option, value) in [("default_time_to_live", "0"), ("gc_grace_seconds", "0")] {
            let mut facts = definition.facts();
            facts.options.insert(option.to_owned(), value.to_owned());
            let found = findings("lock_peers", &definition, &facts);
            let [finding] = found.as_slice() else { panic!("one finding, not {found:?}") };
            assert_eq!(finding.severity, Severity::Warning, "{finding}");
            let advice = finding.advice.as_deref().expect("what is wrong has an advice");
            assert!(advice.starts_with("run ALTER TABLE \"K\".\"lock_peers\" WITH "), "{advice}");
        }
        let mut facts = definition.facts();
        facts.columns.retain(|column| column.name != "public_key");
        let found = findings("lock_peers", &definition, &facts);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Error, "{}", found[0]);
        assert!(found[0].to_string().contains("drop it and run `lock-hosts init`"), "{}", found[0]);
    }

    #[test]
    fn missing_parts_are_reported_with_advice() {
        let finding = refusal("keyspace", &SchemaError::MissingKeyspace { keyspace: "k".into() });
        assert_eq!(finding.found, "keyspace \"k\" does not exist");
        let advice = finding.advice.as_deref().expect("what is wrong has an advice");
        assert!(advice.starts_with("run `lock-hosts init --keyspace k"), "{advice}");
    }
}
