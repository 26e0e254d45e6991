//! What all clients told, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::said::{LOST, NO_OBJECT, Said, What};
use support::history::{
    Drawn, End, Moment, Place, Round, disorder, lingering, overlap, overtaken, overtaking,
};

/// Longer than any client waits, in microseconds.
const WAIT_MAX: u64 = 1_000_000_000;

/// Turns are given for less than this once the keeper knows that another client waits in the table.
const TURNS_BESIDE_OTHERS: Duration = Duration::from_millis(100);

/// What all clients told.
#[derive(Debug)]
pub(crate) struct Ledger {
    objects: BTreeMap<String, Object>,
    /// Which client holds what, and since when.
    holds: BTreeMap<(usize, String), u64>,
    /// How long clients waited before they were let in, in microseconds.
    waits: Histogram<u64>,
    pub(crate) grants: u64,
    /// Grants that were turns of places that other clients keep.
    pub(crate) subleases: u64,
    /// Grants that were waited for with a ticket, because another client was there.
    pub(crate) contended: u64,
    pub(crate) tokens: u64,
    /// Turns of kept places, by the client that kept them.
    kept_used: BTreeMap<usize, u64>,
    /// What did not come to a good end, by kind.
    pub(crate) failures: BTreeMap<String, u64>,
    served: BTreeSet<(usize, String)>,
}

#[derive(Debug, Default)]
struct Object {
    moments: Vec<Moment>,
    tokens: Vec<Drawn>,
}

/// What broke an invariant: the first case of each object.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    pub(crate) overlaps: Vec<String>,
    pub(crate) inversions: Vec<String>,
    pub(crate) lingering: Vec<String>,
    pub(crate) tokens: Vec<String>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Ledger {
            objects: BTreeMap::new(),
            holds: BTreeMap::new(),
            waits: Histogram::new_with_max(WAIT_MAX, 3).expect("three digits are allowed"),
            grants: 0,
            subleases: 0,
            contended: 0,
            tokens: 0,
            kept_used: BTreeMap::new(),
            failures: BTreeMap::new(),
            served: BTreeSet::new(),
        }
    }

    /// Takes what a client says.
    pub(crate) fn note(&mut self, client: usize, said: Said) {
        let Said { object: name, what } = said;
        let object = self.objects.entry(name.clone()).or_default();
        match what {
            What::LetIn { waited, is_lent } => {
                self.grants += 1;
                self.subleases += u64::from(is_lent);
                self.waits.saturating_record(waited / 1_000);
            }
            What::Holds { from } => {
                self.holds.insert((client, name), from);
            }
            What::Past(moment) => {
                if is_contended(&moment) {
                    self.contended += 1;
                }
                if matches!(moment, Moment::Held { .. }) {
                    self.holds.remove(&(client, name));
                }
                object.moments.push(moment);
            }
            What::Drew(drawn) => {
                self.tokens += 1;
                object.tokens.push(drawn);
            }
            What::Failed(how) => *self.failures.entry(how).or_default() += 1,
            What::Served => {
                self.served.insert((client, name));
            }
            What::UsedKept(turns) => *self.kept_used.entry(client).or_default() += turns,
        }
    }

    /// Takes notice that a client was killed: what it held, it held until then.
    pub(crate) fn died(&mut self, client: usize, until: u64) {
        for ((holder, name), from) in std::mem::take(&mut self.holds) {
            if holder != client {
                self.holds.insert((holder, name), from);
                continue;
            }
            // It may have said that it holds after the moment that counts as its death.
            let held = Moment::Held { from: from.min(until), until };
            self.objects.entry(name).or_default().moments.push(held);
        }
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.keys().filter(|name| *name != NO_OBJECT).cloned().collect()
    }

    /// How many locks were lost before they were given back.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.failures.iter().filter(|(how, _)| how.starts_with(LOST));
        lost.map(|(_, times)| times).sum()
    }

    /// How many tasks got their lock after all had been healed.
    pub(crate) fn served(&self) -> usize {
        self.served.len()
    }

    /// How many turns of kept places there were, of all clients,
    pub(crate) fn kept_used(&self) -> u64 {
        self.kept_used.values().sum()
    }

    /// and of the client with the fewest of this many.
    pub(crate) fn fewest_kept_used(&self, clients: usize) -> u64 {
        let of = |client| self.kept_used.get(&client).copied().unwrap_or(0);
        (0..clients).map(of).min().unwrap_or(0)
    }

    /// For how long turns were given while another client waited in the table, at most.
    pub(crate) fn overtaken(&self) -> Duration {
        let objects = self.objects.values();
        objects.map(|object| overtaken(&object.moments)).max().unwrap_or_default()
    }

    /// What is wrong with the histories.
    pub(crate) fn violations(&self) -> Violations {
        let mut all = Violations::default();
        for (name, Object { moments, tokens }) in &self.objects {
            let shown = |case: String| format!("{name}: {case}");
            all.overlaps.extend(overlap(moments).map(|case| shown(format!("{case:?}"))));
            all.inversions.extend(overtaking(moments).map(|case| shown(format!("{case:?}"))));
            let lingering = lingering(moments, TURNS_BESIDE_OTHERS);
            all.lingering.extend(lingering.map(|case| shown(format!("{case:?}"))));
            all.tokens.extend(disorder(tokens).map(|case| shown(format!("{case:?}"))));
        }
        all
    }

    /// All histories, a line for each moment, for the search for the cause of a violation.
    pub(crate) fn histories(&self) -> String {
        let mut lines = String::new();
        for (name, Object { moments, tokens }) in &self.objects {
            for moment in moments {
                lines += &format!("{name} {moment}\n");
            }
            for Drawn { asked, given, value } in tokens {
                lines += &format!("{name} drew {asked} {given} {value}\n");
            }
        }
        lines
    }

    /// How long this many of a hundred waited at most.
    pub(crate) fn wait(&self, percentile: f64) -> Duration {
        Duration::from_micros(self.waits.value_at_percentile(percentile))
    }
}

fn is_contended(moment: &Moment) -> bool {
    matches!(moment, Moment::Round(Round { drawn: Some(_), end: End::Granted(_), .. }))
}

mod tests {
    use super::*;

    fn ledger(said: &[(usize, &str, What)]) -> Ledger {
        let mut ledger = Ledger::new();
        for (client, object, what) in said {
            let said = Said { object: (*object).to_owned(), what: what.clone() };
            ledger.note(*client, said);
        }
        ledger
    }

    fn counts(ledger: &Ledger) -> [usize; 4] {
        let Violations { overlaps, inversions, lingering, tokens } = ledger.violations();
        [overlaps.len(), inversions.len(), lingering.len(), tokens.len()]
    }

    // Goal: each kind of violation is found, name by name, and what is no violation is not.
    // Method: made-up histories of several clients.
    #[test]
    fn each_violation_is_found() {
        let held = |from, until| What::Past(Moment::Held { from, until });
        let round = |announced, drawn, granted| {
            let end = End::Granted(granted);
            What::Past(Moment::Round(Round { announced, drawn, end }))
        };
        let drew = |asked, value| What::Drew(Drawn { asked, given: asked + 1, value });
        let place =
            |beside| What::Past(Moment::Place(Place { held: 1, last_turn: 300_000_000, beside }));
        let good = [
            (0, "a", held(1, 5)),
            (1, "a", held(5, 9)),
            (1, "b", held(2, 4)),
            (0, "a", round(1, Some(2), 5)),
            (1, "a", round(3, Some(4), 6)),
            (0, "a", drew(1, 10)),
            (1, "a", drew(3, 11)),
            (1, "b", drew(5, 3)),
            (1, "b", place(100_000_000)),
        ];
        assert_eq!(counts(&ledger(&good)), [0, 0, 0, 0]);
        assert_eq!(ledger(&good).contended, 2);
        let with = |bad| counts(&ledger(&[&good[..], &[bad]].concat()));
        assert_eq!(with((2, "a", held(8, 9))), [1, 0, 0, 0]);
        assert_eq!(with((2, "a", round(3, None, 4))), [0, 1, 0, 0]);
        assert_eq!(with((2, "a", place(100_000_001))), [0, 0, 1, 0]);
        assert_eq!(with((2, "a", drew(9, 11))), [0, 0, 0, 1]);
    }

    // Goal: a client that never used a kept place is noticed.
    // Method: three clients, of which two report uses.
    #[test]
    fn uses_of_kept_places_are_counted_by_client() {
        let ledger = ledger(&[
            (0, NO_OBJECT, What::UsedKept(3)),
            (1, NO_OBJECT, What::UsedKept(1)),
            (0, NO_OBJECT, What::UsedKept(4)),
        ]);
        assert_eq!(ledger.kept_used(), 8);
        assert_eq!(ledger.fewest_kept_used(2), 1);
        assert_eq!(ledger.fewest_kept_used(3), 0);
    }

    // Goal: a killed client held the lock until then, and no other client may have had it.
    // Method: made-up histories of a client that dies and one that lives.
    #[test]
    fn killed_client_held_until_then() {
        let holds = (0, "a", What::Holds { from: 2 });
        let mut killed = ledger(&[holds.clone(), (1, "a", What::Holds { from: 9 })]);
        killed.died(0, 5);
        killed.note(
            1,
            Said { object: "a".to_owned(), what: What::Past(Moment::Held { from: 9, until: 10 }) },
        );
        assert_eq!(counts(&killed), [0, 0, 0, 0]);
        let mut overlapping = ledger(&[holds, (1, "a", What::Holds { from: 4 })]);
        overlapping.died(0, 5);
        overlapping.died(1, 6);
        assert_eq!(counts(&overlapping), [1, 0, 0, 0]);
    }
}
