//! Tables for people, as Markdown.

use comfy_table::{CellAlignment, Table, presets};

use crate::outcome::Outcome;

/// An empty table; its columns from `numbers_from` on are aligned to the right.
pub fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Targets, with what was measured.
pub fn outcomes(targets: &[Outcome]) -> Table {
    let mut table = table(&["figure", "target", "measured (least to most)", ""], 2);
    for target in targets {
        let judged = match target.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let measured = target.measured.map_or_else(String::new, |[least, median, most]| {
            let [least, median, most] = [least, median, most].map(|it| number(Some(it), 2));
            format!("{median} ({least} to {most})")
        });
        let bound = target.bound.to_string();
        table.add_row([target.what.as_str(), &bound, &measured, judged]);
    }
    table
}

/// A figure that may be so small that one digit would say nothing: turns within one client cost
/// next to no operations.
pub fn small(figure: Option<f64>) -> String {
    number(figure, if figure.is_some_and(|it| it < 0.1) { 5 } else { 1 })
}

/// A figure with this many digits; empty where there is none.
pub fn number(figure: Option<f64>, digits: usize) -> String {
    match figure {
        None => String::new(),
        Some(figure) if figure > 1e9 => "without bound".to_owned(),
        Some(figure) => format!("{figure:.digits$}"),
    }
}
