//! How much one client gets done when its callers want different names.

use std::time::Duration;

use anyhow::{Context, Result};
use common::contest::Served;
use common::quantiles::Quantiles;
use common::record::Record;
use support::monotonic::now;

use crate::measures::orders::{Contend, Names, Order};
use crate::measures::pool::Pool;
use crate::servers::Servers;
use crate::sides::Kind;

/// The name of the measure.
pub(crate) const MEASURE: &str = "distinct names";
pub(crate) const CALLERS: &str = "callers";

/// Lets this many tasks of one client lock and unlock a name of their own each, over and over.
pub(crate) async fn measure(
    pool: &mut Pool,
    servers: &Servers,
    kind: Kind,
    callers: usize,
    prefix: &str,
    length: Duration,
) -> Result<Record> {
    let used = servers.processor_time(kind.system())?;
    let order = Contend {
        names: Names::Each(prefix.to_owned()),
        callers,
        hold: Duration::ZERO,
        ends: now() + u64::try_from(length.as_nanos())?,
    };
    let answers = pool.order(1, &Order::Contend(order)).await?;
    let answer = answers.into_iter().next().context("one worker answers")?;
    let grants: usize = answer.callers.iter().map(|caller| caller.holds.len()).sum();
    let mut record = Record::new(0, "", MEASURE, Some((CALLERS, callers as u64)));
    let waits =
        |served: &Served| served.holds.iter().map(|[asked, granted, _]| granted - asked).collect();
    let waits: Vec<Vec<u64>> = answer.callers.iter().map(waits).collect();
    record.quantiles("lock_ms", Quantiles::milliseconds(waits.concat()));
    record.number("grants_per_second", grants as f64 / length.as_secs_f64());
    record.number("client_cpu_us_per_grant", micros_per(answer.processor, grants as u64));
    if let (Some(before), Some(after)) = (used, servers.processor_time(kind.system())?) {
        record.number("server_cpu_us_per_grant", micros_per(after - before, grants as u64));
    }
    record.errors = answer.callers.into_iter().flat_map(|caller| caller.errors).collect();
    record.number("errors", record.errors.len() as f64);
    record.errors.truncate(1);
    Ok(record)
}

pub(crate) fn micros_per(time: Duration, grants: u64) -> f64 {
    time.as_secs_f64() * 1e6 / grants as f64
}
