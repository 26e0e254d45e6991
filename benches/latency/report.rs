//! The tables, as Markdown.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use crate::Predictions;
use crate::contended::{Contended, Way};
use crate::measured::Quantiles;
use crate::validation::Validation;

pub(crate) fn predictions(predictions: &Predictions) -> String {
    let mut alone = table(&["", "client in", "lock", "unlock", "both"], 2);
    for line in &predictions.alone {
        alone.add_row([
            line.scenario.clone(),
            line.zone.to_owned(),
            milliseconds(line.lock),
            milliseconds(line.unlock),
            milliseconds(line.both),
        ]);
    }
    let mut apart =
        table(&["", "clients", "handoffs/s", "operations per grant", "worst share", "wait"], 1);
    let mut ways = table(&["", "callers take", "grants/s", "operations per grant", "wait"], 2);
    for line in &predictions.contended {
        let Contended { contest, operations_per_grant, .. } = line;
        let (scenario, handoffs) = (line.scenario.clone(), rate(line.handoffs_per_second));
        let (operations, wait) = (rate(*operations_per_grant), milliseconds(line.wait));
        if contest.hold_ms == 0 {
            let share = format!("{:.2}", line.worst_share);
            apart.add_row([
                scenario,
                contest.clients.to_string(),
                handoffs,
                operations,
                share,
                wait,
            ]);
        } else {
            ways.add_row([scenario, contest.way.to_string(), handoffs, operations, wait]);
        }
    }
    format!(
        "Uncontended, milliseconds: median (99th percentile)\n\n{alone}\n\n\
         Contended, a client each, no turns; waits in milliseconds\n\n{apart}\n\n\
         32 callers that hold the lock for 2 ms, in 4 processes\n\n{ways}"
    )
}

pub(crate) fn validation(validation: &Validation) -> String {
    let mut lines = table(
        &["round trip", "", "predicted", "measured (least to largest)", "measured / predicted"],
        2,
    );
    for line in &validation.lines {
        lines.add_row([
            line.delays.to_owned(),
            line.figure.clone(),
            rate(line.predicted),
            format!("{} ({} to {})", rate(line.measured), rate(line.least), rate(line.largest)),
            format!("{:.2}", line.measured / line.predicted),
        ]);
    }
    let mut work = table(&["before", "write", "read of a row", "read of an object"], 1);
    for block in &validation.work {
        let [write, row_read, object_read] = block.work.map(milliseconds);
        work.add_row([block.delays.to_owned(), write, row_read, object_read]);
    }
    let [least, largest] = validation.load;
    format!(
        "Load of the machine: {least} to {largest}\n\n\
         Work of nodes without delays, milliseconds: median (99th percentile)\n\n{work}\n\n\
         Predicted from that, and measured: median of {} rounds\n\n{lines}",
        validation.rounds
    )
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Table => "no turns",
            Way::LocalTurns => "turns of their client",
            Way::Subleases => "turns of all clients",
        })
    }
}

fn table(header: &[&str], texts: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn milliseconds(times: Quantiles) -> String {
    format!("{} ({})", rate(times.median), rate(times.p99))
}

/// Three digits, or all of those before the point.
fn rate(figure: f64) -> String {
    if figure < 10.0 {
        format!("{figure:.2}")
    } else if figure < 100.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.0}")
    }
}
