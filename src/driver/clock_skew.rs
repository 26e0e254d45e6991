//! Whether clocks agree: those of the nodes, on which leases rely, and ours.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::finding::{Finding, Severity};
use crate::store::{ClockReading, Node};

/// The verdict on clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// They agree within the bound.
    Agree,
    /// They were not measured precisely enough to decide, or not at all.
    Unclear,
    /// They certainly differ by more.
    Differ(ClockDifference),
}

/// Clocks that certainly differ by more than the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClockDifference {
    /// Which clocks, by how much, and what to do.
    pub(crate) problems: Vec<Finding>,
    /// The nodes of these clocks.
    pub(crate) nodes: BTreeSet<Uuid>,
}

impl Clocks {
    /// Judges the readings.
    pub(crate) fn judge(read: &[(Node, ClockReading)], max_clock_skew: Duration) -> Self {
        let mut judgements = judgements(read, max_clock_skew);
        match judgements.iter().map(|judgement| judgement.finding.severity).max() {
            Some(Severity::Ok) => Clocks::Agree,
            Some(Severity::Warning) | None => Clocks::Unclear,
            Some(Severity::Error) => {
                judgements.retain(|judgement| judgement.finding.severity == Severity::Error);
                let nodes = judgements.iter().flat_map(|judgement| &judgement.nodes);
                let nodes = nodes.copied().collect();
                let problems = judgements.into_iter().map(|judgement| judgement.finding).collect();
                Clocks::Differ(ClockDifference { problems, nodes })
            }
        }
    }
}

/// The smallest bound within which equal clocks, read as precisely as here, can be seen to agree:
/// the errors of the two least precise readings together. `None` if none was read.
pub(crate) fn measurable(read: &[(Node, ClockReading)]) -> Option<Duration> {
    let mut errors: Vec<_> = read.iter().map(|(_, clock)| clock.error_micros).collect();
    errors.sort_unstable_by_key(|error| Reverse(*error));
    let sum = errors.iter().take(2).sum::<i64>();
    (!errors.is_empty()).then(|| Duration::from_micros(sum.unsigned_abs()))
}

/// Findings about clocks: those of the nodes compared with each other, on which leases rely, and
/// ours, from which stamps and fencing tokens are made.
pub(crate) fn clocks(read: &[(Node, ClockReading)], max_clock_skew: Duration) -> Vec<Finding> {
    let judgements = judgements(read, max_clock_skew).into_iter();
    judgements.map(|judgement| judgement.finding).collect()
}

/// A finding about some clocks, and the nodes of these clocks.
struct Judgement {
    finding: Finding,
    nodes: Vec<Uuid>,
}

fn judgements(read: &[(Node, ClockReading)], max_clock_skew: Duration) -> Vec<Judgement> {
    let among_nodes = among_nodes(read, max_clock_skew);
    among_nodes.into_iter().chain(ours(read, max_clock_skew)).collect()
}

fn among_nodes(read: &[(Node, ClockReading)], max_clock_skew: Duration) -> Option<Judgement> {
    let (certainly, perhaps) = (Pair::certainly(read)?, Pair::perhaps(read)?);
    let is_certain = certainly.apart().compare(max_clock_skew) == Comparison::Beyond;
    let pair = if is_certain { certainly } else { perhaps };
    let apart = pair.apart();
    let finding = match apart.compare(max_clock_skew) {
        Comparison::Within => {
            Finding::ok("clocks", format!("those of {} nodes agree within {apart}", read.len()))
        }
        Comparison::Perhaps => {
            let advice = apart.advice(max_clock_skew);
            Finding::warning("clocks", pair.to_string(), advice)
        }
        Comparison::Beyond => {
            let found = format!("{pair}, more than {max_clock_skew:?}, so two may hold one lock");
            Finding::error("clocks", found, SYNCHRONIZE)
        }
    };
    Some(Judgement { finding, nodes: vec![pair.slow.0.host_id, pair.fast.0.host_id] })
}

fn ours(read: &[(Node, ClockReading)], max_clock_skew: Duration) -> Option<Judgement> {
    const SUBJECT: &str = "clock of this host";
    let apart = |(_, clock): &(Node, ClockReading)| Apart::between(ClockReading::OURS, *clock);
    let certainly = read.iter().max_by_key(|node| apart(node).at_least())?;
    let perhaps = read.iter().max_by_key(|node| apart(node).at_most())?;
    let is_certain = apart(certainly).compare(max_clock_skew) == Comparison::Beyond;
    let node = if is_certain { certainly } else { perhaps };
    let apart = apart(node);
    let found = format!("differs from that of {} by {apart}", node.0.address);
    let finding = match apart.compare(max_clock_skew) {
        Comparison::Within => Finding::ok(SUBJECT, format!("differs by {apart}")),
        Comparison::Perhaps => Finding::warning(SUBJECT, found, apart.advice(max_clock_skew)),
        Comparison::Beyond => {
            let found = format!("{found}, more than {max_clock_skew:?}, so its stamps are wrong");
            Finding::error(SUBJECT, found, SYNCHRONIZE)
        }
    };
    Some(Judgement { finding, nodes: vec![node.0.host_id] })
}

const SYNCHRONIZE: &str = "synchronize the clocks (chrony, ntpd)";

const MEASURE_AGAIN: &str = "the nodes answer too slowly to tell: check again when they are less \
                             busy; if it stays so, the max_clock_skew is too small for them";

/// Two nodes and their clocks.
struct Pair<'a> {
    slow: &'a (Node, ClockReading),
    fast: &'a (Node, ClockReading),
}

impl<'a> Pair<'a> {
    /// The two nodes with clocks that are certainly farthest apart.
    fn certainly(read: &'a [(Node, ClockReading)]) -> Option<Self> {
        let slow = read.iter().min_by_key(|(_, clock)| clock.latest())?;
        let fast = read.iter().max_by_key(|(_, clock)| clock.earliest())?;
        Some(Pair { slow, fast })
    }

    /// The two nodes with clocks that may be farthest apart. The least precisely read clock may be
    /// both the slowest and the fastest, but is not apart from itself.
    fn perhaps(read: &'a [(Node, ClockReading)]) -> Option<Self> {
        let slow = read.iter().min_by_key(|(_, clock)| clock.earliest())?;
        let fast = read.iter().max_by_key(|(_, clock)| clock.latest())?;
        let other_than = |one: &(Node, ClockReading)| {
            let host_id = one.0.host_id;
            read.iter().filter(move |(node, _)| node.host_id != host_id)
        };
        let faster = other_than(slow).max_by_key(|(_, clock)| clock.latest())?;
        let slower = other_than(fast).min_by_key(|(_, clock)| clock.earliest())?;
        let pairs = [Pair { slow, fast: faster }, Pair { slow: slower, fast }];
        pairs.into_iter().max_by_key(|pair| pair.apart().at_most())
    }

    fn apart(&self) -> Apart {
        Apart::between(self.slow.1, self.fast.1)
    }
}

impl fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slow, fast) = (&self.slow.0.address, &self.fast.0.address);
        write!(f, "{fast} is ahead of {slow} by {}", self.apart())
    }
}

/// How far apart two clocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Apart {
    micros: u64,
    error_micros: u64,
}

/// How a distance compares with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Within,
    /// Measured too coarsely.
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

    fn at_least(self) -> Duration {
        Duration::from_micros(self.micros.saturating_sub(self.error_micros))
    }

    fn at_most(self) -> Duration {
        Duration::from_micros(self.micros + self.error_micros)
    }

    /// What to do when it is unclear whether this is within the bound.
    fn advice(self, bound: Duration) -> &'static str {
        let error = Duration::from_micros(self.error_micros);
        if error > bound { MEASURE_AGAIN } else { SYNCHRONIZE }
    }

    fn compare(self, bound: Duration) -> Comparison {
        if self.at_most() <= bound {
            Comparison::Within
        } else if self.at_least() <= bound {
            Comparison::Perhaps
        } else {
            Comparison::Beyond
        }
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms ± {} ms", self.micros / 1000, self.error_micros.div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(last: u8) -> Node {
        Node {
            host_id: Uuid::from_u128(last.into()),
            address: format!("10.0.0.{last}:9042"),
            datacenter: "dc1".to_owned(),
            connected: true,
        }
    }

    fn severities(findings: &[Finding]) -> Vec<Severity> {
        findings.iter().map(|finding| finding.severity).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_what_is_certain_is_refused() {
        let reading = |last, offset_millis: i64, error_millis: i64| {
            let (offset_micros, error_micros) = (offset_millis * 1_000, error_millis * 1_000);
            (node(last), ClockReading { offset_micros, error_micros })
        };
        let read = [reading(1, 0, 1), reading(2, 1_500, 600), reading(3, 1_400, 1)];
        let found = clocks(&read, SECOND);
        assert_eq!(severities(&found), [Severity::Error, Severity::Error]);
        assert!(found[0].found.starts_with("10.0.0.3:9042 is ahead of 10.0.0.1:9042 by 1400 ms"));
        assert!(found[1].found.starts_with("differs from that of 10.0.0.3:9042 by 1400 ms"));
        let nodes = [1, 3].map(Uuid::from_u128).into();
        let difference = ClockDifference { problems: found, nodes };
        assert_eq!(Clocks::judge(&read, SECOND), Clocks::Differ(difference));
        assert_eq!(Clocks::judge(&read[..2], SECOND), Clocks::Unclear);
        assert_eq!(Clocks::judge(&read[..1], SECOND), Clocks::Agree);
        assert_eq!(Clocks::judge(&[], SECOND), Clocks::Unclear);
        let found = clocks(&read[..2], SECOND);
        assert_eq!(severities(&found), [Severity::Warning, Severity::Warning]);
        let found = clocks(&read, Duration::from_millis(1_499));
        assert_eq!(severities(&found), [Severity::Warning, Severity::Warning]);
    }

    #[test]
    fn bound_has_to_be_measurable() {
        let reading = |last, offset_millis: i64, error_micros| {
            let clock = ClockReading { offset_micros: offset_millis * 1_000, error_micros };
            (node(last), clock)
        };
        let micros = Duration::from_micros;
        let read = [reading(1, 0, 700), reading(2, 900, 600), reading(3, 10, 800)];
        assert_eq!(measurable(&read), Some(micros(1_500)));
        assert_eq!(measurable(&read[..2]), Some(micros(1_300)));
        assert_eq!(measurable(&read[..1]), Some(micros(700)));
        assert_eq!(measurable(&[]), None);
        let equal = [reading(1, 0, 700), reading(2, 0, 800)];
        assert_eq!(Clocks::judge(&equal, micros(1_500)), Clocks::Agree);
        assert_eq!(Clocks::judge(&equal, micros(1_499)), Clocks::Unclear);
        let advice = |bound| clocks(&equal, bound)[0].advice.clone();
        assert_eq!(advice(micros(1_499)).as_deref(), Some(MEASURE_AGAIN));
    }
}
