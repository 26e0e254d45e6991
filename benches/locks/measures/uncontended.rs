//! What one client pays when no other client wants the lock.

use anyhow::{Context, Result};
use figures::quantiles::Quantiles;
use figures::record::Record;

use crate::measures::orders::Order;
use crate::measures::pool::Pool;

/// The name of the measure.
pub(crate) const MEASURE: &str = "uncontended";

/// Times a block of pairs.
pub(crate) async fn block(pool: &mut Pool, first: u32, pairs: u32) -> Result<Vec<[u64; 2]>> {
    let answers = pool.order(1, &Order::Pairs { first, pairs }).await;
    let answers = answers.context("an uncontended lock failed")?;
    Ok(answers.into_iter().next().context("one worker answers")?.pairs)
}

pub(crate) fn record(half: u32, side: &str, pairs: &[[u64; 2]]) -> Record {
    let mut record = Record::new(half, side, MEASURE, None);
    let of =
        |figure: fn(&[u64; 2]) -> u64| Quantiles::milliseconds(pairs.iter().map(figure).collect());
    record.quantiles("lock_ms", of(|[lock, _]| *lock));
    record.quantiles("unlock_ms", of(|[_, unlock]| *unlock));
    record.quantiles("both_ms", of(|[lock, unlock]| lock + unlock));
    record
}
