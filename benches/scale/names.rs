//! Very many names, each locked once.

use std::time::Instant;

use anyhow::Result;
use common::record::Record;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::MEMORY;
use crate::arguments::Sizes;
use crate::ground::{Ground, LOCK, Side, bar, lock_and_unlock};
use crate::state::state;

pub(crate) const MEASURE: &str = "names";
pub(crate) const NAMES: &str = "names";

/// This many are locked at a time.
const AT_ONCE: usize = 64;

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let (tag, memory) = (ground.new_name("many"), MEMORY.current_usage());
    let mut records = compare(ground, 0, sizes).await?;
    let progress = bar(u64::from(sizes.names), "names");
    let mut so_far = 0;
    while so_far < sizes.names {
        let next = (so_far + sizes.names_between).min(sizes.names);
        let began = Instant::now();
        let lock = |number: u32| {
            let name = format!("{tag}-{number}");
            async move { lock_and_unlock(&ground.client, &name).await }
        };
        let mut locks = stream::iter(so_far..next).map(lock).buffer_unordered(AT_ONCE);
        while locks.try_next().await?.is_some() {
            progress.inc(1);
        }
        drop(locks);
        let rate = f64::from(next - so_far) / began.elapsed().as_secs_f64();
        so_far = next;
        let parameter = Some((NAMES, u64::from(so_far)));
        let mut record = Record::new(so_far, "all names", MEASURE, parameter);
        record.number("locks_per_second", rate);
        let left = MEMORY.current_usage().saturating_sub(memory) as f64;
        record.number("bytes_left_per_name", left / f64::from(so_far));
        records.push(record);
        records.extend(compare(ground, so_far, sizes).await?);
    }
    progress.finish_and_clear();
    if ground.cluster.is_own() {
        ground.flush().await?;
        let mut record =
            Record::new(so_far, "on disk, one node", MEASURE, Some((NAMES, u64::from(so_far))));
        let state = state(ground.cluster).await?;
        record.number("bytes_on_disk_per_name", state.bytes as f64 / f64::from(so_far));
        records.push(record);
        for record in compare(ground, so_far, sizes).await? {
            records.push(Record { side: format!("{}, after a flush", record.side), ..record });
        }
    }
    Ok(records)
}

async fn compare(ground: &Ground<'_>, names: u32, sizes: &Sizes) -> Result<Vec<Record>> {
    let tag = ground.new_name("beside-many");
    let sides = [Side::Bare(tag.clone()), Side::Names(LOCK, tag)];
    let records = ground.compare(&sides, sizes).await?.into_iter();
    let complete = |record| Record {
        half: names,
        measure: MEASURE.to_owned(),
        parameters: [(NAMES.to_owned(), u64::from(names))].into(),
        ..record
    };
    Ok(records.map(complete).collect())
}
