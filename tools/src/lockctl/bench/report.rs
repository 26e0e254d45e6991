//! The figures, as printed.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::crowd::Served;
use super::{BLOCKS, Bench, PREFIX};
use crate::lockctl::spread::{Spread, millis, rounded};
use crate::output::chain;

/// What one client alone measured, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    reads: Vec<u64>,
    locks: Vec<u64>,
    unlocks: Vec<u64>,
    both: Vec<u64>,
    errors: BTreeMap<String, u64>,
}

impl Alone {
    pub(super) fn note(&mut self, read: Duration, lock: Duration, unlock: Duration) {
        self.reads.push(nanos(read));
        self.locks.push(nanos(lock));
        self.unlocks.push(nanos(unlock));
        self.both.push(nanos(lock + unlock));
    }

    pub(super) fn fail(&mut self, error: &dyn Error) {
        *self.errors.entry(chain(error)).or_default() += 1;
    }

    fn spreads(&self) -> [Spread; 4] {
        [&self.reads, &self.locks, &self.unlocks, &self.both]
            .map(|times| Spread::new(times.iter().copied()))
    }
}

/// All figures.
pub(super) struct Report {
    pub(super) bench: Bench,
    /// The signal that ended the measurement.
    pub(super) interrupted: Option<u8>,
}

impl Report {
    pub(super) fn exit_code(&self) -> u8 {
        match self.interrupted {
            Some(signal) => 128 + signal,
            None => u8::from(self.bench.alone.locks.is_empty()),
        }
    }

    fn errors(&self) -> BTreeMap<&str, u64> {
        let contended = self.bench.contended.iter().flat_map(|(_, served)| &served.errors);
        let mut errors = BTreeMap::new();
        for (error, count) in self.bench.alone.errors.iter().chain(contended) {
            *errors.entry(error.as_str()).or_default() += count;
        }
        errors
    }

    pub(super) fn text(&self) -> String {
        let Bench { options, alone, contended, .. } = &self.bench;
        let mut text = format!(
            "each figure: {:?} in blocks that alternate, after a warm-up of {:?}; medians and 99th \
             percentiles\n\n",
            options.length, options.warm_up
        );
        let rows = ["read of the lock's rows", "lock", "unlock", "lock and unlock"];
        let rows = rows.into_iter().zip(alone.spreads()).map(|(what, spread)| {
            vec![what.to_owned(), millis(spread.median()), millis(spread.p99())]
        });
        text += &table(&["ONE CLIENT ALONE", "MEDIAN", "P99"], rows);
        text.push('\n');
        let rows = contended.iter().map(|(clients, served)| row(*clients, served));
        text += &table(&CONTENDED, rows);
        let block = options.length / BLOCKS;
        let waits = |served: &Served| Spread::new(served.waits.iter().copied()).p99();
        let longest = contended.iter().filter_map(|(_, served)| waits(served)).fold(0.0, f64::max);
        if longest > block.as_secs_f64() * 1000.0 / 2.0 {
            let _ = writeln!(
                text,
                "waits are nearly as long as a block of {block:?}: measure longer with --for"
            );
        }
        for (error, count) in self.errors() {
            let _ = writeln!(text, "error    {count} times: {error}");
        }
        if self.interrupted.is_some() {
            text.push_str("interrupted: these are the figures until then\n");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let Bench { options, run, alone, contended, .. } = &self.bench;
        let [read, lock, unlock, both] = alone.spreads();
        let spread = |spread: &Spread| {
            json!({
                "count": spread.count(),
                "median": rounded(spread.median()),
                "p99": rounded(spread.p99()),
            })
        };
        let contended: Vec<_> = contended
            .iter()
            .map(|(clients, served)| {
                let waits = Spread::new(served.waits.iter().copied());
                json!({
                    "clients": clients,
                    "seconds": rounded(Some(served.time.as_secs_f64())),
                    "grants": served.total(),
                    "grants_per_second": rounded(Some(served.per_second(served.total()))),
                    "handoffs_per_second": rounded(Some(served.per_second(served.handoffs))),
                    "wait_ms": spread(&waits),
                    "worst_share": rounded(served.worst_share()),
                    "operations_per_grant": rounded(served.operations_per_grant()),
                })
            })
            .collect();
        json!({
            "run": run,
            "prefix": format!("{PREFIX}{run}::"),
            "warm_up_seconds": options.warm_up.as_secs_f64(),
            "seconds": options.length.as_secs_f64(),
            "alone": {
                "read_ms": spread(&read),
                "lock_ms": spread(&lock),
                "unlock_ms": spread(&unlock),
                "lock_and_unlock_ms": spread(&both),
            },
            "contended": contended,
            "errors": self.errors(),
            "interrupted": self.interrupted.is_some(),
        })
    }
}

const CONTENDED: [&str; 7] = [
    "CLIENTS OF ONE LOCK",
    "GRANTS/S",
    "HANDOFFS/S",
    "WAIT",
    "P99",
    "WORST SHARE",
    "OPERATIONS/GRANT",
];

fn row(clients: u16, served: &Served) -> Vec<String> {
    let waits = Spread::new(served.waits.iter().copied());
    let number = |number: Option<f64>, digits: usize| {
        number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
    };
    vec![
        clients.to_string(),
        number(Some(served.per_second(served.total())), 1),
        number(Some(served.per_second(served.handoffs)), 1),
        millis(waits.median()),
        millis(waits.p99()),
        number(served.worst_share(), 2),
        number(served.operations_per_grant(), 1),
    ]
}

/// A table whose first column says what is measured, and the others are figures.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.to_vec());
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let table = table.to_string();
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
