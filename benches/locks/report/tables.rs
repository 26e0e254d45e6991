//! The tables of a run. Figures are medians over the half rounds.

use comfy_table::Table;
use common::outcome::ratio;
use common::record::{Record, Which};
use common::table::{number, small, table};

use crate::bench::Trial;
use crate::measures::{
    distinct as names, failures as faults, hot_name as hot, in_turn as turn, uncontended as alone,
};
use crate::servers::facts::Facts;
use crate::sides::{Kind, before};

pub(crate) fn servers(servers: &[Facts]) -> Table {
    let mut table = table(&["servers", "version", "number", "durability", "settings"], 5);
    for facts in servers {
        let Facts { system, version, servers, durability, settings } = facts;
        table.add_row([system.label(), version, &servers.to_string(), *durability, settings]);
    }
    table
}

pub(crate) fn tuning(trials: &[Trial]) -> Table {
    let header =
        ["side", "contenders", "parameters", "grants/s", "handoffs/s", "errors", "worst share", ""];
    let mut table = table(&header, 3);
    for Trial { parameters, chosen, record } in trials {
        let figure = |path, digits| number(record.figure(path), digits);
        table.add_row([
            record.side.clone(),
            record.parameters.get(hot::CONTENDERS).copied().unwrap_or(0).to_string(),
            parameters.clone(),
            figure("grants_per_second", 1),
            figure("handoffs_per_second", 1),
            figure("errors", 0),
            figure("worst_share", 2),
            if *chosen { "chosen".to_owned() } else { String::new() },
        ]);
    }
    table
}

pub(crate) fn uncontended(records: &[Record]) -> Table {
    let header = ["side", "pairs", "errors", "lock or write", "unlock or read", "both"];
    let mut table = table(&header, 1);
    for side in sides(records, alone::MEASURE) {
        let which = Which { side: &side, measure: alone::MEASURE, parameter: None };
        let sum = |path| which.figures(records, path).iter().map(|(_, it)| it).sum::<f64>();
        let numbers = [side.clone(), sum("both_ms.count").to_string(), sum("errors").to_string()];
        let times = ["lock_ms", "unlock_ms", "both_ms"].map(|name| {
            let at = |quantile| number(which.median(records, &format!("{name}.{quantile}")), 2);
            format!("{} ({}, {})", at("p50"), at("p99"), at("p999"))
        });
        table.add_row(numbers.into_iter().chain(times));
    }
    table
}

pub(crate) fn in_turn(records: &[Record], names: &[usize]) -> Table {
    let header = ["names", "side", "grants/s", "us per grant", "operations", "client's us"];
    let mut table = table(&header, 2);
    for &names in names {
        for side in sides(records, turn::MEASURE) {
            let parameter = Some((turn::NAMES, names as u64));
            let which = Which { side: &side, measure: turn::MEASURE, parameter };
            let median = |path: &str, digits| number(which.median(records, path), digits);
            table.add_row([
                names.to_string(),
                side.clone(),
                median("grants_per_second", 0),
                median("us_per_grant", 1),
                small(which.median(records, "operations_per_grant")),
                median("client_cpu_us_per_grant", 1),
            ]);
        }
    }
    table
}

pub(crate) fn distinct(records: &[Record], callers: &[usize]) -> Table {
    let most = callers.last().copied().unwrap_or(0);
    let mut header = vec!["side".to_owned()];
    header.extend(callers.iter().map(ToString::to_string));
    header.extend(["errors".to_owned(), format!("cost in us with {most}: client, servers")]);
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut table = table(&header, 1);
    for side in sides(records, names::MEASURE) {
        let of = |callers: usize| Which {
            side: &side,
            measure: names::MEASURE,
            parameter: Some((names::CALLERS, callers as u64)),
        };
        let mut row = vec![side.clone()];
        for &callers in callers {
            row.push(number(of(callers).median(records, "grants_per_second"), 0));
        }
        let all = Which { side: &side, measure: names::MEASURE, parameter: None };
        let errors: f64 = all.figures(records, "errors").iter().map(|(_, it)| it).sum();
        let cost = |path| number(of(most).median(records, path), 0);
        row.push(format!("{errors}"));
        row.push(format!(
            "{}, {}",
            cost("client_cpu_us_per_grant"),
            cost("server_cpu_us_per_grant")
        ));
        table.add_row(row);
    }
    table
}

pub(crate) fn hot_name(records: &[Record], contenders: &[usize]) -> Table {
    let header = [
        "contenders",
        "side",
        "grants/s",
        "handoffs/s",
        "errors",
        "overlaps",
        "worst share (worst slot)",
        "Jain",
        "wait",
        "handoff",
    ];
    let mut table = table(&header, 2);
    for (contenders, side, which) in hot_ones(records, contenders) {
        let which = which.of(&side);
        let median = |path: &str, digits| number(which.median(records, path), digits);
        let sum = |path| which.figures(records, path).iter().map(|(_, it)| it).sum::<f64>();
        let shares = which.figures(records, "worst_share");
        let worst = shares.iter().map(|(_, it)| *it).min_by(f64::total_cmp);
        let times = |name| {
            format!("{} ({})", median(&format!("{name}.p50"), 2), median(&format!("{name}.p99"), 2))
        };
        table.add_row([
            contenders.to_string(),
            side.clone(),
            median("grants_per_second", 1),
            median("handoffs_per_second", 1),
            sum("errors").to_string(),
            sum("overlaps").to_string(),
            format!("{} ({})", median("worst_share", 2), number(worst, 2)),
            median("jain", 2),
            times("wait_ms"),
            times("handoff_ms"),
        ]);
    }
    table
}

pub(crate) fn costs(records: &[Record], contenders: &[usize]) -> Table {
    let header = ["contenders", "side", "operations", "whole reads", "clients", "servers"];
    let mut table = table(&header, 2);
    for (contenders, side, which) in hot_ones(records, contenders) {
        let which = which.of(&side);
        let median = |path: &str| which.median(records, path);
        table.add_row([
            contenders.to_string(),
            side.clone(),
            small(median("operations_per_grant")),
            small(median("whole_reads_per_grant")),
            number(median("client_cpu_us_per_grant"), 0),
            number(median("server_cpu_us_per_grant"), 0),
        ]);
    }
    table
}

pub(crate) fn crowds(records: &[Record], crowds: &[usize]) -> Table {
    let mut table = table(&["callers", "microseconds"], 1);
    for &callers in crowds {
        let parameter = Some(("callers", callers as u64));
        let which = Which { side: Kind::LocalTurns.label(), measure: hot::CROWD, parameter };
        table.add_row([callers.to_string(), number(which.median(records, "us_per_grant"), 1)]);
    }
    table
}

pub(crate) fn failures(records: &[Record]) -> Table {
    let header = [
        "side",
        "what happens",
        "next grant",
        "longest without",
        "grants/s before",
        "grants/s meanwhile",
        "errors",
        "overlaps",
    ];
    let mut table = table(&header, 2);
    for measure in [faults::HOLDER_KILLED, faults::SERVER_KILLED, faults::SERVER_FROZEN] {
        for side in sides(records, measure) {
            let which = Which { side: &side, measure, parameter: None };
            let median = |path: &str, digits| number(which.median(records, path), digits);
            table.add_row([
                side.clone(),
                measure.to_owned(),
                median("next_grant_s", 2),
                median("longest_without_grant_s", 2),
                median("grants_per_second_before", 0),
                median("grants_per_second_meanwhile", 0),
                median("errors", 0),
                median("overlaps", 0),
            ]);
        }
    }
    table
}

/// This build's figures by those of the one before.
pub(crate) fn builds(records: &[Record], contenders: &[usize]) -> Table {
    let mut table = table(&["side", "measure", "figure", "ratio"], 3);
    let hot = contenders.iter().map(|count| {
        let parameter = Some((hot::CONTENDERS, *count as u64));
        (hot::MEASURE, parameter, format!("{count} contenders"))
    });
    let alone = (alone::MEASURE, None, alone::MEASURE.to_owned());
    for (measure, parameter, label) in std::iter::once(alone).chain(hot) {
        for side in sides(records, measure) {
            let (now, side_before) = (Which { side: &side, measure, parameter }, before(&side));
            let then = Which { side: &side_before, measure, parameter };
            for path in ["lock_ms.p50", "both_ms.p50", "grants_per_second", "handoffs_per_second"] {
                if let Some([least, median, greatest]) = ratio(records, (now, path), (then, path)) {
                    let ratio = format!("{median:.3} ({least:.3}, {greatest:.3})");
                    table.add_row([side.as_str(), label.as_str(), path, ratio.as_str()]);
                }
            }
        }
    }
    table
}

/// The records of one number of contenders.
struct Hot(usize);

impl Hot {
    fn of<'a>(&self, side: &'a str) -> Which<'a> {
        let parameter = Some((hot::CONTENDERS, self.0 as u64));
        Which { side, measure: hot::MEASURE, parameter }
    }
}

fn hot_ones(records: &[Record], contenders: &[usize]) -> Vec<(usize, String, Hot)> {
    let sides = sides(records, hot::MEASURE);
    let each = contenders.iter().flat_map(|contenders| {
        sides.iter().map(|side| (*contenders, side.clone(), Hot(*contenders)))
    });
    each.collect()
}

/// The sides that have such records, in the order of the kinds.
fn sides(records: &[Record], measure: &str) -> Vec<String> {
    let rank = |side: &str| Kind::rank_of(side);
    let mut sides: Vec<_> = records
        .iter()
        .filter(|record| record.measure == measure)
        .map(|record| record.side.clone())
        .collect();
    sides.sort_by_key(|side| (rank(side), side.clone()));
    sides.dedup();
    sides
}
