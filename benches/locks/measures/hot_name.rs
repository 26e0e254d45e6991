//! What contenders get when all of them want one name.

use std::time::Duration;

use anyhow::{Result, ensure};
use common::contest::{Contest, Served};
use common::quantiles::Quantiles;
use common::record::Record;
use support::monotonic::now;

use crate::measures::distinct::micros_per;
use crate::measures::orders::{Answer, Contend, Names, Order};
use crate::measures::pool::Pool;
use crate::servers::Servers;
use crate::sides::{Kind, Operations};

/// The names of the measures.
pub(crate) const MEASURE: &str = "hot name";
pub(crate) const CONTENDERS: &str = "contenders";
pub(crate) const CROWD: &str = "crowd";

/// After a slot the last releases and withdrawals are still on their way.
const SETTLE: Duration = Duration::from_millis(500);

/// Lets this many contenders lock and unlock `name` until the slot is over: each a process of its
/// own, or all of them tasks of one client.
/// They do nothing while they hold it, so that only the lock is measured.
pub(crate) async fn measure(
    pool: &mut Pool,
    servers: &Servers,
    kind: Kind,
    contenders: usize,
    name: &str,
    length: Duration,
) -> Result<Record> {
    let (workers, callers) =
        if kind == Kind::LocalTurns { (1, contenders) } else { (contenders, 1) };
    let (used, asked) = servers.load(kind.system()).await?;
    let order = Contend {
        names: Names::Same(name.to_owned()),
        callers,
        hold: Duration::ZERO,
        ends: now() + u64::try_from(length.as_nanos())?,
    };
    let answers = pool.order(workers, &Order::Contend(order)).await?;
    let (used_after, asked_after) = servers.load(kind.system()).await?;
    tokio::time::sleep(SETTLE).await;
    let mut record = Record::new(0, "", MEASURE, Some((CONTENDERS, contenders as u64)));
    let total = fill(&mut record, kind, name, &answers, length)?;
    if let (Some(before), Some(after)) = (used, used_after) {
        record.number("server_cpu_us_per_grant", micros_per(after - before, total));
    }
    if let (Some(before), Some(after)) = (asked, asked_after) {
        record.number("operations_per_grant", (after - before) as f64 / total as f64);
    }
    Ok(record)
}

/// Adds what contenders got; returns the number of grants.
pub(crate) fn fill(
    record: &mut Record,
    kind: Kind,
    name: &str,
    answers: &[Answer],
    length: Duration,
) -> Result<u64> {
    let served: Vec<Served> = answers.iter().flat_map(|answer| answer.callers.clone()).collect();
    let contest = Contest::of(&served);
    if kind.is_ours() {
        ensure!(contest.overlaps == 0, "two contenders held {name} at once");
    }
    let (total, seconds) = (contest.total(), length.as_secs_f64());
    let operations = answers.iter().fold(Operations::default(), |sum, it| sum + it.operations);
    let processor: Duration = answers.iter().map(|answer| answer.processor).sum();
    record.number("grants", total as f64);
    record.number("grants_per_second", total as f64 / seconds);
    record.number("handoffs_per_second", contest.handoffs as f64 / seconds);
    record.number("worst_share", contest.worst_share());
    record.number("jain", contest.jain());
    record.number("overlaps", contest.overlaps as f64);
    record.number("client_cpu_us_per_grant", micros_per(processor, total));
    if operations.sent > 0 {
        record.number("operations_per_grant", operations.sent as f64 / total as f64);
        record.number("failed_operations_per_second", operations.failed as f64 / seconds);
    }
    if kind.is_ours() {
        record.number("whole_reads_per_grant", operations.whole_reads as f64 / total as f64);
    }
    record.quantiles("wait_ms", Quantiles::milliseconds(contest.waits));
    record.quantiles("handoff_ms", Quantiles::milliseconds(contest.gaps));
    record.errors = served.into_iter().flat_map(|served| served.errors).collect();
    record.number("errors", record.errors.len() as f64);
    record.errors.truncate(1);
    Ok(total)
}

/// Lets very many tasks of one client wait for a name, each for one grant.
pub(crate) async fn crowd(pool: &mut Pool, callers: usize, name: &str) -> Result<Record> {
    let order = Order::Crowd { name: name.to_owned(), callers };
    let answers = pool.order(1, &order).await?;
    let time = answers.iter().map(|answer| answer.time).sum();
    let mut record = Record::new(0, "", CROWD, Some(("callers", callers as u64)));
    record.number("us_per_grant", micros_per(time, callers as u64));
    Ok(record)
}
