//! What was measured, in figures: medians and ratios.

use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::arguments::Plan;
use crate::bench::{CONTENDERS, Contest, Half, Measured, Trial};
use crate::measures::contended::Slot;
use crate::measures::crowd::{CROWDS, Crowd};
use crate::measures::uncontended::{Timings, nanoseconds};
use crate::servers::cassandra::Paxos;
use crate::sides::Operations;

/// All figures. Times are in milliseconds unless their names say otherwise.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) plan: Plan,
    pub(crate) finished_unix_seconds: u64,
    pub(crate) replicas: u32,
    pub(crate) processors: usize,
    pub(crate) uncontended: Vec<Uncontended>,
    pub(crate) contended: Vec<Contended>,
    pub(crate) crowds: Vec<CrowdFigures>,
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) tuning: Vec<Tuning>,
    pub(crate) halves: Vec<HalfFigures>,
}

/// One side when no other client wants the lock, over all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Uncontended {
    pub(crate) side: String,
    pub(crate) pairs: u64,
    pub(crate) lock: Quantiles,
    pub(crate) unlock: Quantiles,
    pub(crate) both: Quantiles,
}

/// One side when several want the lock, over all slots.
#[derive(Debug, Serialize)]
pub(crate) struct Contended {
    pub(crate) contenders: usize,
    pub(crate) side: String,
    /// The median of the slots.
    pub(crate) grants_per_second: f64,
    /// How often the lock went from one contender to another: the median of the slots.
    pub(crate) handoffs_per_second: f64,
    /// Acquisitions and releases that failed, in all slots.
    pub(crate) errors: usize,
    /// What the first of them said.
    pub(crate) first_error: Option<String>,
    /// Grants of the worst-served contender, of the mean: the median of the slots,
    pub(crate) worst_share: f64,
    /// and the worst slot.
    pub(crate) worst_share_min: f64,
    pub(crate) wait: Quantiles,
    pub(crate) handoff: Quantiles,
    pub(crate) operations_per_grant: f64,
    pub(crate) whole_reads_per_grant: f64,
    pub(crate) failed_statements_per_second: f64,
}

/// Very many callers of one client, over all half rounds.
#[derive(Debug, Serialize)]
pub(crate) struct CrowdFigures {
    pub(crate) callers: usize,
    /// The time of one grant, in microseconds.
    pub(crate) micros_per_grant: Ratio,
}

/// How one figure compares to another, pair by pair: both are of the same half round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) what: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// How a set of parameters of the lock on lightweight transactions did.
#[derive(Debug, Serialize)]
pub(crate) struct Tuning {
    pub(crate) side: String,
    pub(crate) contenders: usize,
    pub(crate) parameters: String,
    pub(crate) grants_per_second: f64,
    pub(crate) handoffs_per_second: f64,
    pub(crate) errors: usize,
    pub(crate) worst_share: f64,
    pub(crate) chosen: bool,
}

/// The medians of one half round, to show how they drift.
#[derive(Debug, Serialize)]
pub(crate) struct HalfFigures {
    pub(crate) round: u32,
    pub(crate) paxos: Paxos,
    pub(crate) bare: f64,
    pub(crate) bakery_lock: f64,
    pub(crate) bakery: f64,
    pub(crate) lwt: f64,
    pub(crate) grants_per_second: Vec<[f64; 2]>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

/// What our lock is called, with a client for each contender,
const BAKERY: &str = "bakery";

/// with one client for all,
const TURNS: &str = "bakery, tasks of one client";

/// and with processes that take turns of each other.
const PEERS: &str = "bakery, processes that are peers";

impl Summary {
    pub(crate) fn of(measured: &Measured) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Summary {
            plan: measured.plan,
            finished_unix_seconds: now.map_or(0, |now| now.as_secs()),
            replicas: measured.replicas,
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            uncontended: uncontended(measured),
            contended: contended(measured),
            crowds: crowds(measured),
            ratios: ratios(measured),
            tuning: measured.trials.iter().map(Tuning::of).collect(),
            halves: measured.halves.iter().map(HalfFigures::of).collect(),
        }
    }
}

fn uncontended(measured: &Measured) -> Vec<Uncontended> {
    let halves = &measured.halves;
    let mut sides = vec![
        Uncontended::of("bare write, read", halves.iter().map(|half| &half.bare)),
        Uncontended::of(BAKERY, halves.iter().map(|half| &half.bakery)),
    ];
    for &paxos in measured.variants {
        let halves = measured.halves_with(paxos);
        sides.push(Uncontended::of(paxos.label(), halves.map(|half| &half.lwt)));
    }
    sides
}

impl Uncontended {
    fn of<'a>(side: &str, halves: impl Iterator<Item = &'a Timings>) -> Self {
        let mut all = Timings::new();
        for timings in halves {
            all.add(timings);
        }
        Uncontended {
            side: side.to_owned(),
            pairs: all.both.len(),
            lock: Quantiles::of(&all.lock),
            unlock: Quantiles::of(&all.unlock),
            both: Quantiles::of(&all.both),
        }
    }
}

fn contended(measured: &Measured) -> Vec<Contended> {
    let mut sides = Vec::new();
    for contenders in CONTENDERS {
        let contests = || measured.halves.iter().map(move |half| half.contest(contenders));
        let bakery: Vec<_> = contests().map(|contest| &contest.bakery).collect();
        sides.push(Contended::of(contenders, BAKERY, &bakery));
        let turns: Vec<_> = contests().filter_map(|contest| contest.turns.as_ref()).collect();
        let peers: Vec<_> = contests().filter_map(|contest| contest.peers.as_ref()).collect();
        for (side, slots) in [(TURNS, turns), (PEERS, peers)] {
            if !slots.is_empty() {
                sides.push(Contended::of(contenders, side, &slots));
            }
        }
        for &paxos in measured.variants {
            let halves = measured.halves_with(paxos);
            let lwt: Vec<_> = halves.map(|half| &half.contest(contenders).lwt).collect();
            sides.push(Contended::of(contenders, paxos.label(), &lwt));
        }
    }
    sides
}

impl Contended {
    fn of(contenders: usize, side: &str, slots: &[&Slot]) -> Self {
        let (mut waits, mut gaps) = (nanoseconds(), nanoseconds());
        for slot in slots {
            waits.add(&slot.waits).expect("all hold the same range of durations");
            gaps.add(&slot.gaps).expect("all hold the same range of durations");
        }
        let operations = slots.iter().map(|slot| slot.operations).sum::<Operations>();
        let grants = slots.iter().map(|slot| slot.total()).sum::<u64>() as f64;
        let seconds = slots.iter().map(|slot| slot.length.as_secs_f64()).sum::<f64>();
        let shares: Vec<_> = slots.iter().map(|slot| slot.worst_share()).collect();
        let mut errors = slots.iter().flat_map(|slot| &slot.errors);
        Contended {
            contenders,
            side: side.to_owned(),
            grants_per_second: median(slots.iter().map(|slot| slot.grants_per_second())),
            handoffs_per_second: median(slots.iter().map(|slot| slot.handoffs_per_second())),
            errors: errors.clone().count(),
            first_error: errors.next().cloned(),
            worst_share: median(shares.iter().copied()),
            worst_share_min: shares.iter().copied().fold(f64::INFINITY, f64::min),
            wait: Quantiles::of(&waits),
            handoff: Quantiles::of(&gaps),
            operations_per_grant: operations.sent as f64 / grants,
            whole_reads_per_grant: operations.whole_reads as f64 / grants,
            failed_statements_per_second: operations.failed as f64 / seconds,
        }
    }
}

fn crowds(measured: &Measured) -> Vec<CrowdFigures> {
    let figures = CROWDS.map(|callers| {
        let crowds = measured.halves.iter().flat_map(|half| &half.crowds);
        let crowds = crowds.filter(|crowd| crowd.callers == callers);
        let micros_per_grant =
            Ratio::of(format!("{callers} callers"), crowds.map(Crowd::micros_per_grant));
        CrowdFigures { callers, micros_per_grant }
    });
    figures.into()
}

fn ratios(measured: &Measured) -> Vec<Ratio> {
    let halves = || measured.halves.iter();
    let mut ratios = vec![Ratio::of(
        "lock / (bare write + bare read)".to_owned(),
        halves().map(|half| middle(&half.bakery.lock) / middle(&half.bare.both)),
    )];
    for &paxos in measured.variants {
        let halves = measured.halves_with(paxos);
        ratios.push(Ratio::of(
            lock_and_unlock(paxos),
            halves.map(|half| middle(&half.bakery.both) / middle(&half.lwt.both)),
        ));
    }
    for contenders in CONTENDERS.into_iter().filter(|contenders| *contenders > 1) {
        let gaps = halves().filter_map(|half| {
            let peers = half.contest(contenders).peers.as_ref()?;
            Some(middle(&peers.gaps) / middle(&half.bare.lock))
        });
        ratios.push(Ratio::of(handoff(contenders), gaps));
    }
    for contenders in CONTENDERS {
        for &paxos in measured.variants {
            let contests = || measured.halves_with(paxos).map(|half| half.contest(contenders));
            ratios.push(Ratio::of(
                grants(contenders, paxos),
                contests().map(|Contest { bakery, lwt, .. }| {
                    bakery.grants_per_second() / lwt.grants_per_second()
                }),
            ));
            // A lock that no other client wants is never handed over.
            if contenders > 1 {
                ratios.push(Ratio::of(
                    handoffs(contenders, paxos),
                    contests().map(|Contest { bakery, lwt, .. }| {
                        bakery.handoffs_per_second() / lwt.handoffs_per_second()
                    }),
                ));
            }
        }
    }
    ratios
}

fn lock_and_unlock(paxos: Paxos) -> String {
    format!("lock + unlock / {} lock + unlock", paxos.label())
}

fn handoff(contenders: usize) -> String {
    format!("handoff between {contenders} processes / bare write")
}

fn grants(contenders: usize, paxos: Paxos) -> String {
    format!("grants per second / {}, {contenders} contenders", paxos.label())
}

fn handoffs(contenders: usize, paxos: Paxos) -> String {
    format!("handoffs per second / {}, {contenders} contenders", paxos.label())
}

impl Ratio {
    fn of(what: String, ratios: impl Iterator<Item = f64>) -> Self {
        let ratios: Vec<_> = ratios.collect();
        Ratio {
            what,
            median: median(ratios.iter().copied()),
            min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratios.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl Tuning {
    fn of(trial: &Trial) -> Self {
        Tuning {
            side: trial.paxos.label().to_owned(),
            contenders: trial.contenders,
            parameters: trial.parameters.to_string(),
            grants_per_second: trial.slot.grants_per_second(),
            handoffs_per_second: trial.slot.handoffs_per_second(),
            errors: trial.slot.errors.len(),
            worst_share: trial.slot.worst_share(),
            chosen: trial.chosen,
        }
    }
}

impl HalfFigures {
    fn of(half: &Half) -> Self {
        HalfFigures {
            round: half.round,
            paxos: half.paxos,
            bare: middle(&half.bare.both),
            bakery_lock: middle(&half.bakery.lock),
            bakery: middle(&half.bakery.both),
            lwt: middle(&half.lwt.both),
            grants_per_second: half.contests.iter().map(Contest::grants_per_second).collect(),
        }
    }
}

impl Measured {
    fn halves_with(&self, paxos: Paxos) -> impl Iterator<Item = &Half> {
        self.halves.iter().filter(move |half| half.paxos == paxos)
    }
}

impl Half {
    fn contest(&self, contenders: usize) -> &Contest {
        let contest = self.contests.iter().find(|contest| contest.contenders == contenders);
        contest.expect("every half round has every number of contenders")
    }
}

impl Contest {
    /// Our lock's, and the other one's.
    fn grants_per_second(&self) -> [f64; 2] {
        [self.bakery.grants_per_second(), self.lwt.grants_per_second()]
    }
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let p99 = milliseconds(histogram.value_at_quantile(0.99));
        Quantiles { median: middle(histogram), p99 }
    }
}

/// The median of durations, in milliseconds.
fn middle(histogram: &Histogram<u64>) -> f64 {
    milliseconds(histogram.value_at_quantile(0.5))
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// The median of a few figures; of an even number of them the mean of the middle two.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let half = figures.len() / 2;
    if figures.len().is_multiple_of(2) {
        (figures[half - 1] + figures[half]) / 2.0
    } else {
        figures[half]
    }
}
