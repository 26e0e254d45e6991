//! What a lock costs on clusters that this machine is not: a rack, three zones, three continents.
//!
//! `cargo bench --bench latency` runs the library in virtual time on a simulated cluster whose
//! messages take as long as they do between such places, and prints what it predicts.
//! `cargo bench --bench latency -- --validate` starts a real cluster, delays the messages between
//! its nodes, and compares. `benches/latency/README.md` has the model, its sources and the figures.

mod alone;
mod arguments;
mod contended;
mod measured;
mod report;
mod scenario;
mod validation;

use std::fs;

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::arguments::Arguments;
use crate::contended::Contest;
use crate::scenario::Scenario;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    println!("seed {}", arguments.seed);
    if arguments.validate {
        let validation = validation::run(&arguments)?;
        println!("\n{}", report::validation(&validation));
        return keep(&arguments, &validation);
    }
    let predictions = predict(&arguments);
    println!("\n{}", report::predictions(&predictions));
    keep(&arguments, &predictions)
}

/// What is predicted.
#[derive(Debug, Serialize)]
struct Predictions {
    seed: u64,
    alone: Vec<alone::Alone>,
    contended: Vec<contended::Contended>,
}

fn predict(arguments: &Arguments) -> Predictions {
    let (plan, seed) = (arguments.plan(), arguments.seed);
    let scenarios = Scenario::all();
    let steps = scenarios.len() * (1 + arguments.clients.len() + contended::WAYS.len());
    let progress = progress_bar(steps);
    let mut predictions = Predictions { seed, alone: Vec::new(), contended: Vec::new() };
    for scenario in &scenarios {
        progress.set_message(scenario.name.clone());
        predictions.alone.extend(alone::of(scenario, plan.pairs, seed));
        progress.inc(1);
        let clients = arguments.clients.iter().map(|clients| Contest::apart(*clients as usize));
        for contest in clients.chain(contended::WAYS) {
            predictions.contended.push(contended::of(scenario, contest, plan, seed));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    predictions
}

fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {percent:>3} % {msg}")
        .expect("the template is valid");
    ProgressBar::new(steps as u64).with_style(style)
}

/// Keeps all figures as JSON.
fn keep(arguments: &Arguments, figures: &impl Serialize) -> Result<()> {
    let Some(file) = &arguments.json else {
        return Ok(());
    };
    let json = serde_json::to_string_pretty(figures)?;
    fs::write(file, json + "\n").with_context(|| format!("could not write {}", file.display()))?;
    println!("\nAll figures: {}", file.display());
    Ok(())
}
