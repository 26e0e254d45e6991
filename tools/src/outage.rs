//! Why a command gets no answer.

use std::future::Future;

use bakery_lock::schema::{Finding, Severity};
use tokio::time::timeout;

use crate::connect::{ConnectOptions, Database};
use crate::denied::Denied;
use crate::failure::Failure;
use crate::finding::Line;
use crate::output;

/// The subjects of the findings about quorums.
const QUORUMS: [&str; 2] = ["quorum", "majority"];

/// How long a step may take, as a share of the timeout, before the nodes are checked: a second of
/// 20.
const USUAL_SHARES: u32 = 20;

/// Runs work that needs a quorum. If it fails because the database does not answer, or takes longer
/// than usual, the nodes are checked, and their problems are printed. Without a quorum the work is
/// given up.
///
/// # Errors
///
/// Those of the work; one that names the permission if the database denied one; and
/// [`Failure::Unreachable`] when there is no quorum.
///
/// # Cancel safety
///
/// That of the work.
pub(crate) async fn explained<T>(
    database: &Database,
    connection: &ConnectOptions,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut work = Box::pin(work);
    let soon = timeout(connection.timeout / USUAL_SHARES, &mut work).await;
    let mut look = Box::pin(troubles(database, connection));
    let (result, troubles) = match soon {
        Ok(result) => with_troubles(result, look).await,
        Err(_) => tokio::select! {
            result = &mut work => with_troubles(result, look).await,
            troubles = &mut look => {
                let no_quorum = troubles.iter().any(is_about_quorum);
                let result = if no_quorum { Err(given_up()) } else { work.await };
                (result, troubles)
            }
        },
    };
    result.map_err(|failure| {
        if let Some(denied) = Denied::cause_of(&failure) {
            return Failure::No(Box::new(denied));
        }
        if matches!(failure, Failure::Unreachable(_)) {
            let lines = troubles.into_iter().map(|it| Line::from(it).text());
            output::details(&lines.collect::<String>());
        }
        failure
    })
}

/// A result, and the findings of a check if the database did not answer.
async fn with_troubles<T>(
    result: Result<T, Failure>,
    look: impl Future<Output = Vec<Finding>>,
) -> (Result<T, Failure>, Vec<Finding>) {
    let troubles =
        if matches!(result, Err(Failure::Unreachable(_))) { look.await } else { Vec::new() };
    (result, troubles)
}

fn given_up() -> Failure {
    Failure::Unreachable("no quorum of replicas answers; try again when nodes are back".into())
}

fn is_about_quorum(finding: &Finding) -> bool {
    QUORUMS.contains(&finding.subject.as_str()) && finding.severity == Severity::Error
}

/// The problems of nodes and quorum, as far as they can be found.
async fn troubles(database: &Database, connection: &ConnectOptions) -> Vec<Finding> {
    let mut findings = Box::pin(database.check(connection)).await.unwrap_or_default();
    let is_wrong = |finding: &Finding| finding.severity > Severity::Ok;
    findings.retain(|finding| {
        is_about_quorum(finding)
            || finding.subject.starts_with("node ")
            || finding.subject.starts_with("master ") && is_wrong(finding)
    });
    findings
}
