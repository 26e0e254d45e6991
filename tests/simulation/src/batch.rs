//! Runs many seeds once, for all invariants that judge them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

use super::failure::Failure;
use super::plan::{Breach, Disks, Plan};
use super::tally::Tally;
use super::world::{Outcome, run};
use support::environment::{number, seed_named};

/// How many seeds are run by default.
const SEEDS_DEFAULT: u64 = 300;

/// Says how many seeds to run.
const SEEDS: &str = "BAKERY_LOCK_SIMULATION_SEEDS";

/// Names the first of them, so that a long run can be done in parts.
const FIRST: &str = "BAKERY_LOCK_SIMULATION_FIRST";

/// Names one seed to run alone.
const SEED: &str = "BAKERY_LOCK_SIMULATION_SEED";

/// How many smaller plans are tried in order to make a history shorter.
const TRIES: usize = 2_000;

/// What must hold of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    MutualExclusion,
    Overlap,
    MinHold,
    Fifo,
    Lines,
    Tokens,
    TokenOrder,
    Rows,
    Served,
    Promptness,
    Acknowledged,
    Waiters,
    Leaving,
}

/// Runs all seeds, unless another test has done so, and asserts that all of them keep an invariant.
pub(crate) fn assert_kept(invariant: Invariant) {
    assert_kept_despite(Breach::None, invariant);
}

/// Runs all seeds with a promise broken, unless another test has done so, and asserts that all of
/// them keep an invariant.
pub(crate) fn assert_kept_despite(breach: Breach, invariant: Invariant) {
    static BATCHES: [OnceLock<Batch>; 3] = [const { OnceLock::new() }; 3];
    let batch = BATCHES[breach as usize].get_or_init(|| chosen_seeds(breach));
    if let Some(seed) = batch.first_that_breaks(invariant) {
        // What a failing test prints repeats it with this seed.
        seed_named(SEED, || seed);
        panic!("{} runs break {invariant:?}\n{batch}", batch.violations(invariant));
    }
}

/// The seeds that the environment asks for, and a random one.
fn chosen_seeds(breach: Breach) -> Batch {
    let plan = |seed| match breach {
        Breach::None => Plan::new(seed, Disks::Synced),
        Breach::LostRows | Breach::Force => Plan::with_breach(seed, breach),
    };
    if let Some(seed) = number(SEED) {
        let plan = plan(seed);
        let outcome = run(&plan);
        println!("{plan}{}", outcome.log);
        let batch = Batch::of(&plan, &outcome).shrunk(TRIES);
        println!("seed {seed}: {batch}");
        return batch;
    }
    let (first, asked) = (number(FIRST).unwrap_or(0), number(SEEDS));
    let seeds = asked.unwrap_or(SEEDS_DEFAULT);
    // A run shows a bar if its number of seeds was asked for.
    let bar = asked.map_or_else(ProgressBar::hidden, ProgressBar::new);
    let mut batch = run_on_all_processors(first..first + seeds, plan, &bar);
    let seed = rand::random();
    batch.merge(judge(&plan(seed)));
    let batch = batch.shrunk(TRIES);
    println!("{breach:?}: seeds {first} and on, and {seed}: {batch}");
    batch
}

/// Runs seeds by the plans that are made of them.
pub(crate) fn run_seeds(seeds: Range<u64>, plan: impl Fn(u64) -> Plan + Sync) -> Batch {
    run_on_all_processors(seeds, plan, &ProgressBar::hidden())
}

fn run_on_all_processors(
    seeds: Range<u64>,
    plan: impl Fn(u64) -> Plan + Sync,
    bar: &ProgressBar,
) -> Batch {
    let style = "{elapsed_precise} {wide_bar} {pos}/{len} seeds, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is a constant"));
    let (next, batch) = (AtomicU64::new(seeds.start), Mutex::new(Batch::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let judged = judge(&plan(seed));
                    batch.lock().expect("the mutex is not poisoned").merge(judged);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    batch.into_inner().expect("the mutex is not poisoned")
}

fn judge(plan: &Plan) -> Batch {
    let _named = Named(plan.seed);
    Batch::of(plan, &run(plan))
}

/// Names the seed of a run that panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            let seed = self.0;
            let command = format!("{SEED}={seed} cargo test --test simulation");
            eprintln!("the run of seed {seed} panics; repeat it by: {command}");
        }
    }
}

/// This many violations are listed by their seeds.
const LISTED: usize = 20;

/// What some runs came to.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    tally: Tally,
    violations: Vec<(Invariant, u64)>,
    /// The shortest history that breaks an invariant.
    shortest: Option<Failure>,
}

impl Batch {
    fn of(plan: &Plan, outcome: &Outcome) -> Self {
        let mut tally = Tally::default();
        tally.add(outcome);
        let shortest = Failure::of(plan, outcome);
        let broken = shortest.iter().flat_map(|failure| &failure.broken);
        let violations = broken.map(|(invariant, _)| (*invariant, plan.seed)).collect();
        Batch { tally, violations, shortest }
    }

    fn merge(&mut self, other: Batch) {
        self.tally.merge(&other.tally);
        self.violations.extend(other.violations);
        let failures = [self.shortest.take(), other.shortest];
        // The smaller seed where they are as long, so that threads do not matter.
        self.shortest = failures.into_iter().flatten().min_by_key(|f| (f.lines(), f.plan.seed));
    }

    /// Makes the shortest history that breaks something shorter, if there is one, by this many
    /// tries at most.
    pub(crate) fn shrunk(self, tries: usize) -> Self {
        Batch { shortest: self.shortest.map(|failure| failure.shrunk(tries)), ..self }
    }

    /// The first seed that breaks an invariant.
    pub(crate) fn first_that_breaks(&self, invariant: Invariant) -> Option<u64> {
        let broken = self.violations.iter().filter(|(broken, _)| *broken == invariant);
        broken.map(|(_, seed)| *seed).min()
    }

    /// How many runs break an invariant.
    pub(crate) fn violations(&self, invariant: Invariant) -> usize {
        self.violations.iter().filter(|(broken, _)| *broken == invariant).count()
    }

    /// What is broken how often, and how short the shortest history is that shows anything.
    pub(crate) fn summary(&self) -> String {
        let mut times = BTreeMap::<String, usize>::new();
        for (invariant, _) in &self.violations {
            *times.entry(format!("{invariant:?}")).or_default() += 1;
        }
        let lines = self.shortest.as_ref().map_or(0, Failure::lines);
        format!("{times:?}, the shortest history in {lines} lines")
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tally)?;
        writeln!(f, "{} violations", self.violations.len())?;
        let mut violations: Vec<_> = self.violations.iter().map(|(it, seed)| (seed, it)).collect();
        violations.sort_unstable_by_key(|(seed, _)| *seed);
        for (seed, invariant) in violations.into_iter().take(LISTED) {
            writeln!(f, "    {invariant:?}: seed {seed}")?;
        }
        if let Some(failure) = &self.shortest {
            let seed = failure.plan.seed;
            writeln!(f, "the shortest history that breaks something is of seed {seed}:")?;
            writeln!(f, "{failure}{SEED}={seed} runs it again, and comes to the same.")?;
        }
        Ok(())
    }
}
