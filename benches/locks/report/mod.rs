//! What a run says: tables for people, and all figures as JSON.

mod tables;
mod targets;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use common::origin::Origin;
use common::outcome::Outcome;
use common::record::Record;
use common::table::outcomes;
use serde::{Deserialize, Serialize};

use crate::arguments::{Durability, Plan};
use crate::bench::{Measured, Trial};
use crate::servers::facts::Facts;

/// All of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Raised when a reader of older files would misread this one.
    format: u32,
    #[serde(flatten)]
    origin: Origin,
    durability: Durability,
    /// How much longer round trips to Redis servers are made.
    redis_delay: Duration,
    servers: Vec<Facts>,
    plan: Plan,
    targets: Vec<Outcome>,
    tuning: Vec<Trial>,
    records: Vec<Record>,
}

/// What is compared of a recorded run.
#[derive(Deserialize)]
struct Recorded {
    targets: Vec<Outcome>,
}

impl Report {
    pub(crate) fn of(
        plan: Plan,
        durability: Durability,
        redis_delay: Duration,
        servers: Vec<Facts>,
        measured: Measured,
    ) -> Self {
        let Measured { records, trials: tuning } = measured;
        Report {
            format: 1,
            origin: Origin::now(),
            durability,
            redis_delay,
            servers,
            plan,
            targets: targets::judge(&records, redis_delay),
            tuning,
            records,
        }
    }

    /// Prints all tables, as Markdown.
    pub(crate) fn print(&self) {
        println!("\n{}", self.origin);
        let ttl = |ttl: Duration| ttl.as_secs();
        let (usual, failing) = (ttl(self.plan.ttl), ttl(self.plan.failure_ttl));
        println!("TTL of all locks: {usual} s; where holders and servers fail {failing} s");
        for (title, table) in [
            ("Servers", tables::servers(&self.servers)),
            (
                "Parameters of locks that poll: the most handoffs per second",
                tables::tuning(&self.tuning),
            ),
            (
                "Uncontended, milliseconds: median (99th, 99.9th percentile)",
                tables::uncontended(&self.records),
            ),
            (
                "Names that one client locks in turn, over and over",
                tables::in_turn(&self.records, self.plan.in_turn),
            ),
            (
                "Distinct names: grants per second by the number of callers",
                tables::distinct(&self.records, self.plan.callers),
            ),
            (
                "One hot name; waits and handoffs in milliseconds: median (99th percentile)",
                tables::hot_name(&self.records, &self.plan.contenders),
            ),
            (
                "What a grant costs on one hot name; processor time in microseconds",
                tables::costs(&self.records, &self.plan.contenders),
            ),
            (
                "Very many callers of one client: microseconds per grant",
                tables::crowds(&self.records, self.plan.crowds),
            ),
            (
                "Failures, 8 contenders: seconds until the next grant, and the longest without any",
                tables::failures(&self.records),
            ),
            (
                "This build by the one before: median (least, greatest)",
                tables::builds(&self.records, &self.plan.contenders),
            ),
            ("Targets", outcomes(&self.targets)),
        ] {
            if !table.is_empty() {
                println!("\n### {title}\n\n{table}");
            }
        }
        for error in self.records.iter().filter(|record| !record.errors.is_empty()) {
            let Record { side, measure, parameters, errors, .. } = error;
            println!("\nFirst error of {side}, {measure} {parameters:?}: {}", errors[0]);
        }
    }

    /// Keeps all figures.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(file, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }

    /// What is far worse than in a recorded run.
    pub(crate) fn regressions(&self, recorded: &Path) -> Result<Vec<String>> {
        let read = || format!("could not read {}", recorded.display());
        let text = fs::read_to_string(recorded).with_context(read)?;
        let then: Recorded = serde_json::from_str(&text).with_context(read)?;
        let mut regressions = Vec::new();
        for now in &self.targets {
            let then = then.targets.iter().find(|then| then.what == now.what);
            if let Some(then) = then.filter(|then| now.is_gross_regression_of(then)) {
                let [least, _, greatest] = then.measured.unwrap_or_default();
                let [_, median, _] = now.measured.unwrap_or_default();
                let what = &now.what;
                let line = format!("{what}: {median:.2}, recorded {least:.2} to {greatest:.2}");
                regressions.push(line);
            }
        }
        Ok(regressions)
    }
}
