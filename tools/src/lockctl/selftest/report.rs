//! What a run found.

use std::collections::BTreeMap;
use std::fmt::Write;

use bakery_lock::TableError;
use serde_json::{Value, json};

use super::acquisition::{Acquisition, Outcome};
use super::check::{Compared, Rule, Violation, check};
use super::run::Run;
use super::{SelftestOptions, VIOLATION};
use crate::lockctl::spread::{Spread, millis, rounded};
use crate::output::{chain, visible};

/// The maximum number of each kind that is reported one by one.
const TOLD_MAX: usize = 20;

/// A run, and what is left of it.
pub(super) struct Report {
    pub(super) options: SelftestOptions,
    pub(super) run: Run,
    pub(super) rows_left: Result<Vec<RowLeft>, TableError>,
    /// The signal that ended it.
    pub(super) interrupted: Option<u8>,
}

/// A row in the table of a process that has ended in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowLeft {
    pub(super) name: u16,
    pub(super) owner: String,
}

/// How the tries of a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    granted: usize,
    timed_out: usize,
    failed: usize,
    withdrawn: usize,
    /// Of those that were granted, those that were lost.
    lost: usize,
    /// What was said, and how often.
    errors: BTreeMap<String, usize>,
}

impl Tally {
    fn of(history: &[Acquisition]) -> Self {
        let mut tally = Tally::default();
        for acquisition in history {
            match &acquisition.outcome {
                Outcome::Held(hold) => {
                    tally.granted += 1;
                    tally.lost += usize::from(!hold.released);
                    hold.errors.iter().for_each(|error| tally.note(error));
                }
                Outcome::TimedOut => tally.timed_out += 1,
                Outcome::Withdrawn => tally.withdrawn += 1,
                Outcome::Failed(error) => {
                    tally.failed += 1;
                    tally.note(error);
                }
            }
        }
        tally
    }

    fn note(&mut self, error: &str) {
        *self.errors.entry(error.to_owned()).or_default() += 1;
    }
}

/// A promise that was broken, as it is reported.
struct Told {
    rule: &'static str,
    name: Option<String>,
    found: String,
    pair: Option<[Value; 2]>,
}

impl Report {
    /// What was found and how much was compared.
    fn findings(&self) -> (Vec<Told>, Compared) {
        let (violations, compared) = check(&self.run.history, !self.options.load.peers);
        let mut told: Vec<_> = violations.iter().map(|it| self.told(it)).collect();
        told.extend(self.unaccounted());
        for RowLeft { name, owner } in self.rows_left.iter().flatten() {
            let found = format!("{} left a row", visible(owner));
            told.push(Told { rule: "rows", name: Some(self.name(*name)), found, pair: None });
        }
        (told, compared)
    }

    /// Tries whose end was not reported.
    fn unaccounted(&self) -> impl Iterator<Item = Told> {
        let mut ended = BTreeMap::<u16, u64>::new();
        for acquisition in &self.run.history {
            *ended.entry(acquisition.process).or_default() += 1;
        }
        self.run.tries.iter().filter_map(move |(process, tries)| {
            let ended = ended.get(process).copied().unwrap_or(0);
            let found = format!("process {process} tried {tries} times, and reported {ended} ends");
            (ended != *tries).then_some(Told { rule: "ends", name: None, found, pair: None })
        })
    }

    fn told(&self, violation: &Violation<'_>) -> Told {
        let [first, second] = violation.pair;
        let (rule, what) = match violation.rule {
            Rule::Overlap => ("overlap", "held the lock at the same time as"),
            Rule::Tokens => ("tokens", "has a fencing token that is not below that of"),
            Rule::Line => ("line", "asked first in their process, and was granted after"),
            Rule::Queue => ("queue", "had its ticket first, and was granted after"),
        };
        let found = format!("{} {what} {}", self.who(first), self.who(second));
        let pair = Some([self.as_json(first), self.as_json(second)]);
        Told { rule, name: Some(self.name(first.name)), found, pair }
    }

    fn who(&self, it: &Acquisition) -> String {
        let Acquisition { process, caller, .. } = it;
        let mut who = format!(
            "process {process} (pid {}) caller {caller} [asked {}",
            self.run.pid(*process),
            self.time(it.asked)
        );
        if let Some(queued) = it.queued {
            let _ = write!(who, ", queued {}", self.time(queued));
        }
        if let Some(hold) = it.hold() {
            let _ = write!(who, ", granted {}", self.time(hold.granted));
            if let Some(until) = hold.until {
                let _ = write!(who, ", held until {}", self.time(until));
            }
            if let Some(token) = hold.token {
                let _ = write!(who, ", token {}", token.value);
            }
        }
        who + "]"
    }

    fn as_json(&self, it: &Acquisition) -> Value {
        let hold = it.hold();
        json!({
            "process": it.process,
            "pid": self.run.pid(it.process),
            "caller": it.caller,
            "asked": self.seconds(it.asked),
            "queued": it.queued.map(|time| self.seconds(time)),
            "granted": hold.map(|hold| self.seconds(hold.granted)),
            "held_until": hold.and_then(|hold| hold.until).map(|time| self.seconds(time)),
            "token": it.token().map(|token| token.value),
        })
    }

    fn name(&self, number: u16) -> String {
        super::name(&self.run.id, number)
    }

    /// A time of the run in seconds, from its first try on.
    fn seconds(&self, time: u64) -> f64 {
        let first = self.run.history.iter().map(|it| it.asked).min().unwrap_or(time);
        (time - first) as f64 / 1e9
    }

    fn time(&self, time: u64) -> String {
        format!("{:.6} s", self.seconds(time))
    }

    fn waits(&self) -> Spread {
        Spread::new(self.run.history.iter().filter_map(Acquisition::wait))
    }

    /// What kept the run from being complete.
    fn failures(&self) -> Vec<String> {
        let mut failures = self.run.failures.clone();
        if let Err(error) = &self.rows_left {
            failures.push(format!("the rows that are left can't be counted: {}", chain(error)));
        }
        if self.interrupted.is_none() && Tally::of(&self.run.history).granted == 0 {
            failures.push("no lock was granted, so nothing was checked".to_owned());
        }
        failures
    }

    pub(super) fn exit_code(&self) -> u8 {
        exit_code(self.findings().0.len(), self.failures().len(), self.interrupted)
    }

    pub(super) fn json(&self) -> Value {
        let Report { options, run, interrupted, .. } = self;
        let (violations, compared) = self.findings();
        let Tally { granted, timed_out, failed, withdrawn, lost, errors } = Tally::of(&run.history);
        let waits = self.waits();
        let violations: Vec<_> = violations.iter().map(Told::json).collect();
        json!({
            "run": run.id,
            "names": { "prefix": run.prefix(), "count": run.names },
            "seed": run.seed,
            "seconds": (run.time.as_secs_f64() * 1000.0).round() / 1000.0,
            "processes": options.processes,
            "callers": options.load.callers,
            "tries": {
                "granted": granted,
                "timed_out": timed_out,
                "failed": failed,
                "withdrawn": withdrawn,
                "lost": lost,
            },
            "waits_ms": {
                "median": rounded(waits.median()),
                "p99": rounded(waits.p99()),
                "max": rounded(waits.max()),
            },
            "compared": {
                "holds": compared.holds,
                "tokens": compared.tokens,
                "line": compared.line,
                "queue": compared.queue,
            },
            "violations": violations,
            "failures": self.failures(),
            "errors": errors,
            "interrupted": interrupted.is_some(),
        })
    }

    pub(super) fn text(&self) -> String {
        let Report { options, run, .. } = self;
        let (violations, compared) = self.findings();
        let Tally { granted, timed_out, failed, withdrawn, lost, errors } = Tally::of(&run.history);
        let waits = self.waits();
        let mut text = format!(
            "{} with {} each took locks of {} for {:.1} s: {}, seed {}\n",
            counted(options.processes, "process", "processes"),
            counted(options.load.callers, "caller", "callers"),
            counted(run.names, "name", "names"),
            run.time.as_secs_f64(),
            run.prefix(),
            run.seed
        );
        let _ = writeln!(
            text,
            "{granted} grants, {lost} of them lost; {timed_out} tries timed out, {failed} failed, \
             {withdrawn} were withdrawn at the end"
        );
        let [median, p99, max] = [waits.median(), waits.p99(), waits.max()].map(millis);
        let _ = writeln!(text, "wait: median {median}, p99 {p99}, max {max}");
        let _ = writeln!(
            text,
            "checked: overlaps of {} holds, order of {} tokens, order of {} grants within a \
             process and {} between processes, rows left",
            compared.holds, compared.tokens, compared.line, compared.queue
        );
        for (error, count) in errors.iter().take(TOLD_MAX) {
            let _ = writeln!(text, "error    {count} times: {error}");
        }
        for failure in self.failures() {
            let _ = writeln!(text, "failure  {failure}");
        }
        for violation in violations.iter().take(TOLD_MAX) {
            let _ = writeln!(text, "violation  {}", violation.text());
        }
        let verdict = match (violations.len(), self.interrupted) {
            (0, None) => "no violation".to_owned(),
            (0, Some(_)) => "interrupted; no violation until then".to_owned(),
            (1, _) => "one violation".to_owned(),
            (count, _) => format!("{count} violations"),
        };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

fn counted(count: u16, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// The exit code of a run: that of what matters most.
fn exit_code(violations: usize, failures: usize, interrupted: Option<u8>) -> u8 {
    match (violations, failures, interrupted) {
        (0, 0, None) => 0,
        (0, 0, Some(signal)) => 128 + signal,
        (0, ..) => 1,
        _ => VIOLATION,
    }
}

impl Told {
    fn text(&self) -> String {
        let Told { rule, name, found, .. } = self;
        let name = name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        format!("{rule}: {name}{found}")
    }

    fn json(&self) -> Value {
        let Told { rule, name, found, pair } = self;
        json!({ "rule": rule, "name": name, "found": found, "pair": pair })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::acquisition::Hold;
    use super::*;
    use crate::connect::ConnectArguments;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        connection: ConnectArguments,
        #[command(flatten)]
        options: SelftestOptions,
    }

    /// The report of a run that saw this.
    fn report(history: Vec<Acquisition>) -> Report {
        let Arguments { connection, mut options } = Arguments::parse_from(["selftest", "--seed=7"]);
        options.processes = 0;
        let connection = connection.options().expect("no variable is set");
        let mut run = Run::start(&connection, &options).expect("there is no process to start");
        run.set_pids(vec![4711, 812]);
        run.tries = [(1, 1), (2, 1)].into();
        run.id = "0123".to_owned();
        run.history = history;
        Report { options, run, rows_left: Ok(Vec::new()), interrupted: None }
    }

    fn held(process: u16, asked: u64, granted: u64, until: u64) -> Acquisition {
        let hold = Hold {
            granted: granted * 1_000_000,
            until: Some(until * 1_000_000),
            token: None,
            released: true,
            errors: Vec::new(),
        };
        Acquisition {
            name: 3,
            process,
            caller: 1,
            asked: asked * 1_000_000,
            queued: None,
            outcome: Outcome::Held(hold),
            ended: (until + 1) * 1_000_000,
        }
    }

    fn good() -> Vec<Acquisition> {
        vec![held(1, 1, 2, 5), held(2, 3, 6, 9)]
    }

    // Goal: a run without violation says so, and its exit code is 0.
    #[test]
    fn good_run_is_told() {
        let report = report(good());
        assert_eq!(report.exit_code(), 0);
        let text = report.text();
        assert!(text.contains("2 grants, 0 of them lost; 0 tries timed out"), "{text}");
        assert!(text.contains("wait: median 1.00 ms, p99 3.00 ms, max 3.00 ms"), "{text}");
        assert!(text.ends_with("\nno violation\n"), "{text}");
        assert_eq!(report.json()["violations"], json!([]));
    }

    // Goal: a violation is reported with name, processes and times, and has an exit code of its
    // own, also if a process died or a signal ended the run.
    #[test]
    fn violation_is_told() {
        let mut report = report(vec![held(1, 1, 2, 5), held(2, 3, 4, 9)]);
        report.run.failures.push("process 1 (pid 4711): it was ended by signal 9".to_owned());
        report.interrupted = Some(2);
        assert_eq!(report.exit_code(), 4);
        let text = report.text();
        let told = "violation  overlap: lockctl-selftest::0123::3: process 1 (pid 4711) caller 1 \
                    [asked 0.000000 s, granted 0.001000 s, held until 0.004000 s] held the lock at \
                    the same time as process 2 (pid 812) caller 1 [asked 0.002000 s, granted \
                    0.003000 s, held until 0.008000 s]\n";
        assert!(text.contains(told), "{text}");
        assert!(text.ends_with("\none violation\n"), "{text}");
        let json = report.json();
        let told = &json["violations"][0];
        assert_eq!((&told["rule"], &told["pair"][1]["pid"]), (&json!("overlap"), &json!(812)));
        assert_eq!(told["name"], "lockctl-selftest::0123::3");
    }

    // Goal: a try whose end was not reported is a violation, and so is a row that is left.
    #[test]
    fn missing_ends_and_leftover_rows_are_violations() {
        let mut missing = report(good());
        missing.run.tries.insert(2, 2);
        assert_eq!(missing.exit_code(), 4);
        let told = "violation  ends: process 2 tried 2 times, and reported 1 ends\n";
        assert!(missing.text().contains(told), "{}", missing.text());
        let mut left = report(good());
        left.rows_left = Ok(vec![RowLeft { name: 1, owner: "web1 pid 812".to_owned() }]);
        assert_eq!(left.exit_code(), 4);
        let told = "violation  rows: lockctl-selftest::0123::1: web1 pid 812 left a row\n";
        assert!(left.text().contains(told), "{}", left.text());
    }

    // Goal: a run that is not complete does not pass: one that granted nothing, one in which a
    // process died, one that could not look at the rows, one that a signal ended.
    #[test]
    fn incomplete_run_does_not_pass() {
        assert_eq!(report(Vec::new()).failures(), ["no lock was granted, so nothing was checked"]);
        let mut blind = report(good());
        blind.rows_left = Err(TableError::Closed);
        assert_eq!(blind.exit_code(), 1);
        assert!(blind.text().contains("failure  the rows that are left"), "{}", blind.text());
        let mut interrupted = report(good());
        interrupted.interrupted = Some(15);
        assert_eq!(interrupted.exit_code(), 143);
        assert_eq!(interrupted.json()["interrupted"], true);
        assert_eq!([exit_code(0, 1, None), exit_code(0, 1, Some(2))], [1, 1]);
    }
}
