//! A run that breaks an invariant, and the smallest one to be found that breaks the same.

use std::fmt;

use super::batch::Invariant;
use super::plan::{Breach, Plan};
use super::shrink::smaller;
use super::world::{Outcome, run};
use super::{
    acknowledged, fifo, leaving, lines, min_hold, mutual_exclusion, overlap, promptness, rows,
    served, tokens,
};

/// A run that breaks an invariant.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) plan: Plan,
    /// What is broken, and how.
    pub(crate) broken: Vec<(Invariant, String)>,
    pub(crate) history: String,
    /// How often smaller plans were tried.
    pub(crate) tries: usize,
}

impl Failure {
    /// What a run has broken, if it has.
    pub(crate) fn of(plan: &Plan, outcome: &Outcome) -> Option<Self> {
        let Outcome { log, objects, .. } = outcome;
        let mut broken = Vec::new();
        for object in objects {
            let (exclusion, token_order) = match plan.breach {
                Breach::None => {
                    (mutual_exclusion::check(log, object), tokens::check_order(log, object))
                }
                // With its rows a holder has lost its place in the order.
                Breach::LostRows => (None, None),
                Breach::Force => (None, tokens::check_order(log, object)),
            };
            let checks = [
                (Invariant::MutualExclusion, exclusion),
                (Invariant::Overlap, overlap::check(plan, log, object)),
                (Invariant::MinHold, min_hold::check(plan, log, object)),
                (Invariant::TokenOrder, token_order),
                (Invariant::Fifo, fifo::check(plan, log, object)),
                (Invariant::Lines, lines::check(plan, log, object)),
                (Invariant::Tokens, tokens::check(plan, log, object)),
                (Invariant::Promptness, promptness::check(plan, log, object)),
                (Invariant::Rows, rows::check(log, object)),
            ];
            broken.extend(checks.into_iter().filter_map(|(kind, how)| Some((kind, how?))));
        }
        broken.extend(served::check(log).map(|how| (Invariant::Served, how)));
        broken.extend(acknowledged::check(plan, log).map(|how| (Invariant::Acknowledged, how)));
        broken.extend(acknowledged::check_waiters(plan, log).map(|how| (Invariant::Waiters, how)));
        broken.extend(leaving::check(log).map(|how| (Invariant::Leaving, how)));
        let (plan, history) = (plan.clone(), log.to_string());
        (!broken.is_empty()).then_some(Failure { plan, broken, history, tries: 0 })
    }

    /// How long its history is.
    pub(crate) fn lines(&self) -> usize {
        self.history.lines().count()
    }

    /// Whether it breaks this invariant.
    pub(crate) fn breaks(&self, invariant: Invariant) -> bool {
        self.broken.iter().any(|(broken, _)| *broken == invariant)
    }

    /// A smaller run that breaks the first invariant that this one breaks, after this many tries at
    /// most. Each try leaves out something of what is left.
    pub(crate) fn shrunk(mut self, most: usize) -> Self {
        let (invariant, _) = self.broken[0];
        while let Some(next) = self.next(invariant, most) {
            self = next;
        }
        self
    }

    /// The first smaller run that breaks an invariant, and is told in no more lines.
    fn next(&mut self, invariant: Invariant, most: usize) -> Option<Self> {
        for plan in smaller(&self.plan) {
            if self.tries == most {
                return None;
            }
            self.tries += 1;
            let failure = Failure::of(&plan, &run(&plan));
            let kept = failure.filter(|f| f.breaks(invariant) && f.lines() <= self.lines());
            if let Some(kept) = kept {
                return Some(Failure { tries: self.tries, ..kept });
            }
        }
        None
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { plan, broken, history, tries } = self;
        if *tries > 0 {
            writeln!(f, "after {tries} tries with less than the seed says:")?;
        }
        write!(f, "{plan}{history}")?;
        for (invariant, how) in broken {
            writeln!(f, "{invariant:?}: {how}")?;
        }
        Ok(())
    }
}
