//! What one client pays when no other client wants the lock.

use anyhow::{Context, Result};
use common::quantiles::Quantiles;
use common::record::Record;

use crate::measures::orders::Order;
use crate::measures::pool::Pool;

/// The name of the measure.
pub(crate) const MEASURE: &str = "uncontended";

/// What came of some blocks of pairs.
#[derive(Default)]
pub(crate) struct Pairs {
    /// How long each lock and each unlock took, in nanoseconds.
    times: Vec<[u64; 2]>,
    errors: Vec<String>,
}

impl Pairs {
    /// Times a block of pairs.
    pub(crate) async fn add_block(
        &mut self,
        pool: &mut Pool,
        first: u32,
        pairs: u32,
    ) -> Result<()> {
        let answers = pool.order(1, &Order::Pairs { first, pairs }).await;
        let answers = answers.context("an uncontended lock failed")?;
        for answer in answers {
            self.times.extend(answer.pairs);
            self.errors.extend(answer.errors);
        }
        Ok(())
    }

    pub(crate) fn record(mut self, half: u32, side: &str) -> Record {
        let mut record = Record::new(half, side, MEASURE, None);
        let of = |figure: fn(&[u64; 2]) -> u64| {
            Quantiles::milliseconds(self.times.iter().map(figure).collect())
        };
        record.quantiles("lock_ms", of(|[lock, _]| *lock));
        record.quantiles("unlock_ms", of(|[_, unlock]| *unlock));
        record.quantiles("both_ms", of(|[lock, unlock]| lock + unlock));
        record.number("errors", self.errors.len() as f64);
        self.errors.truncate(1);
        record.errors = self.errors;
        record
    }
}
