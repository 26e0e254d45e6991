//! What nodes may forget of what they acknowledged, by the settings of their commit logs.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use super::nodes::NodeState;
use crate::finding::Finding;
use crate::store::{DatabaseError, Dialect};

/// What a node forgets besides the rows on a lost or restored disk, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Forgets {
    /// Nothing.
    Nothing(String),
    /// What is not on disk when its machine crashes or loses power.
    WithMachine(String),
    /// The same, and also when only its process is killed or crashes.
    WithProcess(String),
}

/// Findings about commit logs. A node that forgets an acknowledged row admits two holders, for as
/// long as rows live at most.
pub(super) fn findings(
    reports: &[NodeState],
    dialect: Dialect,
    rows_live: Duration,
) -> Vec<Finding> {
    let answering = reports.iter().filter(|report| report.clock.is_some());
    let finding = |report: &NodeState| {
        let subject = format!("commit log of {}", report.node.address);
        let (forgets, grant) = match &report.settings {
            Ok(settings) => (judge(settings, dialect), None),
            Err(error) => (unread(error, dialect), error.missing_permission()),
        };
        let (found, cause) = match forgets {
            Forgets::Nothing(found) => return Finding::ok(subject, found),
            Forgets::WithMachine(found) => (found, ""),
            Forgets::WithProcess(found) => (found, "whose process was killed or crashed, or "),
        };
        let synced = synced_modes(dialect);
        let mut advice = format!(
            "set commitlog_sync to {synced}, or keep a node {cause}that lost power, was restored \
             from a snapshot or came back with an empty disk out for {rows_live:?}"
        );
        if let Some(grant) = grant {
            advice = format!("run `{grant}`, or ask as another user; {advice}");
        }
        Finding::warning(subject, found, advice)
    };
    answering.map(finding).collect()
}

/// The values of `commitlog_sync` with which a write is on disk before it is acknowledged. ScyllaDB
/// takes any value but `batch` for `periodic`.
fn synced_modes(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Cassandra => "group or batch",
        Dialect::Scylla => "batch",
    }
}

fn judge(settings: &BTreeMap<String, String>, dialect: Dialect) -> Forgets {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let killed = "so a killed process forgets acknowledged rows";
    match (setting("commitlog_sync"), dialect) {
        (None, _) => unknown(dialect, "the node does not say its commitlog_sync".to_owned()),
        (Some(sync @ "batch"), _) | (Some(sync @ "group"), Dialect::Cassandra) => {
            Forgets::Nothing(format!("commitlog_sync is {sync}"))
        }
        (Some("group"), Dialect::Scylla) => Forgets::WithProcess(format!(
            "commitlog_sync is group, which ScyllaDB takes for periodic, {killed}"
        )),
        (Some(sync), Dialect::Scylla) => {
            Forgets::WithProcess(format!("commitlog_sync is {sync}, not batch, {killed}"))
        }
        (Some(sync), Dialect::Cassandra) => match held_in_process(settings) {
            Some(why) => Forgets::WithProcess(format!(
                "commitlog_sync is {sync}, not batch or group, and {why}, {killed}"
            )),
            None => Forgets::WithMachine(format!("commitlog_sync is {sync}, not batch or group")),
        },
    }
}

/// Why what is not synced yet is only in the memory of Cassandra's process, if it is. By default it
/// is in a mapped file, which the system writes after the process was killed, too.
fn held_in_process(settings: &BTreeMap<String, String>) -> Option<String> {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    // The former name is that of Cassandra 4.0.
    let compression = ["commitlog_compression", "commitlog_compression.class_name"];
    if let Some(class) = compression.into_iter().find_map(setting) {
        return Some(format!("commitlog_compression is {class}"));
    }
    // All versions have it under this name, too.
    if setting("transparent_data_encryption_options_enabled") == Some("true") {
        return Some("the commit log is encrypted".to_owned());
    }
    // Since Cassandra 5.0. `auto` is `direct` where the disk allows it.
    match setting("commitlog_disk_access_mode") {
        Some(mode @ ("direct" | "auto")) => Some(format!("commitlog_disk_access_mode is {mode}")),
        Some(_) | None => None,
    }
}

/// What is not known is taken for the worst that the database does by itself.
fn unknown(dialect: Dialect, found: String) -> Forgets {
    match dialect {
        Dialect::Cassandra => Forgets::WithMachine(found),
        Dialect::Scylla => Forgets::WithProcess(found),
    }
}

fn unread(error: &DatabaseError, dialect: Dialect) -> Forgets {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    unknown(dialect, format!("commitlog_sync can't be read: {cause}"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::finding::Severity;
    use crate::store::{ClockReading, Node, Outcome};

    fn report(
        clock: Option<ClockReading>,
        settings: Result<BTreeMap<String, String>, DatabaseError>,
    ) -> NodeState {
        let node = Node {
            host_id: Uuid::nil(),
            address: "10.0.0.1:9042".to_owned(),
            datacenter: "dc1".to_owned(),
            connected: clock.is_some(),
        };
        NodeState { node, clock, settings }
    }

    fn finding(dialect: Dialect, settings: &[(&str, &str)]) -> Finding {
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let report = report(Some(ClockReading::OURS), Ok(settings.collect()));
        let found = findings(&[report], dialect, Duration::from_secs(121));
        <[Finding; 1]>::try_from(found).expect("each node has one finding")[0].clone()
    }

    const KILLED: &str = "so a killed process forgets acknowledged rows";

    // Goal: a node that may forget rows is warned of: on ScyllaDB each but with `batch`, on
    // Cassandra each but with `batch` or `group`; and the warning says whether killing the process
    // is enough, and when to keep the node out.
    // Method: the settings as the versions report them.
    #[test]
    fn commit_log_that_forgets_is_warned_of() {
        use Dialect::{Cassandra, Scylla};
        let lz4 = "LZ4Compressor";
        let access = "commitlog_disk_access_mode";
        for (dialect, sync, other, severity, is_process) in [
            (Cassandra, "group", None, Severity::Ok, false),
            (Cassandra, "batch", Some(("commitlog_compression", lz4)), Severity::Ok, false),
            (Cassandra, "periodic", None, Severity::Warning, false),
            (Cassandra, "periodic", Some(("commitlog_compression", lz4)), Severity::Warning, true),
            (
                Cassandra,
                "periodic",
                Some(("commitlog_compression.class_name", lz4)),
                Severity::Warning,
                true,
            ),
            (
                Cassandra,
                "periodic",
                Some(("transparent_data_encryption_options_enabled", "true")),
                Severity::Warning,
                true,
            ),
            (
                Cassandra,
                "periodic",
                Some(("transparent_data_encryption_options_enabled", "false")),
                Severity::Warning,
                false,
            ),
            (Cassandra, "periodic", Some((access, "direct")), Severity::Warning, true),
            (Cassandra, "periodic", Some((access, "auto")), Severity::Warning, true),
            (Cassandra, "periodic", Some((access, "legacy")), Severity::Warning, false),
            (Scylla, "batch", None, Severity::Ok, false),
            (Scylla, "group", None, Severity::Warning, true),
            (Scylla, "periodic", None, Severity::Warning, true),
        ] {
            let settings = [Some(("commitlog_sync", sync)), other];
            let settings: Vec<_> = settings.into_iter().flatten().collect();
            let finding = finding(dialect, &settings);
            assert_eq!(finding.severity, severity, "{dialect:?}: {finding}");
            assert_eq!(finding.found.ends_with(KILLED), is_process, "{dialect:?}: {finding}");
            let Some(advice) = finding.advice else { continue };
            let kept_out = advice.contains("whose process was killed or crashed");
            assert_eq!(kept_out, is_process, "{dialect:?}: {advice}");
            assert!(advice.ends_with("out for 121s"), "{advice}");
            let set = if dialect == Scylla { "batch" } else { "group or batch" };
            assert!(advice.starts_with(&format!("set commitlog_sync to {set}, or ")), "{advice}");
        }
    }

    #[test]
    fn unknown_settings_cause_warnings() {
        for dialect in [Dialect::Cassandra, Dialect::Scylla] {
            let silent = finding(dialect, &[]);
            assert_eq!(silent.severity, Severity::Warning, "{silent}");
            let refused = DatabaseError::new(Outcome::NotApplied, "no permission");
            let refused = report(Some(ClockReading::OURS), Err(refused));
            let found = findings(&[refused], dialect, Duration::from_secs(121));
            assert_eq!(found[0].found, "commitlog_sync can't be read: no permission");
            assert_eq!(found[0].severity, Severity::Warning);
        }
        let dead = report(None, Ok(BTreeMap::new()));
        assert_eq!(findings(&[dead], Dialect::Cassandra, Duration::from_secs(121)), []);
    }
}
