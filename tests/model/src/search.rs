//! Runs searches, and tells what they found.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::catalogue::{self, Subject};
use crate::core::bakery::SeededBug;
use crate::dead::Dead;
use crate::lease::Expiry;
use crate::members::Members;
use crate::objects::Objects;
use crate::scenario::Scenario;
use crate::sightings::{Sight, Sightings};
use crate::store::registers::Registers;
use crate::store::replicas::Replicas;
use crate::tokens::Tokens;
use crate::turns::Turns;
use crate::world::Contention;

pub use crate::catalogue::{Expected, Length};

/// A search that can be run.
#[derive(Clone, Debug)]
pub struct Search {
    /// What it is called.
    pub name: &'static str,
    /// How long it takes.
    pub length: Length,
    /// What must come of it.
    pub expected: Expected,
    subject: Subject,
}

/// What a search found.
#[derive(Debug)]
pub struct Finding {
    /// How many different states there are, or were until something was found.
    pub states: usize,
    /// How many steps led to them.
    pub steps: usize,
    /// How many steps the longest of the shortest ways has.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What does not hold, and the shortest way there.
    pub violation: Option<Violation>,
    /// What was come across, and how often.
    pub seen: String,
    /// What should have been, and was not.
    pub unseen: Vec<String>,
}

/// Something that does not hold.
#[derive(Debug)]
pub struct Violation {
    /// What.
    pub property: &'static str,
    /// The steps that lead there.
    pub history: Vec<String>,
}

/// All searches.
#[must_use]
pub fn all() -> Vec<Search> {
    let entries = catalogue::entries().into_iter();
    entries
        .map(|entry| Search {
            name: entry.name,
            length: entry.length,
            expected: entry.expected,
            subject: entry.subject,
        })
        .collect()
}

/// Seeded bugs of the protocol for which there is no search.
#[must_use]
pub fn without_a_search() -> Vec<String> {
    let entries = catalogue::entries();
    let planted = |mutation: &SeededBug| {
        entries.iter().any(|entry| entry.subject.mutation() == Some(*mutation))
    };
    let contenders_and_turns = SeededBug::OF_CONTENDERS.iter().chain(&SeededBug::OF_TURNS);
    let all = contenders_and_turns.chain(&SeededBug::OF_OBJECTS);
    let forgotten = all.filter(|mutation| !planted(mutation));
    forgotten.map(|mutation| format!("{mutation:?}")).collect()
}

/// Searches the same with and without the one reduction of the replicas that must be argued for:
/// of both how many states there are, and what contenders were in together.
///
/// # Panics
///
/// When a search finds something wrong.
#[must_use]
pub fn reduced_and_not() -> [(usize, (usize, u64)); 2] {
    [true, false].map(|reduced| {
        let scenario = Scenario { reduced, ..catalogue::for_comparison() };
        let model = Contention::<Replicas>::new(scenario, Arc::default());
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        (checker.unique_state_count(), checker.model().met())
    })
}

impl Search {
    /// Whether it is about turns of callers and guests.
    #[must_use]
    pub fn is_of_turns(&self) -> bool {
        matches!(self.subject, Subject::Turns(_))
    }

    /// Whether it is about whole objects.
    #[must_use]
    pub fn is_of_objects(&self) -> bool {
        matches!(self.subject, Subject::Objects(_))
    }

    /// Runs the search.
    ///
    /// # Panics
    ///
    /// When the protocol does, which is a bug of it.
    #[must_use]
    pub fn run(&self) -> Finding {
        let threads = match self.expected {
            Expected::Holds => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            // One alone goes through the histories in the order of their lengths.
            Expected::Caught => 1,
        };
        let sightings = Arc::<Sightings>::default();
        match &self.subject {
            Subject::Replicas(scenario) => {
                let model = Contention::<Replicas>::new(scenario.clone(), Arc::clone(&sightings));
                search(model, threads, &sightings, scenario.must_see)
            }
            Subject::Registers(scenario) => {
                let model = Contention::<Registers>::new(scenario.clone(), Arc::clone(&sightings));
                search(model, threads, &sightings, scenario.must_see)
            }
            Subject::Expiry(scenario, course, seconds) => {
                let seen = Arc::clone(&sightings);
                let model = Expiry::new(scenario.clone(), *course, *seconds, seen);
                search(model, threads, &sightings, scenario.must_see)
            }
            Subject::Tokens(plan) => {
                let model = Tokens::new(*plan, Arc::clone(&sightings));
                search(model, threads, &sightings, plan.must_see)
            }
            Subject::Members(plan) => {
                let model = Members::new(*plan, Arc::clone(&sightings));
                search(model, threads, &sightings, plan.must_see)
            }
            Subject::Dead(plan) => {
                let model = Dead::new(*plan, Arc::clone(&sightings));
                search(model, threads, &sightings, plan.must_see)
            }
            Subject::Turns(plan) => {
                let model = Turns::new(*plan, Arc::clone(&sightings));
                search(model, threads, &sightings, plan.must_see)
            }
            Subject::Objects(plan) => {
                let model = Objects::new(*plan, Arc::clone(&sightings));
                search(model, threads, &sightings, plan.must_see)
            }
        }
    }

    /// What is wrong with what it found, if something is.
    #[must_use]
    pub fn complaint(&self, finding: &Finding) -> Option<String> {
        match (&finding.violation, self.expected) {
            (Some(violation), Expected::Holds) => Some(violation.to_string()),
            (None, Expected::Caught) => Some("the flaw was not noticed".to_owned()),
            (None, Expected::Holds) if !finding.unseen.is_empty() => {
                Some(format!("never came across {}", finding.unseen.join(", ")))
            }
            (Some(_), Expected::Caught) | (None, Expected::Holds) => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { states, steps, depth, took, violation, seen, .. } = self;
        let found = violation.as_ref().map_or("nothing wrong", |violation| violation.property);
        write!(f, "{states} states, {steps} steps, depth {depth}, {:.1} s: ", took.as_secs_f64())?;
        match violation {
            None => write!(f, "{found}; {seen}"),
            Some(_) => write!(f, "does not hold: {found}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "does not hold: {}", self.property)?;
        for (i, step) in (1..).zip(&self.history) {
            writeln!(f, "{i:4}. {step}")?;
        }
        Ok(())
    }
}

/// Something that can be told to people.
pub(crate) trait Tell {
    /// What is told of it.
    fn tell(&self) -> String;
}

fn search<M>(model: M, threads: usize, sightings: &Sightings, must_see: &[Sight]) -> Finding
where
    M: Model + Send + Sync + 'static,
    M::State: Tell + Clone + Hash + PartialEq + Send + Sync,
    M::Action: Tell + Clone + PartialEq,
{
    let began = Instant::now();
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let took = began.elapsed();
    let discovery = checker.discoveries().into_iter().next();
    // The ways are walked once more on this thread, and left as they should be.
    SeededBug::plant(None);
    let unseen = must_see.iter().filter(|sight| sightings.count(**sight) == 0);
    Finding {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        took,
        violation: discovery.map(|(property, path)| violation(property, path)),
        seen: sightings.to_string(),
        unseen: unseen.map(|sight| format!("{sight:?}")).collect(),
    }
}

fn violation<S: Tell, A: Tell>(property: &'static str, path: Path<S, A>) -> Violation {
    let mut steps = path.into_vec().into_iter().peekable();
    let mut history = Vec::new();
    while let Some((_, action)) = steps.next() {
        if let (Some(action), Some((state, _))) = (action, steps.peek()) {
            history.push(format!("{:64} {}", action.tell(), state.tell()));
        }
    }
    Violation { property, history }
}
