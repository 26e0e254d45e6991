//! `check`.

use clap::Args;
use serde_json::{Value, json};

use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::finding::Line;
use crate::output;
use crate::registration::registration;

/// Show whether this host can take locks, and what to do if not
///
/// Looks at the tables and their options, the recorded settings, the replication, the quorum, the
/// clocks of the nodes and of this host, the commit logs, the rights of the user, and the host's
/// registration. Changes nothing. The exit code is 1 if anything would prevent locks from working,
/// or would let two clients hold one lock; with --strict, also if there is a warning.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  lock-hosts doctor\n  lock-hosts doctor --host web1 --json\n  \
                        lock-hosts doctor --strict"
)]
pub(super) struct DoctorOptions {
    /// Host whose registration is looked up [env: `BAKERY_LOCK_HOST`] [default: this machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Fail on warnings too, for scripts that prepare a cluster
    #[arg(long)]
    strict: bool,

    /// Print JSON: an object with `verdict` (yes or no) and `findings`, each with `severity` (ok,
    /// warning or error), `subject`, `found` and `advice`
    #[arg(long)]
    json: bool,
}

/// Checks everything, and prints the findings.
pub(super) async fn doctor(
    connection: &ConnectOptions,
    options: &DoctorOptions,
) -> Result<(), Failure> {
    let host = connection.host(options.host.as_deref());
    let database = connection.connect().await?;
    let (report, registration) = tokio::join!(
        Box::pin(database.check(connection)),
        Box::pin(registration(&database, connection, &host)),
    );
    let mut lines: Vec<_> = report?.into_iter().map(Line::from).collect();
    lines.push(registration);
    if options.json {
        output::print_json(&as_json(&lines, options.strict))?;
    } else {
        output::print(&lines.iter().map(Line::text).collect::<String>())?;
    }
    conclude(&host, &lines, options.strict)
}

/// What the findings come to.
fn conclude(host: &str, lines: &[Line], strict: bool) -> Result<(), Failure> {
    let count = |strict| lines.iter().filter(|line| line.fails(strict)).count();
    let (errors, all) = (count(false), lines.len());
    let answer = match count(strict) {
        0 => return Ok(()),
        warnings if errors == 0 => format!("{warnings} of {all} checks warn"),
        _ => format!("host {host} can't take locks: {errors} of {all} checks failed"),
    };
    Err(Failure::No(answer.into()))
}

fn as_json(lines: &[Line], strict: bool) -> Value {
    let verdict = if lines.iter().any(|line| line.fails(strict)) { "no" } else { "yes" };
    let findings: Vec<_> = lines.iter().map(Line::json).collect();
    json!({ "verdict": verdict, "findings": findings })
}

#[cfg(test)]
mod tests {
    use bakery_lock::schema::Severity;

    use super::*;

    fn line(severity: Severity) -> Line {
        Line { severity, subject: String::new(), found: String::new(), advice: None }
    }

    #[test]
    fn warnings_count_if_that_is_asked_for() {
        use Severity::{Error, Ok, Warning};
        for (severities, lax, strict) in [
            (&[Ok, Ok][..], "yes", "yes"),
            (&[Ok, Warning], "yes", "no"),
            (&[Warning, Error], "no", "no"),
        ] {
            let lines: Vec<_> = severities.iter().copied().map(line).collect();
            for (strict, expected) in [(false, lax), (true, strict)] {
                assert_eq!(as_json(&lines, strict)["verdict"], expected, "{severities:?}");
                assert_eq!(conclude("web1", &lines, strict).is_ok(), expected == "yes");
            }
        }
        let answer = conclude("web1", &[line(Ok), line(Error)], false).map_err(|no| no.to_string());
        assert_eq!(answer, Err("host web1 can't take locks: 1 of 2 checks failed".to_owned()));
        let answer =
            conclude("web1", &[line(Ok), line(Warning)], true).map_err(|no| no.to_string());
        assert_eq!(answer, Err("1 of 2 checks warn".to_owned()));
    }
}
