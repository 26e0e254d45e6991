//! `check`.

use std::sync::Arc;

use bakery_lock::hosts::{HostRegistry, RegistryError, this_host};
use bakery_lock::schema::{self, SchemaError, Severity};
use clap::Args;
use scylla::client::session::Session;
use serde_json::{Value, json};

use crate::connect::ConnectOptions;
use crate::denied::Denied;
use crate::failure::Failure;
use crate::finding::Line;
use crate::output;

/// Show whether this host can take locks, and what to do if not
///
/// Looks at the tables and their options, the recorded settings, the replication, the quorum, the
/// clocks of the nodes and of this host, the commit logs, and the host's registration. Changes
/// nothing. The exit code is 1 if anything would prevent locks from working, or would let two
/// clients hold one lock.
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

/// Checks everything, and prints the findings.
pub(super) async fn check(
    connection: &ConnectOptions,
    options: &CheckOptions,
) -> Result<(), Failure> {
    let ConnectOptions { keyspace, lock_table, consistency, .. } = connection;
    let host = options.host.clone().unwrap_or_else(this_host);
    let session = Arc::new(connection.connect().await?);
    let (report, registration) = tokio::join!(
        Box::pin(schema::check(&session, keyspace, lock_table, consistency)),
        Box::pin(registration(&session, connection, &host)),
    );
    let mut lines: Vec<_> = report?.findings.into_iter().map(Line::from).collect();
    lines.push(registration);
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

/// Looks up the registration of the host.
async fn registration(session: &Arc<Session>, connection: &ConnectOptions, host: &str) -> Line {
    let keyspace = &connection.keyspace;
    let registered = async {
        let registry = HostRegistry::new(Arc::clone(session), keyspace).await?;
        let registered = registry.get(host).await;
        registry.close().await;
        registered
    };
    let add = format!("run `lock-hosts --keyspace {keyspace} add {host}`");
    let error = |found: String, advice: String| (Severity::Error, found, Some(advice));
    let unread = "its registration can't be looked up";
    let (severity, found, advice) = match registered.await {
        Ok(Some(known)) if known.removed_at().is_none() => {
            (Severity::Ok, format!("registered with number {}", known.number()), None)
        }
        Ok(Some(_)) => error("it was removed".to_owned(), add),
        Ok(None) => error("not registered".to_owned(), add),
        Err(RegistryError::Schema(cause)) if !matches!(cause, SchemaError::Database(_)) => {
            error(format!("{unread}: {cause}"), "first make the tables as required".into())
        }
        Err(cause) => match Denied::cause_of(&cause, connection) {
            Some(denied) => error(format!("{unread}: {}", denied.found()), denied.advice()),
            None => {
                let advice = "see the findings about nodes and quorum, and check again";
                error(format!("{unread}: {}", output::chain(&cause)), advice.to_owned())
            }
        },
    };
    Line { severity, subject: format!("host {host}"), found, advice }
}

fn as_json(lines: &[Line]) -> Value {
    let failed = lines.iter().any(|line| line.severity == Severity::Error);
    let findings: Vec<_> = lines.iter().map(Line::json).collect();
    json!({ "verdict": if failed { "no" } else { "yes" }, "findings": findings })
}
