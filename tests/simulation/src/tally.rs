//! What runs came to, in numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bakery_lock::LockMode;

use super::batch::run_seeds;
use super::log::{Hold, HoldEnd};
use super::overlap::overlaps;
use super::plan::{Breach, Disks, Plan};
use super::world::Outcome;

/// What some runs came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    runs: u64,
    grants: usize,
    contended: usize,
    /// How many of them were turns after the first one of a round.
    in_turn: usize,
    /// How many of them were turns of other clients.
    subleases: usize,
    /// How many were of callers that share, or of a limited number.
    shared: usize,
    limited: usize,
    lost: usize,
    /// How often two held at once, and for how long at most.
    overlaps: usize,
    longest_overlap: Duration,
    /// How many holders and callers were told that they were asked to leave.
    revoked: usize,
    /// How many holders were told that another client was granted the lock later.
    conflicts: usize,
    tokens: usize,
    failures: usize,
    writes: usize,
    harm: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds a run.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let log = &outcome.log;
        let is_lost = |end: &HoldEnd| matches!(end, HoldEnd::Lost(_) | HoldEnd::Slept);
        let is_limited = |hold: &&Hold| matches!(hold.mode, LockMode::Limited { .. });
        let periods = outcome.objects.iter().flat_map(|object| overlaps(log, object));
        let periods: Vec<_> = periods.map(|overlap| overlap.period()).collect();
        let ends = log.holds.iter().filter_map(|hold| hold.until.as_ref());
        self.merge(&Tally {
            runs: 1,
            grants: log.holds.len(),
            contended: outcome.objects.iter().map(|object| log.contended(object)).sum(),
            in_turn: outcome.objects.iter().map(|object| log.in_turn(object)).sum(),
            subleases: outcome.objects.iter().map(|object| log.subleases(object)).sum(),
            shared: log.holds.iter().filter(|hold| hold.mode == LockMode::Shared).count(),
            limited: log.holds.iter().filter(|hold| is_limited(hold)).count(),
            lost: ends.filter(|(_, end)| is_lost(end)).count(),
            overlaps: periods.len(),
            longest_overlap: periods.iter().map(|(from, to)| *to - *from).max().unwrap_or_default(),
            revoked: log.told().filter(|(_, _, _, why)| *why == "Revoked").count(),
            conflicts: log.told().filter(|(_, _, _, why)| *why == "Conflict").count(),
            tokens: log.tokens.len(),
            failures: log.failures.len(),
            writes: log.writes.len(),
            harm: outcome.harm.clone(),
        });
    }

    /// Adds what other runs came to.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.grants += other.grants;
        self.contended += other.contended;
        self.in_turn += other.in_turn;
        self.subleases += other.subleases;
        self.shared += other.shared;
        self.limited += other.limited;
        self.lost += other.lost;
        self.overlaps += other.overlaps;
        self.longest_overlap = self.longest_overlap.max(other.longest_overlap);
        self.revoked += other.revoked;
        self.conflicts += other.conflicts;
        self.tokens += other.tokens;
        self.failures += other.failures;
        self.writes += other.writes;
        for (harm, times) in &other.harm {
            *self.harm.entry(harm).or_default() += times;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { runs, grants, contended, in_turn, subleases, lost, .. } = self;
        let Tally { shared, limited, overlaps, longest_overlap, .. } = self;
        let Tally { revoked, conflicts, tokens, failures, writes, harm, .. } = self;
        writeln!(f, "{runs} runs: {grants} grants, {contended} of them contended,")?;
        writeln!(f, "{in_turn} in turn without the table, {subleases} of other clients,")?;
        writeln!(f, "{shared} shared, {limited} of a limited number, {lost} lost,")?;
        writeln!(f, "{overlaps} times two at once, for {longest_overlap:?} at most,")?;
        writeln!(f, "{conflicts} told of a later holder,")?;
        writeln!(f, "{revoked} asked to leave, {tokens} tokens, {failures} failures,")?;
        writeln!(f, "{writes} writes of rows")?;
        for (kind, times) in harm {
            writeln!(f, "{times:>10} {kind}")?;
        }
        Ok(())
    }
}

/// What goes wrong on purpose.
const HARM: [&str; 27] = [
    "clients asked to leave",
    "clients cut off from each other",
    "clients killed",
    "clients shut down",
    "clients stopped",
    "dead clients removed",
    "fences of wrong clocks",
    "links cut",
    "marks of wrong clocks",
    "messages between clients cut off",
    "messages between clients late",
    "messages between clients lost",
    "messages between clients repeated",
    "messages cut off",
    "messages lost",
    "messages to a dead replica",
    "objects swept",
    "outcomes unknown",
    "registries silent",
    "releases that never were",
    "replicas crashed",
    "replicas slow",
    "requests queued",
    "requests refused",
    "wall clocks set",
    "writes late",
    "writes forgotten",
];

// Goal: the runs are what they are meant to be: everything goes wrong that can, and there is
// contention and loss all the same.
// Method: what some seeds came to.
#[test]
fn everything_goes_wrong_in_some_run() {
    let batch = run_seeds(0..100, |seed| Plan::new(seed, Disks::Forgetful));
    let Tally { grants, contended, subleases, lost, revoked, tokens, harm, .. } = batch.tally();
    let Tally { shared, limited, .. } = batch.tally();
    let missing: Vec<_> = HARM.iter().filter(|kind| !harm.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}\n{batch}");
    assert_eq!(harm.len(), HARM.len(), "a kind is not listed here: {harm:?}");
    // Who has a turn of another client has waited in its line instead of the table.
    assert!((contended + subleases) * 4 > *grants && *lost > 0 && *tokens > 0, "{batch}");
    // Only callers that want a lock alone take turns of other clients.
    let alone = grants - shared - limited;
    assert!(subleases * 10 > alone, "too few take turns of each other\n{batch}");
    assert!(shared * 20 > *grants && limited * 20 > *grants, "too few share\n{batch}");
    assert!(*revoked > 0, "no client that was asked to leave was told so\n{batch}");
}

// Goal: the promises are broken in every way in some run, of holders that find out by themselves,
// and two clients hold for a while.
// Method: what some seeds came to.
#[test]
fn promises_are_broken_in_every_way() {
    let broken = |breach, harm: &[&str]| {
        let batch = run_seeds(0..100, |seed| Plan::with_breach(seed, breach));
        let tally = batch.tally();
        let missing: Vec<_> = harm.iter().filter(|kind| !tally.harm.contains_key(*kind)).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}\n{batch}");
        assert!(tally.overlaps > 0 && tally.tokens > 0, "{batch}");
        // After a removal by force a holder may meet rows of an earlier one by chance.
        assert!(tally.conflicts > 0 || breach != Breach::LostRows, "{batch}");
    };
    broken(Breach::LostRows, &["rows lost", "rows lost at a renewal", "objects truncated"]);
    broken(Breach::Force, &["living clients removed"]);
}
