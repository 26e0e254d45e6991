//! Prints the tables, and keeps all figures as JSON.

pub(crate) mod summary;

use std::fs;
use std::io;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};

use crate::report::summary::{Quantiles, Ratio, Summary};

/// Prints all tables, as Markdown.
pub(crate) fn print(summary: &Summary) {
    println!("\nChoice of parameters for LWT: the most handoffs per second\n\n{}", tuning(summary));
    println!("\nUncontended, milliseconds: median (99th percentile)\n\n{}", uncontended(summary));
    println!(
        "\nContended, waits in milliseconds: median (99th percentile)\n\n{}",
        contended(summary)
    );
    println!("\nVery many callers of one client: microseconds per grant\n\n{}", crowds(summary));
    println!("\nRatios, each between figures of the same half round\n\n{}", ratios(summary));
}

/// Keeps all figures.
pub(crate) fn write_json(summary: &Summary, file: &Path) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let json = serde_json::to_string_pretty(summary)?;
    fs::write(file, json + "\n")
}

fn tuning(summary: &Summary) -> Table {
    let header =
        ["side", "contenders", "parameters", "grants/s", "handoffs/s", "errors", "worst share", ""];
    let mut table = table(&header, 3);
    for line in &summary.tuning {
        table.add_row([
            line.side.clone(),
            line.contenders.to_string(),
            line.parameters.clone(),
            format!("{:.1}", line.grants_per_second),
            format!("{:.1}", line.handoffs_per_second),
            line.errors.to_string(),
            format!("{:.2}", line.worst_share),
            if line.chosen { "chosen".to_owned() } else { String::new() },
        ]);
    }
    table
}

fn uncontended(summary: &Summary) -> Table {
    let mut table = table(&["side", "pairs", "lock or write", "unlock or read", "both"], 1);
    for line in &summary.uncontended {
        table.add_row([
            line.side.clone(),
            line.pairs.to_string(),
            milliseconds(line.lock),
            milliseconds(line.unlock),
            milliseconds(line.both),
        ]);
    }
    table
}

fn contended(summary: &Summary) -> Table {
    let header = [
        "side",
        "contenders",
        "grants/s",
        "handoffs/s",
        "errors",
        "worst share (worst slot)",
        "wait",
        "handoff",
        "operations per grant",
        "whole reads",
        "failed statements/s",
    ];
    let mut table = table(&header, 1);
    for line in &summary.contended {
        table.add_row([
            line.side.clone(),
            line.contenders.to_string(),
            format!("{:.1}", line.grants_per_second),
            format!("{:.1}", line.handoffs_per_second),
            line.errors.to_string(),
            format!("{:.2} ({:.2})", line.worst_share, line.worst_share_min),
            milliseconds(line.wait),
            milliseconds(line.handoff),
            per_grant(line.operations_per_grant),
            per_grant(line.whole_reads_per_grant),
            format!("{:.1}", line.failed_statements_per_second),
        ]);
    }
    table
}

fn crowds(summary: &Summary) -> Table {
    let mut table = table(&["callers", "median", "least", "most"], 1);
    for line in &summary.crowds {
        let Ratio { median, min, max, .. } = line.micros_per_grant;
        let figures = [median, min, max].map(|figure| format!("{figure:.1}"));
        table.add_row([vec![line.callers.to_string()], figures.to_vec()].concat());
    }
    table
}

fn ratios(summary: &Summary) -> Table {
    let mut table = table(&["ratio", "median", "least", "most"], 1);
    for ratio in &summary.ratios {
        let figures = [ratio.median, ratio.min, ratio.max].map(|figure| format!("{figure:.2}"));
        table.add_row([vec![ratio.what.clone()], figures.to_vec()].concat());
    }
    table
}

/// An empty table; its columns from `numbers_from` on are aligned to the right.
fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Turns within one client cost so few operations that one digit would say none.
fn per_grant(operations: f64) -> String {
    if operations < 0.1 { format!("{operations:.5}") } else { format!("{operations:.1}") }
}

fn milliseconds(quantiles: Quantiles) -> String {
    format!("{:.2} ({:.2})", quantiles.median, quantiles.p99)
}
