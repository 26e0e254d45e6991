//! Findings about the nodes of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::replication::Quorum;
use crate::finding::Finding;
use crate::options::Consistency;
use crate::store::{ClockReading, Coverage, DatabaseError, Node};

/// A node and its reports.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) node: Node,
    /// Its clock; `None` if it does not answer.
    pub(super) clock: Option<ClockReading>,
    /// Its settings by their names, as far as they are set.
    pub(super) settings: Result<BTreeMap<String, String>, DatabaseError>,
}

/// The nodes that answer.
pub(super) fn answering(reports: &[NodeState]) -> BTreeSet<Uuid> {
    let answering = reports.iter().filter(|report| report.clock.is_some());
    answering.map(|report| report.node.host_id).collect()
}

/// Findings about nodes that do not answer, and the quorums without them.
pub(super) fn liveness(
    reports: &[NodeState],
    quorum: Quorum,
    coverage: Option<Coverage>,
) -> Vec<Finding> {
    let silent = reports.iter().filter(|report| report.clock.is_none());
    let mut findings: Vec<_> = silent
        .map(|report| {
            let node = &report.node;
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

/// The finding if no node of the one data centre that counts can be reached. A data centre without
/// nodes has another finding.
pub(super) fn within_reach(nodes: &[Node], consistency: &Consistency) -> Option<Finding> {
    let datacenter = consistency.datacenter()?;
    let mut here = nodes.iter().filter(|node| node.datacenter == datacenter).peekable();
    here.peek()?;
    (!here.any(|node| node.connected)).then(|| {
        let advice = "start them, or let the session connect to them: see its filter of hosts";
        let found = "none of its nodes can be reached from here";
        Finding::error(format!("data centre {datacenter}"), found, advice)
    })
}

/// The clocks of the nodes that serve lock requests.
pub(super) fn clocks_told(
    reports: &[NodeState],
    consistency: &Consistency,
) -> Vec<(Node, ClockReading)> {
    let counts = |node: &Node| consistency.datacenter().is_none_or(|name| node.datacenter == name);
    let told = reports.iter().filter(|report| counts(&report.node));
    told.filter_map(|report| Some((report.node.clone(), report.clock?))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::driver::clock_skew::clocks;
    use crate::finding::Severity;

    fn report(last: u8, offset_millis: Option<i64>) -> NodeState {
        let clock = offset_millis
            .map(|millis| ClockReading { offset_micros: millis * 1000, error_micros: 1_500 });
        let node = Node {
            host_id: Uuid::from_u128(last.into()),
            address: format!("10.0.0.{last}:9042"),
            datacenter: "dc1".to_owned(),
            connected: clock.is_some(),
        };
        NodeState { node, clock, settings: Ok(BTreeMap::new()) }
    }

    fn severities(findings: &[Finding]) -> Vec<Severity> {
        findings.iter().map(|finding| finding.severity).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn clocks_are_compared_with_each_other_and_with_ours() {
        let read = |offsets: [i64; 2]| {
            let [one, two] = offsets.map(Some);
            let reports = [report(1, one), report(2, two), report(3, None)];
            clocks(&clocks_told(&reports, &Consistency::Quorum), SECOND)
        };
        assert_eq!(severities(&read([-3, 40])), [Severity::Ok, Severity::Ok]);
        assert_eq!(severities(&read([0, 998])), [Severity::Warning, Severity::Ok]);
        assert_eq!(severities(&read([600, -600])), [Severity::Error, Severity::Ok]);
        assert_eq!(severities(&read([5_000, 5_001])), [Severity::Ok, Severity::Error]);
        assert_eq!(severities(&read([999, 1_001])), [Severity::Ok, Severity::Warning]);
        let found = &read([600, -600])[0].found;
        assert!(found.starts_with("10.0.0.1:9042 is ahead of 10.0.0.2:9042 by 1200 ms"), "{found}");
        assert_eq!(severities(&clocks(&[], SECOND)), []);
    }

    #[test]
    fn only_nodes_that_are_asked_count() {
        let local = |name: &str| Consistency::LocalQuorum(name.to_owned());
        let mut reports = [report(1, Some(0)), report(2, Some(5_000))];
        reports[1].node.datacenter = "dc2".to_owned();
        let counted = |level| clocks_told(&reports, &level).len();
        assert_eq!([counted(Consistency::Quorum), counted(local("dc1"))], [2, 1]);

        let mut nodes = reports.map(|report| report.node);
        nodes[1].connected = false;
        assert_eq!(within_reach(&nodes, &Consistency::Quorum), None);
        assert_eq!(within_reach(&nodes, &local("dc1")), None);
        assert_eq!(within_reach(&nodes, &local("nowhere")), None);
        let finding = within_reach(&nodes, &local("dc2")).expect("its only node is not reached");
        assert_eq!(finding.severity, Severity::Error);
    }

    #[test]
    fn quorum_that_is_not_served_is_an_error() {
        let quorum = Quorum { replicas: 3, placed: 3, required: 2 };
        let reports = [report(1, Some(0)), report(2, None)];
        let short = |short| Some(Coverage { ranges: 3, short });
        let judged = |coverage| severities(&liveness(&reports, quorum, coverage));
        assert_eq!(judged(short(0)), [Severity::Warning, Severity::Ok]);
        assert_eq!(judged(short(1)), [Severity::Warning, Severity::Error]);
        assert_eq!(judged(None), [Severity::Warning, Severity::Warning]);
        assert_eq!(severities(&liveness(&reports[..1], quorum, None)), [Severity::Ok]);
        assert_eq!(answering(&reports), BTreeSet::from([Uuid::from_u128(1)]));
    }
}
