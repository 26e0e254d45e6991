//! What locks rely on, as far as it can be seen to fail while they are held.
//!
//! Leases rely on the clocks of the nodes, stamps and tokens on ours, and all of it on one lock
//! table. A client checks both when it is built, and again while it is used: [`HealthMonitor`] says
//! when, [`Baseline`] what follows.
//!
//! No other read would tell. TTLs are whole seconds, so what is left of one can't show clocks that
//! are a second apart. A table that was dropped and made again shows by rows that are missing, but
//! so does much else.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::engine::clock_skew::{ClockDifference, Clocks};
use crate::error::LockError;
use crate::finding::Finding;
use crate::store::{Node, NodeReport, Store};

/// The pause between two looks for the sake of those who hold locks, however many they are.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Renewals come in thirds of a TTL. So where that is shorter, each of them still causes a look.
const PAUSES_PER_TTL: u32 = 4;

/// A refused statement may mean that the table is gone, and a missing row that it was made again. A
/// statement is repeated until the lease is over.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// How old the last look may be when a lock is asked for, as the host's registration may.
const ACQUISITION_PAUSE: Duration = Duration::from_secs(60);

/// After so many looks in a row that show no certain difference, one that was seen is forgotten.
///
/// Clocks that agree can't always be seen to: where the bound is about as small as the error of the
/// measurement, no look ever shows it. A single look says little, because a slow answer hides a
/// difference. Three are at least three quarters of a short TTL apart, or 15 s: longer than a pause
/// of one node. A difference that comes back is seen again by any look that is exact enough.
const LOOKS_WITHOUT_DIFFERENCE: u32 = 3;

/// What has to stay as it was when the client was built.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// How far clocks may differ.
    pub(crate) max_clock_skew: Duration,
    /// The id of the lock table.
    pub(crate) lock_table: Uuid,
}

/// What does not hold any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthProblem {
    /// Clocks certainly differ by more than they may. That can pass.
    ClocksDiffer {
        /// Which ones, by how much, and what to do.
        problems: Vec<Finding>,
    },
    /// The lock table was dropped, and perhaps made again. For this client that is final.
    TableGone,
}

impl HealthProblem {
    /// What those are told who want a lock meanwhile.
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

/// What a look has shown.
#[derive(Debug, PartialEq, Eq)]
enum Observation {
    Holds,
    Unclear,
    ClocksDiffer(ClockDifference),
    TableGone,
}

impl Baseline {
    /// Only what is certain counts, either way: nodes that are silent could say the contrary.
    fn judge(&self, seen: &[(Node, Option<NodeReport>)]) -> Observation {
        let told = || seen.iter().filter_map(|(node, said)| Some((node, (*said)?)));
        // A node that was down while tables were made may not know them yet, so one is not enough.
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

/// Why to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckReason {
    /// A caller wants a lock.
    Acquisition,
    /// A holder's lease was renewed.
    Renewal,
    /// The database refused a statement for good.
    Refusal,
    /// A row is missing that was acknowledged.
    RowMissing,
}

/// Looks now and then, one look at a time, and remembers what it has seen.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    baseline: Baseline,
    pause: Duration,
    /// When the last look began.
    looked: Duration,
    look: JoinSet<Vec<(Node, Option<NodeReport>)>>,
    holds: bool,
    problem: Option<HealthProblem>,
    doubt: Doubt,
}

/// Whether clocks still differ that were seen to.
#[derive(Debug, Default)]
struct Doubt {
    /// The nodes whose clocks differed when they last certainly did.
    suspects: BTreeSet<Uuid>,
    /// How many looks in a row have asked them all, and have shown no certain difference.
    looks: u32,
}

impl Doubt {
    fn of(suspects: BTreeSet<Uuid>) -> Self {
        Doubt { suspects, looks: 0 }
    }

    /// Takes a look that shows no certain difference; whether these were enough of them. A node
    /// that the driver has no connection to was not asked, and takes part in no lock.
    fn grows(&mut self, seen: &[(Node, Option<NodeReport>)]) -> bool {
        let is_silent = |(node, said): &(Node, Option<NodeReport>)| {
            said.is_none() && self.suspects.contains(&node.host_id)
        };
        let tells = seen.iter().any(|(_, said)| said.is_some()) && !seen.iter().any(is_silent);
        self.looks += u32::from(tells);
        self.looks >= LOOKS_WITHOUT_DIFFERENCE
    }
}

impl HealthMonitor {
    /// A monitor of what was last checked at `now`, for a client that locks with this TTL.
    pub(crate) fn new(baseline: Baseline, ttl: Duration, now: Duration) -> Self {
        let pause = PAUSE_MAX.min(ttl / PAUSES_PER_TTL);
        HealthMonitor {
            baseline,
            pause,
            looked: now,
            look: JoinSet::new(),
            // A client is built only if it is so.
            holds: true,
            problem: None,
            doubt: Doubt::default(),
        }
    }

    /// What does not hold any more, as last seen.
    pub(crate) fn problem(&self) -> Option<&HealthProblem> {
        self.problem.as_ref()
    }

    /// Begins a look in the background, if one is due. [`seen`](Self::seen) brings what it shows.
    pub(crate) fn look(&mut self, reason: CheckReason, store: &Arc<dyn Store>, now: Duration) {
        let is_due = self.pause_before(reason).is_some_and(|pause| now >= self.looked + pause);
        if is_due && self.look.is_empty() {
            self.looked = now;
            let store = Arc::clone(store);
            self.look.spawn(async move { store.observe().await });
        }
    }

    /// How long after the last look there is a next one; `None` when there is none any more.
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

    /// What the look under way shows; never ready while there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn seen(&mut self) -> Vec<(Node, Option<NodeReport>)> {
        match self.look.join_next().await {
            Some(Ok(seen)) => seen,
            // Only the runtime ends it.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// Whether all that the last look showed is as it has to be, for certain.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Draws conclusions; whether they are others than before. Another figure is none.
    pub(crate) fn judge(&mut self, seen: &[(Node, Option<NodeReport>)]) -> bool {
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
    fn the_table_is_gone_when_most_nodes_say_so() {
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
    fn a_look_that_is_unclear_changes_nothing() {
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

    /// A bound below what is measured never lets clocks be seen to agree.
    #[test]
    fn a_difference_that_is_not_seen_again_is_forgotten() {
        let mut health = monitor_with(Duration::from_millis(1));
        assert!(health.judge(&seen(&[at(0), at(0), at(4)])));
        for _ in 1..LOOKS_WITHOUT_DIFFERENCE {
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
            for _ in 1..LOOKS_WITHOUT_DIFFERENCE {
                assert!(!health.judge(&seen(&[at(0), at(0), at(0)])));
            }
            assert!(!health.judge(&seen(&differ)), "it begins anew");
        }
        for silent in [&[at(0), at(0), None], &[None, None, at(0)], &[None, None, None]] {
            for _ in 0..2 * LOOKS_WITHOUT_DIFFERENCE {
                assert!(!health.judge(&seen(silent)), "one that differed does not answer");
            }
        }
        let others = [at(0), None, at(0)];
        for _ in 1..LOOKS_WITHOUT_DIFFERENCE {
            assert!(!health.judge(&seen(&others)));
        }
        assert!(health.judge(&seen(&others)), "the one that is silent did not differ");
    }

    #[test]
    fn a_node_that_left_does_not_keep_its_difference() {
        let mut health = monitor_with(Duration::from_millis(1));
        assert!(health.judge(&seen(&[at(0), at(0), at(4)])));
        for _ in 1..LOOKS_WITHOUT_DIFFERENCE {
            assert!(!health.judge(&seen(&[at(0), at(0)])));
        }
        assert!(health.judge(&seen(&[at(0), at(0)])));
    }

    #[test]
    fn how_long_to_wait_for_the_next_look() {
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
    fn a_short_ttl_makes_for_looks_at_each_renewal() {
        for ttl in [5, 6, 15, 18, 19, 20, 21, 60, 600].map(s) {
            let baseline = Baseline { max_clock_skew: s(1), lock_table: TABLE };
            let pause = HealthMonitor::new(baseline, ttl, s(0)).pause;
            assert!(pause < ttl / 3 && pause <= s(5), "{pause:?} for {ttl:?}");
        }
    }
}
