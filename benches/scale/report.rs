//! What a run says: tables for people, and all figures as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use comfy_table::Table;
use common::origin::Origin;
use common::outcome::{Bound, Outcome};
use common::record::{Record, Value, Which};
use common::table::{number, outcomes, table};
use serde::Serialize;

use crate::arguments::Sizes;
use crate::ground::{BARE, LOCK, OLD, YOUNG};
use crate::{age, expired, flushes, held, leavers, names, waiters};

/// All of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Raised when a reader of older files would misread this one.
    format: u32,
    #[serde(flatten)]
    origin: Origin,
    cassandra: String,
    pub(crate) sizes: Sizes,
    targets: Vec<Outcome>,
    records: Vec<Record>,
}

impl Report {
    /// A report without any figures yet.
    pub(crate) fn new(cassandra: String, sizes: Sizes) -> Self {
        let (targets, records) = (Vec::new(), Vec::new());
        Report { format: 1, origin: Origin::now(), cassandra, sizes, targets, records }
    }

    /// Adds what was measured.
    pub(crate) fn add(&mut self, records: Vec<Record>) {
        self.origin = Origin::now();
        self.records.extend(records);
        self.targets = judge(&self.records, &self.sizes);
    }

    /// Prints all tables, as Markdown.
    pub(crate) fn print(&self) {
        println!("\n{}\nApache Cassandra {}", self.origin, self.cassandra);
        let mut measures: Vec<&str> = Vec::new();
        for record in &self.records {
            if !measures.contains(&record.measure.as_str()) {
                measures.push(&record.measure);
            }
        }
        for measure in measures {
            println!("\n### {measure}\n");
            for side in sides(&self.records, measure) {
                println!("{side}:\n\n{}\n", figures(&self.records, measure, side));
            }
        }
        println!("\n### Targets\n\n{}", outcomes(&self.targets));
    }

    /// Keeps all figures.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(file, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }
}

fn sides<'a>(records: &'a [Record], measure: &str) -> Vec<&'a str> {
    let mut sides: Vec<&str> = Vec::new();
    for record in records.iter().filter(|record| record.measure == measure) {
        if !sides.contains(&record.side.as_str()) {
            sides.push(&record.side);
        }
    }
    sides
}

/// A row for each parameter: medians over the rounds, of durations the median (99th percentile).
fn figures(records: &[Record], measure: &str, side: &str) -> Table {
    let of = Which { side, measure, parameter: None }.of(records);
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
    for record in of {
        columns.extend(record.values.keys().map(String::as_str));
        let parameter = record.parameters.values().next().copied().unwrap_or(0);
        rows.entry(parameter).or_default().push(record);
    }
    columns.sort_unstable();
    columns.dedup();
    let named = records.iter().find(|record| record.measure == measure);
    let parameter = named.and_then(|it| it.parameters.keys().next()).map_or("", String::as_str);
    let header: Vec<_> = [parameter].into_iter().chain(columns.iter().copied()).collect();
    let mut table = table(&header, 0);
    for (parameter, records) in rows {
        let cell = |column: &str| {
            let at = |path: String| {
                let all: Vec<_> = records.iter().filter_map(|it| it.figure(&path)).collect();
                (!all.is_empty()).then(|| common::quantiles::median(&all))
            };
            match records.iter().find_map(|record| record.values.get(column)) {
                None => String::new(),
                Some(Value::Number(_)) => number(at(column.to_owned()), 2),
                Some(Value::Quantiles(_)) => {
                    let (median, p99) = (at(format!("{column}.p50")), at(format!("{column}.p99")));
                    format!("{} ({})", number(median, 2), number(p99, 2))
                }
            }
        };
        table.add_row([parameter.to_string()].into_iter().chain(columns.iter().map(|it| cell(it))));
    }
    table
}

/// What the figures shall be.
fn judge(records: &[Record], sizes: &Sizes) -> Vec<Outcome> {
    let which = |side, measure, parameter| Which { side, measure, parameter };
    let of_floor = |what: &str, measure, parameter| {
        let (ours, floor) = (which(LOCK, measure, parameter), which(BARE, measure, parameter));
        let bound = Bound::AtMost(1.1);
        Outcome::ratio(what, bound, records, (ours, "lock_ms.p50"), (floor, "both_ms.p50"))
    };
    let of_young = |what: &str, bound, measure, parameter| {
        let (old, young) = (which(OLD, measure, parameter), which(YOUNG, measure, parameter));
        let bound = Bound::AtMost(bound);
        Outcome::ratio(what, bound, records, (old, "lock_ms.p50"), (young, "lock_ms.p50"))
    };
    let operations = |waiters: u32| {
        let parameter = Some((waiters::CLIENTS, u64::from(waiters)));
        let bound = match waiters {
            32 => 12.0,
            _ => 7.0 + 2.0 * f64::from(waiters).log2(),
        };
        Outcome::figure(
            format!("{waiters} waiters: operations per grant"),
            Bound::AtMost(bound),
            records,
            which("table only", waiters::MEASURE, parameter),
            "operations_per_grant",
        )
    };
    let flushed = |flushes| Some((flushes::FLUSHES, flushes));
    let mut targets = vec![
        of_floor("lock / (bare write + bare read), before a flush", flushes::MEASURE, flushed(0)),
        of_floor("lock / (bare write + bare read), after a flush", flushes::MEASURE, flushed(1)),
        of_floor("lock / (bare write + bare read), after three", flushes::MEASURE, flushed(3)),
    ];
    targets.extend(sizes.waiters.iter().map(|waiters| operations(*waiters)));
    let held = Some((held::LOCKS, u64::from(sizes.held)));
    let named = Some((names::NAMES, u64::from(sizes.names)));
    let locks = Some((age::LOCKS, u64::from(sizes.locks)));
    targets.extend([
        of_floor("lock / floor, beside all the held locks", held::MEASURE, held),
        of_floor("lock / floor, after all the names", names::MEASURE, named),
    ]);
    for (bound, numbers, what, measure) in [
        (1.3, sizes.died, "clients died", leavers::DIED),
        (1.3, sizes.died, "clients died and a flush", leavers::DIED_FLUSHED),
        (1.3, sizes.expired, "clients' rows expired", expired::MEASURE),
        (1.3, sizes.expired, "clients' rows expired and a flush", expired::FLUSHED),
        (1.5, sizes.left, "clients left", leavers::LEFT),
        (1.5, sizes.left, "clients left and a flush", leavers::LEFT_FLUSHED),
    ] {
        let clients = u64::from(numbers.last().copied().unwrap_or(0));
        let what = format!("lock after {clients} {what} / young names");
        targets.push(of_young(&what, bound, measure, Some((leavers::CLIENTS, clients))));
    }
    targets.push(of_young(
        &format!("lock after {} locks / young names", sizes.locks),
        1.2,
        age::MEASURE,
        locks,
    ));
    targets
}
