//! `check`.

use bakery_lock::hosts::{HostRegistry, RegistryError, this_host};
use bakery_lock::schema::{self, Finding, Severity};
use clap::Args;
use scylla::client::session::Session;
use serde_json::{Value, json};

use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::output;

/// Tell whether this host can take locks, and what to do if not
///
/// Looks at the tables and their options, the recorded settings, the replication, the quorum, the
/// clocks of the nodes and of this host, the commit logs, and the host's registration. Changes
/// nothing. The exit code is 1 if anything would keep locks from working, or would let two holders
/// in.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts check\n  lock-hosts check --host web1 --json")]
pub(super) struct CheckOptions {
    /// Host whose registration is looked up [default: this machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Print JSON: an object with `verdict` (yes or no) and `findings`, each with `severity` (ok,
    /// warning or error), `subject`, `found` and `advice`
    #[arg(long)]
    json: bool,
}

/// Checks everything, and prints what was found.
pub(super) async fn check(
    connection: &ConnectOptions,
    options: &CheckOptions,
) -> Result<(), Failure> {
    let ConnectOptions { keyspace, lock_table, consistency, .. } = connection;
    let host = options.host.clone().unwrap_or_else(this_host);
    let session = connection.connect().await?;
    let report = schema::check(&session, keyspace, lock_table, consistency).await?;
    let mut lines: Vec<_> = report.findings.into_iter().map(Line::from).collect();
    lines.push(registration(session, keyspace, &host).await?);
    if options.json {
        output::print_json(&as_json(&lines))?;
    } else {
        output::print(&lines.iter().map(Line::text).collect::<String>())?;
    }
    match lines.iter().filter(|line| line.severity == Severity::Error).count() {
        0 => Ok(()),
        errors => {
            let answer =
                format!("host {host} can't take locks: {errors} of {} checks failed", lines.len());
            Err(Failure::No(answer.into()))
        }
    }
}

/// One line of the report.
struct Line {
    severity: Severity,
    subject: String,
    found: String,
    advice: Option<String>,
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Self {
        let Finding { severity, subject, found, advice, .. } = finding;
        Line { severity, subject, found, advice }
    }
}

impl Line {
    fn text(&self) -> String {
        let Line { subject, found, .. } = self;
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{:<7}  {subject}: {found}{advice}\n", self.severity())
    }

    fn json(&self) -> Value {
        let Line { subject, found, advice, .. } = self;
        json!({
            "severity": self.severity(),
            "subject": subject,
            "found": found,
            "advice": advice,
        })
    }

    fn severity(&self) -> &'static str {
        match self.severity {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            // What is added to the enum later can't be shown as fine.
            Severity::Error | _ => "error",
        }
    }
}

/// Looks the host up.
async fn registration(session: Session, keyspace: &str, host: &str) -> Result<Line, Failure> {
    let hosts = async {
        let registry = HostRegistry::new(session, keyspace).await?;
        let hosts = registry.list().await;
        registry.close().await;
        hosts
    };
    let subject = format!("host {host}");
    let line = |severity, found: String, advice: Option<String>| {
        Ok(Line { severity, subject, found, advice })
    };
    let add = format!("run `lock-hosts --keyspace {keyspace} add {host}`");
    match hosts.await {
        Ok(hosts) => match hosts.iter().find(|registered| registered.name() == host) {
            Some(known) if known.removed_at().is_none() => {
                line(Severity::Ok, format!("registered with number {}", known.number()), None)
            }
            Some(_) => line(Severity::Error, "it was removed".to_owned(), Some(add)),
            None => line(Severity::Error, "not registered".to_owned(), Some(add)),
        },
        Err(RegistryError::Schema(error)) => {
            let found = format!("its registration can't be looked up: {error}");
            line(Severity::Error, found, Some("mend the tables first".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

fn as_json(lines: &[Line]) -> Value {
    let failed = lines.iter().any(|line| line.severity == Severity::Error);
    let findings: Vec<_> = lines.iter().map(Line::json).collect();
    json!({ "verdict": if failed { "no" } else { "yes" }, "findings": findings })
}
