//! What a storm came to, as tables.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use super::ledger::{Ledger, Violations};

/// What a storm came to.
pub(crate) struct Report<'a> {
    /// How often each kind of fault happened.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// How long faults came and went.
    pub(crate) stormed: Duration,
    /// How long it took until every task was served after that.
    pub(crate) healed: Duration,
    pub(crate) ledger: &'a Ledger,
    /// What is wrong with its histories.
    pub(crate) violations: Violations,
    /// How many are to be served.
    pub(crate) tasks: usize,
    /// How many clients keep places.
    pub(crate) peers: usize,
    /// Rows that are left, by object.
    pub(crate) rows: BTreeMap<String, Vec<String>>,
}

impl Report<'_> {
    /// How many things are wrong.
    pub(crate) fn wrong(&self) -> usize {
        let Violations { overlaps, inversions, lingering, tokens } = &self.violations;
        let histories = overlaps.len() + inversions.len() + lingering.len() + tokens.len();
        histories + self.unserved() + self.rows.len()
    }

    fn unserved(&self) -> usize {
        self.tasks - self.ledger.served()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { faults, stormed, healed, ledger, violations, peers, rows, .. } = self;
        writeln!(f, "{}\n", table("fault", faults.iter().map(|(kind, n)| (*kind, n.to_string()))))?;
        let millis = |time: Duration| format!("{} ms", time.as_millis());
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let grants = [
            ("grants", ledger.grants.to_string()),
            ("contended grants", ledger.contended.to_string()),
            ("turns of guests", ledger.subleases.to_string()),
            ("turns of kept places", ledger.kept_used().to_string()),
            (
                "turns of kept places, the client with peers that had fewest",
                ledger.fewest_kept_used(*peers).to_string(),
            ),
            (
                "a client in the table was overtaken by turns for, at most",
                millis(ledger.overtaken()),
            ),
            ("leases lost", ledger.lost().to_string()),
            ("tokens", ledger.tokens.to_string()),
            ("wait, median", millis(ledger.wait(50.0))),
            ("wait, 99 of 100", millis(ledger.wait(99.0))),
            ("wait, longest", millis(ledger.wait(100.0))),
            ("time with faults", seconds(*stormed)),
            ("time until all were served after them", seconds(*healed)),
        ];
        writeln!(f, "{}\n", table("locks", grants.into_iter()))?;
        let failures = ledger.failures.iter().map(|(kind, n)| (kind.as_str(), n.to_string()));
        writeln!(f, "{}\n", table("what did not come to a good end", failures))?;
        let Violations { overlaps, inversions, lingering, tokens } = violations;
        let found = [
            ("names with two holders at once", overlaps.len()),
            ("names where a contender was overtaken", inversions.len()),
            ("names where turns went on beside a client in the table", lingering.len()),
            ("names whose tokens do not grow", tokens.len()),
            ("tasks that were not served", self.unserved()),
            ("names with rows that are left", rows.len()),
        ];
        let found = found.into_iter().map(|(kind, n)| (kind, n.to_string()));
        write!(f, "{}", table("violation", found))?;
        for case in [overlaps, inversions, lingering, tokens].into_iter().flatten() {
            write!(f, "\n{case}")?;
        }
        for (object, rows) in rows {
            write!(f, "\n{object}: {rows:?}")?;
        }
        Ok(())
    }
}

/// A table of Markdown with numbers.
fn table<'a>(header: &str, lines: impl Iterator<Item = (&'a str, String)>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([header, ""]);
    for (what, number) in lines {
        table.add_row([what.to_owned(), number]);
    }
    let numbers = table.column_mut(1).expect("the header has two columns");
    numbers.set_cell_alignment(CellAlignment::Right);
    table
}
