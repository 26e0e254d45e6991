//! `status`.

use std::error::Error;
use std::process::ExitCode;

use bakery_lock::schema::Severity;
use clap::Args;
use serde_json::json;
use tokio::time::timeout;

use super::read_only_client;
use crate::connect::{ConnectOptions, Database};
use crate::denied::Denied;
use crate::failure::Failure;
use crate::finding::Line;
use crate::output;
use crate::registration::registration;
use crate::signals::Signals;

/// Say whether this host gets locks now: LOCKREADY, or NOLOCK and the reasons
///
/// For readiness probes and people. It looks at what `lock-hosts doctor` looks at, and reads an
/// object as clients do; only what prevents locks counts, or would let two clients hold one lock.
/// It writes nothing. It takes --timeout at most to connect, and as long again to look.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  lockctl status\n  lockctl --timeout 5s status --host web1\n  \
                        lockctl status --json\n\n\
                        Exit codes:\n  0  LOCKREADY\n  1  NOLOCK, also if the database can't be \
                        reached\n  2  invalid arguments; nothing was \
                        sent"
)]
pub(super) struct StatusOptions {
    /// Host whose registration is looked up [env: `BAKERY_LOCK_HOST`] [default: this machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Print JSON: an object with `status` (LOCKREADY or NOLOCK), `host`, and `reasons`, each with
    /// `severity` (warning or error), `subject`, `found` and `advice`
    #[arg(long)]
    json: bool,
}

const READY: &str = "LOCKREADY";
const NOT_READY: &str = "NOLOCK";

/// Prints the status, and returns its exit code.
pub(super) async fn status(
    connection: &ConnectOptions,
    options: &StatusOptions,
) -> Result<ExitCode, Failure> {
    let host = connection.host(options.host.as_deref());
    let mut signals = Signals::that_end()?;
    let looking = Box::pin(reasons(connection, &host));
    let reasons = signals.or(looking).await?;
    let status = if reasons.is_empty() { READY } else { NOT_READY };
    if options.json {
        let reasons: Vec<_> = reasons.iter().map(Line::json).collect();
        output::print_json(&json!({ "status": status, "host": host, "reasons": reasons }))?;
    } else {
        let lines: String = reasons.iter().map(Line::text).collect();
        output::print(&format!("{status}\n{lines}"))?;
    }
    Ok(if reasons.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why the host gets no locks; empty if it does.
async fn reasons(connection: &ConnectOptions, host: &str) -> Result<Vec<Line>, Failure> {
    let database = match connection.connect().await {
        Ok(database) => database,
        Err(failure @ Failure::Unreachable(_)) => {
            return Ok(vec![error("connection", output::chain(&failure), None)]);
        }
        Err(failure) => return Err(failure),
    };
    let looking = timeout(connection.timeout, look(&database, connection, host));
    Ok(looking.await.unwrap_or_else(|_| {
        let found = format!("no answer within {:?}", connection.timeout);
        vec![error("database", found, Some("run `lock-hosts doctor`".to_owned()))]
    }))
}

async fn look(database: &Database, connection: &ConnectOptions, host: &str) -> Vec<Line> {
    let mut lines = checks(database, connection, host).await;
    if lines.iter().any(|line| line.fails(false)) {
        // The nodes that are down may be why.
        let is_about_node =
            |line: &Line| ["node ", "master "].iter().any(|it| line.subject.starts_with(it));
        lines.retain(|line| line.fails(false) || (line.fails(true) && is_about_node(line)));
        return lines;
    }
    client(database, connection).await
}

/// What `lock-hosts doctor` finds.
async fn checks(database: &Database, connection: &ConnectOptions, host: &str) -> Vec<Line> {
    let (report, registration) = tokio::join!(
        Box::pin(database.check(connection)),
        Box::pin(registration(database, connection, host)),
    );
    let mut lines: Vec<_> = match report {
        Ok(findings) => findings.into_iter().map(Line::from).collect(),
        Err(cause) => vec![trouble(&cause)],
    };
    lines.push(registration);
    lines
}

/// What a client finds.
async fn client(database: &Database, connection: &ConnectOptions) -> Vec<Line> {
    match Box::pin(read_only_client(database, connection)).await {
        Ok(client) => {
            let reasons = client.health().await.reasons;
            reasons.iter().map(|reason| error("locks", output::chain(reason), None)).collect()
        }
        Err(failure) => vec![trouble(&failure)],
    }
}

/// An error of the database; one that it denied a permission names the grant.
fn trouble(failure: &(dyn Error + 'static)) -> Line {
    match Denied::cause_of(failure) {
        Some(denied) => error("database", denied.found(), Some(denied.advice())),
        None => error("database", output::chain(failure), None),
    }
}

fn error(subject: &str, found: String, advice: Option<String>) -> Line {
    Line { severity: Severity::Error, subject: subject.to_owned(), found, advice }
}
