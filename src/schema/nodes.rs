//! Whether the nodes of the cluster can be relied on.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::replication::Quorum;
use super::report::Finding;
use crate::error::DatabaseError;
use crate::options::MAX_CLOCK_SKEW;
use crate::store::{ClockReading, Coverage, Node};

/// A node, and what it said of itself.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) node: Node,
    /// Its clock; `None` when it does not answer.
    pub(super) clock: Option<ClockReading>,
    /// How it brings its commit log to disk, if it says.
    pub(super) commitlog_sync: Result<Option<String>, DatabaseError>,
}

/// The nodes that answer.
pub(super) fn answering(witnesses: &[Witness]) -> BTreeSet<Uuid> {
    let answering = witnesses.iter().filter(|witness| witness.clock.is_some());
    answering.map(|witness| witness.node.host_id).collect()
}

/// What there is to say about nodes that do not answer, and the quorums without them.
pub(super) fn liveness(
    witnesses: &[Witness],
    quorum: Quorum,
    coverage: Option<Coverage>,
) -> Vec<Finding> {
    let silent = witnesses.iter().filter(|witness| witness.clock.is_none());
    let mut findings: Vec<_> = silent
        .map(|witness| {
            let node = &witness.node;
            let subject = format!("node {}", node.address);
            let found = if node.connected { "does not answer" } else { "can't be reached" };
            Finding::warning(subject, found, "start it, or see what is wrong with it")
        })
        .collect();
    let required = quorum.required;
    findings.push(match coverage {
        Some(Coverage { ranges, short: 0 }) => {
            Finding::ok("quorum", format!("{required} replicas answer in each of {ranges} ranges"))
        }
        Some(Coverage { ranges, short }) => Finding::error(
            "quorum",
            format!("fewer than {required} replicas answer in {short} of {ranges} ranges"),
            "start nodes: names in these ranges can't be locked",
        ),
        None if findings.is_empty() => Finding::ok("quorum", "all nodes answer"),
        None => Finding::warning(
            "quorum",
            "where the replicas are is not known here, and not all nodes answer",
            "start the nodes that do not answer: some names may not be lockable",
        ),
    });
    findings
}

/// What there is to say about clocks: those of the nodes among each other, which leases rely on,
/// and ours.
pub(super) fn clocks(witnesses: &[Witness]) -> Vec<Finding> {
    let read = witnesses.iter().filter_map(|witness| Some((&witness.node, witness.clock?)));
    let read: Vec<_> = read.collect();
    let slowest = read.iter().min_by_key(|(_, clock)| clock.offset_micros);
    let fastest = read.iter().max_by_key(|(_, clock)| clock.offset_micros);
    let (Some((slow, slow_clock)), Some((fast, fast_clock))) = (slowest, fastest) else {
        return Vec::new();
    };
    let synchronize = "synchronize the clocks (chrony, ntpd)";
    let apart = Apart::between(*slow_clock, *fast_clock);
    let nodes = format!("{} is ahead of {} by {apart}", fast.address, slow.address);
    let among_nodes = match apart.compare(MAX_CLOCK_SKEW) {
        Comparison::Within => {
            Finding::ok("clocks", format!("those of {} nodes agree within {apart}", read.len()))
        }
        Comparison::Perhaps => Finding::warning("clocks", nodes, synchronize),
        Comparison::Beyond => Finding::error(
            "clocks",
            format!("{nodes}, more than {MAX_CLOCK_SKEW:?}, so two may hold one lock"),
            synchronize,
        ),
    };
    let ours = ClockReading { offset_micros: 0, error_micros: 0 };
    let distance = |clock: &ClockReading| Apart::between(ours, *clock);
    let farthest = read.iter().map(|(_, clock)| distance(clock)).max_by_key(|apart| apart.micros);
    let apart = farthest.unwrap_or(Apart { micros: 0, error_micros: 0 });
    let client = match apart.compare(MAX_CLOCK_SKEW) {
        Comparison::Within => Finding::ok("clock of this host", format!("differs by {apart}")),
        Comparison::Perhaps | Comparison::Beyond => {
            let found = format!("differs from a node's by {apart}");
            Finding::warning("clock of this host", found, synchronize)
        }
    };
    vec![among_nodes, client]
}

/// What there is to say about commit logs. An acknowledged row that a node forgets lets two in.
pub(super) fn commit_logs(witnesses: &[Witness], max_ttl: Duration) -> Vec<Finding> {
    let answering = witnesses.iter().filter(|witness| witness.clock.is_some());
    let finding = |witness: &Witness| {
        let subject = format!("commit log of {}", witness.node.address);
        let found = match &witness.commitlog_sync {
            Ok(Some(sync)) if sync == "batch" || sync == "group" => {
                return Finding::ok(subject, format!("commitlog_sync is {sync}"));
            }
            Ok(Some(sync)) => format!("commitlog_sync is {sync}, not batch or group"),
            Ok(None) => "the node does not say its commitlog_sync".to_owned(),
            Err(error) => {
                let cause = std::error::Error::source(error);
                let cause = cause.map(ToString::to_string).unwrap_or_default();
                format!("commitlog_sync can't be read: {cause}")
            }
        };
        let out = (max_ttl + MAX_CLOCK_SKEW).as_secs();
        let advice = format!(
            "set commitlog_sync to group or batch, or keep a node that lost power, was restored \
             from a snapshot or came back with an empty disk out for {out} s"
        );
        Finding::warning(subject, found, advice)
    };
    answering.map(finding).collect()
}

/// How far two clocks are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Apart {
    micros: u64,
    error_micros: u64,
}

/// How a distance compares with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Within,
    /// Measured too coarsely to tell.
    Perhaps,
    Beyond,
}

impl Apart {
    fn between(one: ClockReading, other: ClockReading) -> Self {
        Apart {
            micros: one.offset_micros.abs_diff(other.offset_micros),
            error_micros: (one.error_micros + other.error_micros).unsigned_abs(),
        }
    }

    fn compare(self, bound: Duration) -> Comparison {
        if Duration::from_micros(self.micros + self.error_micros) <= bound {
            Comparison::Within
        } else if Duration::from_micros(self.micros.saturating_sub(self.error_micros)) <= bound {
            Comparison::Perhaps
        } else {
            Comparison::Beyond
        }
    }
}

impl std::fmt::Display for Apart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms ± {} ms", self.micros / 1000, self.error_micros.div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Severity;

    fn witness(last: u8, offset_millis: Option<i64>, sync: &str) -> Witness {
        let clock = offset_millis
            .map(|millis| ClockReading { offset_micros: millis * 1000, error_micros: 1_500 });
        let node = Node {
            host_id: Uuid::from_u128(last.into()),
            address: format!("10.0.0.{last}:9042"),
            datacenter: "dc1".to_owned(),
            connected: clock.is_some(),
        };
        Witness { node, clock, commitlog_sync: Ok(Some(sync.to_owned())) }
    }

    fn severities(findings: &[Finding]) -> Vec<Severity> {
        findings.iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn clocks_are_compared_with_each_other_and_with_ours() {
        let read = |offsets: [i64; 2]| {
            let [one, two] = offsets.map(Some);
            clocks(&[witness(1, one, "group"), witness(2, two, "group"), witness(3, None, "")])
        };
        assert_eq!(severities(&read([-3, 40])), [Severity::Ok, Severity::Ok]);
        assert_eq!(severities(&read([0, 998])), [Severity::Warning, Severity::Ok]);
        assert_eq!(severities(&read([600, -600])), [Severity::Error, Severity::Ok]);
        assert_eq!(severities(&read([5_000, 5_001])), [Severity::Ok, Severity::Warning]);
        let found = &read([600, -600])[0].found;
        assert!(found.starts_with("10.0.0.1:9042 is ahead of 10.0.0.2:9042 by 1200 ms"), "{found}");
    }

    #[test]
    fn a_quorum_that_is_not_served_is_an_error() {
        let quorum = Quorum { replicas: 3, placed: 3, required: 2 };
        let witnesses = [witness(1, Some(0), "group"), witness(2, None, "group")];
        let short = |short| Some(Coverage { ranges: 3, short });
        let judged = |coverage| severities(&liveness(&witnesses, quorum, coverage));
        assert_eq!(judged(short(0)), [Severity::Warning, Severity::Ok]);
        assert_eq!(judged(short(1)), [Severity::Warning, Severity::Error]);
        assert_eq!(judged(None), [Severity::Warning, Severity::Warning]);
        assert_eq!(severities(&liveness(&witnesses[..1], quorum, None)), [Severity::Ok]);
        assert_eq!(answering(&witnesses), BTreeSet::from([Uuid::from_u128(1)]));
    }

    #[test]
    fn a_commit_log_that_forgets_is_warned_of() {
        let witnesses = [
            witness(1, Some(0), "group"),
            witness(2, Some(0), "batch"),
            witness(3, Some(0), "periodic"),
            witness(4, None, "periodic"),
        ];
        let findings = commit_logs(&witnesses, Duration::from_secs(120));
        assert_eq!(severities(&findings), [Severity::Ok, Severity::Ok, Severity::Warning]);
        let advice = findings[2].advice.as_deref().expect("a warning says what to do");
        assert!(advice.ends_with("out for 121 s"), "{advice}");
    }
}
