//! What a lock costs: ours, one on lightweight transactions, etcd's, ZooKeeper's, Redlock, SET NX,
//! and bare reads and writes.
//!
//! `cargo bench --bench locks` starts the servers, warms them, measures and prints tables;
//! `benches/README.md` says how to read them.
//!
//! All sides take turns within one run, because a machine drifts: compilers warm up, memory is
//! collected, neighbours come and go, so each ratio is taken between figures of the same minutes,
//! and what is reported is the median of such ratios. Benchmark harnesses like criterion measure
//! one side to its end before the next one begins, know nothing of contenders in other processes,
//! and can't switch the cluster between sides; hence the loop of our own.

mod arguments;
mod bench;
mod measures;
mod report;
mod servers;
mod sides;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cassandra_cluster::execute_tied;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{Arguments, directory};
use crate::bench::Bench;
use crate::report::Report;
use crate::servers::process::EXECUTE;
use crate::servers::{Servers, check_installed};
use crate::sides::Kind;

#[tokio::main]
async fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [execute, parent, program, arguments @ ..] = given.as_slice()
        && execute == EXECUTE
    {
        return Err(execute_tied(parent, program, arguments).into());
    }
    let arguments = Arguments::parse();
    if let Some(setup) = &arguments.worker {
        return measures::worker::run(serde_json::from_str(setup)?).await;
    }
    let kinds = kinds(&arguments)?;
    let report = measure(&arguments, &kinds).await?;
    report.print();
    let file = arguments.json_file();
    report.write(&file).with_context(|| format!("could not write {}", file.display()))?;
    println!("\nAll figures: {}", file.display());
    if arguments.quick {
        compare(&report, &arguments.recorded)?;
    }
    Ok(())
}

/// What is measured. What is left out is said.
fn kinds(arguments: &Arguments) -> Result<Vec<Kind>> {
    if let Some(chosen) = arguments.sides() {
        chosen.iter().try_for_each(|kind| check_installed(*kind))?;
        let mut chosen = chosen.to_vec();
        chosen.sort_unstable();
        chosen.dedup();
        return Ok(chosen);
    }
    let mut kinds = Vec::new();
    for &kind in Kind::value_variants() {
        match check_installed(kind) {
            Ok(()) => kinds.push(kind),
            Err(missing) => eprintln!("left out: {missing}"),
        }
    }
    Ok(kinds)
}

async fn measure(arguments: &Arguments, kinds: &[Kind]) -> Result<Report> {
    let plan = arguments.plan();
    eprintln!("starting the servers");
    let servers = Servers::start(kinds, arguments, &directory()).await?;
    let facts = servers.facts().to_vec();
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {percent:>3} % {msg}")
        .expect("the template is valid");
    let progress = ProgressBar::new(0).with_style(style);
    let bench =
        Bench::set_up(servers, kinds, arguments.before.clone(), plan.clone(), progress.clone())
            .await?;
    let measured = bench.run(arguments.with_failures()).await?;
    progress.finish_and_clear();
    Ok(Report::of(plan, arguments.durability, arguments.redis_delay, facts, measured))
}

/// Fails if anything is far worse than it was when it was recorded.
fn compare(report: &Report, recorded: &Path) -> Result<()> {
    if !recorded.exists() {
        println!("Nothing to compare with: there is no {}", recorded.display());
        return Ok(());
    }
    let regressions = report.regressions(recorded)?;
    for regression in &regressions {
        println!("Gross regression: {regression}");
    }
    ensure!(regressions.is_empty(), "worse by far than {}", recorded.display());
    println!("No gross regression from {}", recorded.display());
    Ok(())
}
