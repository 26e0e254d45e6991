//! An uncontended lock before and after the lock table is flushed.
//!
//! After a flush the rows of a name are in a file as well, and a read of all of them looks there
//! too.

use anyhow::Result;
use common::record::Record;

use crate::arguments::Sizes;
use crate::ground::{Ground, LOCK, Side, bar};

pub(crate) const MEASURE: &str = "flushes";
/// How often the names' rows were flushed.
pub(crate) const FLUSHES: &str = "flushes";

/// This many flushes follow each other, with a comparison before and after each.
const TIMES: u64 = 3;

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    if !ground.cluster.is_own() {
        eprintln!("left out: flushes, since the nodes are not the bench's own");
        return Ok(records);
    }
    let progress = bar(u64::from(sizes.flush_rounds) * (TIMES + 1), "comparisons around flushes");
    for round in 0..sizes.flush_rounds {
        let tag = ground.new_name("flushed");
        let [bare, like_lock] = [Side::Bare(tag.clone()), Side::LikeLock(tag.clone())];
        let sides = [bare, like_lock, Side::Names(LOCK, tag)];
        // Each name once before: the first use makes a partition.
        ground.compare(&sides, sizes).await?;
        for flushes in 0..=TIMES {
            if flushes > 0 {
                ground.flush().await?;
            }
            for record in ground.compare(&sides, sizes).await? {
                let parameters = [(FLUSHES.to_owned(), flushes)].into();
                let measure = MEASURE.to_owned();
                records.push(Record { half: round, measure, parameters, ..record });
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(records)
}
