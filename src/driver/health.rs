//! What locks rely on, as far as a client can see it fail while they are held.
//!
//! Leases rely on the clocks of the nodes, stamps and tokens on ours, and all of them on one lock
//! table. A client checks clocks and table when it is built, and again while it is used:
//! [`HealthMonitor`] decides when, [`Baseline`] what follows.
//!
//! No other read shows this. TTLs are whole seconds, so a remaining TTL can't show clocks that are
//! a second apart. Missing rows can mean that the table was dropped and created again, but also
//! much else.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::admin::types::UnreadyReason;
use crate::core::object::io::{CheckReason, Health};
use crate::driver::clock_skew::{ClockDifference, Clocks};
use crate::error::LockError;
use crate::finding::Finding;
use crate::store::{Node, NodeProbe, NodeReport};

/// The pause between two checks for the sake of holders, however many there are.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Renewals come every third of a TTL, so with a short TTL, each of them still causes a check.
const PAUSES_PER_TTL: u32 = 4;

/// A refused statement may mean that the table is gone, and a missing row that it was created
/// again. A statement is repeated until the lease ends.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// How old the last check may be when a lock is requested; the same as for the registration.
const ACQUISITION_PAUSE: Duration = Duration::from_secs(60);

/// After this many checks in a row without a certain difference, an earlier one is forgotten.
///
/// Agreement can't always be seen: where the bound is about as small as the measurement error, no
/// check ever shows it. A single check says little, because a slow answer hides a difference. Three
/// take at least three quarters of a short TTL, or 15 s: longer than a pause of one node. A
/// difference that comes back is seen again by any check that is precise enough.
const CHECKS_WITHOUT_DIFFERENCE: u32 = 3;

/// What must stay as it was when the client was built.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// How far clocks may differ.
    pub(crate) max_clock_skew: Duration,
    /// The id of the lock table.
    pub(crate) lock_table: Uuid,
}

/// What no longer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthProblem {
    /// Clocks certainly differ by more than the bound. That can pass.
    ClocksDiffer {
        /// Which clocks, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped, and perhaps created again. For this client that is final.
    TableGone,
}

impl HealthProblem {
    /// What it means for objects.
    pub(crate) fn health(&self) -> Health {
        match self {
            HealthProblem::ClocksDiffer { .. } => Health::ClocksDiffer,
            HealthProblem::TableGone => Health::TableGone,
        }
    }

    /// The error for callers that request a lock meanwhile.
    pub(crate) fn refusal(&self, object: &str) -> LockError {
        let name = object.to_owned();
        match self {
            HealthProblem::ClocksDiffer { problems } => {
                LockError::ClocksDiffer { name, problems: problems.clone() }
            }
            HealthProblem::TableGone => LockError::TableGone { name },
        }
    }
}

impl From<HealthProblem> for UnreadyReason {
    fn from(problem: HealthProblem) -> Self {
        match problem {
            HealthProblem::ClocksDiffer { problems } => UnreadyReason::ClocksDiffer { problems },
            HealthProblem::TableGone => UnreadyReason::TableGone,
        }
    }
}

/// What a check has shown.
#[derive(Debug, PartialEq, Eq)]
enum Observation {
    Holds,
    Unclear,
    ClocksDiffer(ClockDifference),
    TableGone,
}

impl Baseline {
    /// Only what is certain counts, either way: silent nodes could say the opposite.
    fn judge(&self, seen: &[(Node, Option<NodeReport>)]) -> Observation {
        let told = || seen.iter().filter_map(|(node, said)| Some((node, (*said)?)));
        // A node down while tables were created may not know them yet, so one is not enough.
        let gone = told().filter(|(_, said)| said.lock_table != Some(self.lock_table)).count();
        if 2 * gone > seen.len() {
            return Observation::TableGone;
        }
        let clocks: Vec<_> = told().map(|(node, said)| (node.clone(), said.clock)).collect();
        match Clocks::judge(&clocks, self.max_clock_skew) {
            Clocks::Differ(difference) => Observation::ClocksDiffer(difference),
            Clocks::Agree if clocks.len() == seen.len() => Observation::Holds,
            Clocks::Agree | Clocks::Unclear => Observation::Unclear,
        }
    }
}

/// Checks from time to time, one check at a time, and remembers the result.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    baseline: Baseline,
    pause: Duration,
    /// When the last check began.
    looked: Duration,
    look: JoinSet<Vec<(Node, Option<NodeReport>)>>,
    holds: bool,
    problem: Option<HealthProblem>,
    doubt: Doubt,
    /// Those who wait for the result of the check in progress.
    replies: Vec<oneshot::Sender<Option<HealthProblem>>>,
}

/// Whether clocks that were seen to differ still do.
#[derive(Debug, Default)]
struct Doubt {
    /// The nodes of the clocks that last certainly differed.
    suspects: BTreeSet<Uuid>,
    /// How many checks in a row have asked them all, and have shown no certain difference.
    looks: u32,
}

impl Doubt {
    fn of(suspects: BTreeSet<Uuid>) -> Self {
        Doubt { suspects, looks: 0 }
    }

    /// Counts a check that shows no certain difference; returns whether there were enough. A node
    /// to which the driver has no connection was not asked, and takes part in no lock.
    fn grows(&mut self, seen: &[(Node, Option<NodeReport>)]) -> bool {
        let is_silent = |(node, said): &(Node, Option<NodeReport>)| {
            said.is_none() && self.suspects.contains(&node.host_id)
        };
        let tells = seen.iter().any(|(_, said)| said.is_some()) && !seen.iter().any(is_silent);
        self.looks += u32::from(tells);
        self.looks >= CHECKS_WITHOUT_DIFFERENCE
    }
}

impl HealthMonitor {
    /// A monitor that last checked at `now`, for a client with this TTL.
    pub(crate) fn new(baseline: Baseline, ttl: Duration, now: Duration) -> Self {
        let pause = PAUSE_MAX.min(ttl / PAUSES_PER_TTL);
        HealthMonitor {
            baseline,
            pause,
            looked: now,
            look: JoinSet::new(),
            // A client is built only if this is true.
            holds: true,
            problem: None,
            doubt: Doubt::default(),
            replies: Vec::new(),
        }
    }

    /// What no longer holds, as last seen.
    pub(crate) fn problem(&self) -> Option<&HealthProblem> {
        self.problem.as_ref()
    }

    /// Reports what no longer holds. If nothing is known to be wrong and a check is in progress,
    /// its result is awaited.
    pub(crate) fn tell(&mut self, reply: oneshot::Sender<Option<HealthProblem>>) {
        self.replies.push(reply);
        if self.problem.is_some() || self.look.is_empty() {
            self.send_reports();
        }
    }

    fn send_reports(&mut self) {
        for reply in self.replies.drain(..) {
            // One that stopped waiting needs no answer.
            let _ = reply.send(self.problem.clone());
        }
    }

    /// Begins a check in the background, if one is due. [`seen`](Self::seen) returns its result.
    pub(crate) fn look(&mut self, reason: CheckReason, nodes: &Arc<dyn NodeProbe>, now: Duration) {
        let is_due = self.pause_before(reason).is_some_and(|pause| now >= self.looked + pause);
        if is_due && self.look.is_empty() {
            self.looked = now;
            let nodes = Arc::clone(nodes);
            self.look.spawn(async move { nodes.probe_nodes().await });
        }
    }

    /// When a request for a lock is a reason to check; `None` if there are no more checks.
    pub(crate) fn acquisition_check_due(&self) -> Option<Duration> {
        let pause = self.pause_before(CheckReason::Acquisition)?;
        Some(self.looked.saturating_add(pause))
    }

    /// How long after the last check the next one is due; `None` if there are no more.
    fn pause_before(&self, reason: CheckReason) -> Option<Duration> {
        match (&self.problem, reason) {
            (Some(HealthProblem::TableGone), _) => None,
            (_, CheckReason::Refusal | CheckReason::RowMissing) => Some(PAUSE_AFTER_REFUSAL),
            // A refusal should not last longer than its cause.
            (_, CheckReason::Renewal)
            | (Some(HealthProblem::ClocksDiffer { .. }), CheckReason::Acquisition) => {
                Some(self.pause)
            }
            (None, CheckReason::Acquisition) => Some(ACQUISITION_PAUSE),
        }
    }

    /// The result of the check in progress; never ready while there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn seen(&mut self) -> Vec<(Node, Option<NodeReport>)> {
        match self.look.join_next().await {
            Some(Ok(seen)) => seen,
            // Only the runtime ends the check.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// Whether the last check showed for certain that everything is as it must be.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Judges a result, and answers those who wait for it; returns whether the conclusion changed.
    /// A new figure alone is no change.
    pub(crate) fn judge(&mut self, seen: &[(Node, Option<NodeReport>)]) -> bool {
        let changed = self.conclude(seen);
        self.send_reports();
        changed
    }

    fn conclude(&mut self, seen: &[(Node, Option<NodeReport>)]) -> bool {
        let observation = self.baseline.judge(seen);
        self.holds = observation == Observation::Holds;
        let problem = match observation {
            Observation::Holds => None,
            Observation::Unclear if self.doubt.grows(seen) => None,
            Observation::Unclear => return false,
            Observation::ClocksDiffer(ClockDifference { problems, nodes }) => {
                self.doubt = Doubt::of(nodes);
                Some(HealthProblem::ClocksDiffer { problems })
            }
            Observation::TableGone => Some(HealthProblem::TableGone),
        };
        let changed = problem.as_ref().map(discriminant) != self.problem.as_ref().map(discriminant);
        if changed {
            match &problem {
                Some(problem) => warn!(?problem, "what locks rely on does not hold any more"),
                None => debug!("what locks rely on holds again, as far as can be seen"),
            }
        }
        self.problem = problem;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ClockReading;

    const TABLE: Uuid = Uuid::from_u128(7);
    const OTHER: Uuid = Uuid::from_u128(8);

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What nodes said: how far their clocks are ahead, in ms, and the table's id.
    fn seen(said: &[Option<(i64, Option<Uuid>)>]) -> Vec<(Node, Option<NodeReport>)> {
        let testimonies = (1..).zip(said).map(|(number, said)| {
            let node = Node {
                host_id: Uuid::from_u128(number),
                address: format!("10.0.0.{number}:9042"),
                datacenter: "dc1".to_owned(),
                connected: true,
            };
            let report = said.map(|(millis, lock_table)| {
                let clock = ClockReading { offset_micros: millis * 1_000, error_micros: 1_000 };
                NodeReport { clock, lock_table }
            });
            (node, report)
        });
        testimonies.collect()
    }

    fn judge(said: &[Option<(i64, Option<Uuid>)>]) -> Observation {
        Baseline { max_clock_skew: s(1), lock_table: TABLE }.judge(&seen(said))
    }

    fn health() -> HealthMonitor {
        monitor_with(s(1))
    }

    fn monitor_with(max_clock_skew: Duration) -> HealthMonitor {
        HealthMonitor::new(Baseline { max_clock_skew, lock_table: TABLE }, s(60), s(0))
    }

    const fn at(millis: i64) -> Option<(i64, Option<Uuid>)> {
        Some((millis, Some(TABLE)))
    }

    #[test]
    fn clocks_are_judged_by_what_is_certain() {
        assert_eq!(judge(&[at(0), at(300), at(-300)]), Observation::Holds);
        assert_eq!(judge(&[at(0), at(999)]), Observation::Unclear);
        assert_eq!(judge(&[at(0), at(300), None]), Observation::Unclear);
        assert_eq!(judge(&[None, None]), Observation::Unclear);
        assert_eq!(judge(&[]), Observation::Unclear);
        let Observation::ClocksDiffer(difference) = judge(&[at(0), None, at(3_000)]) else {
            panic!("two clocks are 3 s apart");
        };
        assert_eq!(difference.nodes, [1, 3].map(Uuid::from_u128).into());
        assert!(
            difference.problems[0]
                .found
                .starts_with("10.0.0.3:9042 is ahead of 10.0.0.1:9042 by 3000")
        );
    }

    #[test]
    fn table_is_gone_when_most_nodes_say_so() {
        const GONE: Option<(i64, Option<Uuid>)> = Some((0, None));
        const REPLACED: Option<(i64, Option<Uuid>)> = Some((0, Some(OTHER)));
        let gone = Observation::TableGone;
        assert_eq!(judge(&[GONE]), gone);
        assert_eq!(judge(&[GONE, REPLACED, at(0)]), gone);
        assert_eq!(judge(&[GONE, GONE, None]), gone);
        assert_eq!(judge(&[REPLACED, REPLACED, at(3_000)]), gone);
        assert_eq!(judge(&[REPLACED, at(0)]), Observation::Holds);
        assert_eq!(judge(&[GONE, None, None]), Observation::Unclear);
    }

    #[test]
    fn look_that_is_unclear_changes_nothing() {
        let mut health = health();
        assert!(!health.judge(&seen(&[at(0), at(0)])));
        assert!(!health.judge(&seen(&[None, at(0)])));
        assert!(health.judge(&seen(&[at(0), at(3_000)])));
        for unclear in [&[at(0), None], &[at(0), at(999)]] {
            assert!(!health.judge(&seen(unclear)));
            assert!(matches!(health.problem(), Some(HealthProblem::ClocksDiffer { .. })));
            assert!(!health.holds(), "it is not certain");
        }
        assert!(health.judge(&seen(&[at(0), at(100)])));
        assert_eq!(health.problem(), None);
        assert!(health.holds());
    }

    /// With a bound below what can be measured, clocks are never seen to agree.
    #[test]
    fn difference_that_is_not_seen_again_is_forgotten() {
        let mut health = monitor_with(Duration::from_millis(1));
        assert!(health.judge(&seen(&[at(0), at(0), at(4)])));
        for _ in 1..CHECKS_WITHOUT_DIFFERENCE {
            assert!(!health.judge(&seen(&[at(0), at(0), at(0)])));
            assert!(matches!(health.problem(), Some(HealthProblem::ClocksDiffer { .. })));
        }
        assert!(health.judge(&seen(&[at(0), at(0), at(1)])));
        assert_eq!(health.problem(), None);
    }

    #[test]
    fn only_looks_in_a_row_at_the_nodes_that_differed_count() {
        let mut health = monitor_with(Duration::from_millis(1));
        let differ = [at(0), at(0), at(4)];
        assert!(health.judge(&seen(&differ)));
        for _ in 0..10 {
            for _ in 1..CHECKS_WITHOUT_DIFFERENCE {
                assert!(!health.judge(&seen(&[at(0), at(0), at(0)])));
            }
            assert!(!health.judge(&seen(&differ)), "it begins anew");
        }
        for silent in [&[at(0), at(0), None], &[None, None, at(0)], &[None, None, None]] {
            for _ in 0..2 * CHECKS_WITHOUT_DIFFERENCE {
                assert!(!health.judge(&seen(silent)), "one that differed does not answer");
            }
        }
        let others = [at(0), None, at(0)];
        for _ in 1..CHECKS_WITHOUT_DIFFERENCE {
            assert!(!health.judge(&seen(&others)));
        }
        assert!(health.judge(&seen(&others)), "the one that is silent did not differ");
    }

    #[test]
    fn node_that_left_does_not_keep_its_difference() {
        let mut health = monitor_with(Duration::from_millis(1));
        assert!(health.judge(&seen(&[at(0), at(0), at(4)])));
        for _ in 1..CHECKS_WITHOUT_DIFFERENCE {
            assert!(!health.judge(&seen(&[at(0), at(0)])));
        }
        assert!(health.judge(&seen(&[at(0), at(0)])));
    }

    #[test]
    fn next_look_waits_as_long_as_needed() {
        let mut health = health();
        let pauses = |health: &HealthMonitor| {
            let reasons = [
                CheckReason::Acquisition,
                CheckReason::Renewal,
                CheckReason::Refusal,
                CheckReason::RowMissing,
            ];
            reasons.map(|reason| health.pause_before(reason))
        };
        assert_eq!(pauses(&health), [Some(s(60)), Some(s(5)), Some(s(1)), Some(s(1))]);
        health.judge(&seen(&[at(0), at(3_000)]));
        assert_eq!(pauses(&health), [Some(s(5)), Some(s(5)), Some(s(1)), Some(s(1))]);
        health.judge(&seen(&[Some((0, None))]));
        assert_eq!(pauses(&health), [None; 4]);
    }

    #[test]
    fn short_ttl_makes_for_looks_at_each_renewal() {
        for ttl in [5, 6, 15, 18, 19, 20, 21, 60, 600].map(s) {
            let baseline = Baseline { max_clock_skew: s(1), lock_table: TABLE };
            let pause = HealthMonitor::new(baseline, ttl, s(0)).pause;
            assert!(pause < ttl / 3 && pause <= s(5), "{pause:?} for {ttl:?}");
        }
    }
}
