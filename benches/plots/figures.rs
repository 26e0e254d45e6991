//! What is drawn of the records: medians over the half rounds.

use std::collections::BTreeSet;

use common::record::{Record, Which};

use crate::chart::{Bars, Lines, Scale};

/// Lock and unlock of one client alone.
pub(crate) fn uncontended(records: &[Record]) -> Bars {
    let bars = sides(records, "uncontended").into_iter().filter_map(|side| {
        let which = Which { side: &side, measure: "uncontended", parameter: None };
        Some((side.clone(), which.median(records, "both_ms.p50")?))
    });
    let mut bars: Vec<_> = bars.collect();
    bars.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    Bars { title: "Lock and unlock without contention, median", unit: "ms", bars }
}

/// How often one name goes from one process to another.
pub(crate) fn handoffs(records: &[Record]) -> Lines {
    Lines {
        title: "One name that all want: handoffs per second",
        across: "contenders, each a process (local turns: a task)",
        up: "handoffs per second",
        scale: Scale::Powers,
        lines: lines(records, "hot name", "contenders", "handoffs_per_second"),
    }
}

/// Locks of names of their own.
pub(crate) fn distinct(records: &[Record]) -> Lines {
    Lines {
        title: "A name for each caller: locks per second",
        across: "callers of one client",
        up: "locks per second",
        scale: Scale::Powers,
        lines: lines(records, "distinct names", "callers", "grants_per_second"),
    }
}

/// What a lock costs through the table.
pub(crate) fn operations(records: &[Record]) -> Lines {
    let mut lines = lines(records, "waiters", "clients", "operations_per_grant");
    let bound = self::lines(records, "waiters", "clients", "bound").into_iter().next();
    lines.extend(bound.map(|(_, points)| ("7 + 2 log2 n".to_owned(), points)));
    Lines {
        title: "Operations for a lock that n clients want, table only",
        across: "clients",
        up: "operations per lock",
        scale: Scale::Doubling,
        lines,
    }
}

/// One name that is locked over and over.
pub(crate) fn age(records: &[Record]) -> Lines {
    Lines {
        title: "A lock of one name, after many locks of it, and of young names",
        across: "locks of the name before",
        up: "ms, median",
        scale: Scale::Linear,
        lines: lines(records, "age", "locks", "lock_ms.p50"),
    }
}

/// A line for each side that has the figure and gets anything done at all.
fn lines(
    records: &[Record],
    measure: &str,
    parameter: &str,
    path: &str,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let values: BTreeSet<u64> = records
        .iter()
        .filter(|record| record.measure == measure)
        .filter_map(|record| record.parameters.get(parameter).copied())
        .collect();
    let line = |side: String| {
        let point = |value: &u64| {
            let which = Which { side: &side, measure, parameter: Some((parameter, *value)) };
            let figure = which.median(records, path)?;
            (figure > 0.0).then_some((*value as f64, figure))
        };
        let points: Vec<_> = values.iter().filter_map(point).collect();
        (side, points)
    };
    sides(records, measure).into_iter().map(line).filter(|(_, points)| points.len() > 1).collect()
}

/// In the order in which they were measured first.
fn sides(records: &[Record], measure: &str) -> Vec<String> {
    let mut sides: Vec<String> = Vec::new();
    for record in records.iter().filter(|record| record.measure == measure) {
        if !sides.contains(&record.side) {
            sides.push(record.side.clone());
        }
    }
    sides
}
