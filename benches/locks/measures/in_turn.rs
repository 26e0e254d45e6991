//! What one client pays for names that it uses again and again.

use std::time::Duration;

use anyhow::{Context, Result};
use common::quantiles::Quantiles;
use common::record::Record;
use support::monotonic::now;

use crate::measures::distinct::micros_per;
use crate::measures::orders::{Contend, Names, Order};
use crate::measures::pool::Pool;

/// The name of the measure.
pub(crate) const MEASURE: &str = "names in turn";
pub(crate) const NAMES: &str = "names";

/// How the side is called whose client keeps places.
pub(crate) const KEPT: &str = "bakery, kept places";

/// It keeps them for this long: a round through all names is the pause between two uses of each.
pub(crate) const KEEP_IDLE: Duration = Duration::from_secs(120);

/// A place is kept once its name was used twice.
const ROUNDS_BEFORE: u32 = 3;

/// Lets one caller lock and unlock this many names in turn, over and over. One that `keeps` its
/// places goes round before it is measured.
pub(crate) async fn measure(
    pool: &mut Pool,
    names: usize,
    prefix: &str,
    length: Duration,
    keeps: bool,
) -> Result<Record> {
    let all = Names::InTurn { prefix: prefix.to_owned(), names };
    if keeps {
        pool.order(1, &Order::Rounds { names: all.clone(), rounds: ROUNDS_BEFORE }).await?;
    }
    let ends = now() + u64::try_from(length.as_nanos())?;
    let order = Contend { names: all, callers: 1, hold: Duration::ZERO, ends };
    let answers = pool.order(1, &Order::Contend(order)).await?;
    let mut answer = answers.into_iter().next().context("one worker answers")?;
    let served = answer.callers.pop().context("it has one caller")?;
    let mut record = Record::new(0, "", MEASURE, Some((NAMES, names as u64)));
    let grants = served.holds.len() as u64;
    let figures = |figure: fn(&[u64; 3]) -> u64| {
        Quantiles::milliseconds(served.holds.iter().map(figure).collect())
    };
    record.quantiles("lock_ms", figures(|[asked, granted, _]| granted - asked));
    record.number("us_per_grant", micros_per(length, grants));
    record.number("grants_per_second", grants as f64 / length.as_secs_f64());
    record.number("operations_per_grant", answer.operations.sent as f64 / grants as f64);
    record.number("client_cpu_us_per_grant", micros_per(answer.processor, grants));
    record.number("errors", served.errors.len() as f64);
    record.errors = served.errors;
    record.errors.truncate(1);
    Ok(record)
}
