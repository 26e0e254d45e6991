//! Very many names, each locked once.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use bakery_lock::{LockClient, PeerOptions};
use common::record::Record;
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;

use crate::MEMORY;
use crate::arguments::Sizes;
use crate::ground::{Ground, LOCK, Side, bar, builder, lock_and_unlock};
use crate::state::state;

pub(crate) const MEASURE: &str = "names";
pub(crate) const NAMES: &str = "names";

/// This many are locked at a time.
const AT_ONCE: usize = 64;

/// Longer than idle locks are kept.
const IDLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let client = client(ground, sizes).await?;
    let (tag, memory) = (ground.new_name("many"), MEMORY.current_usage());
    let mut records = compare(ground, 0, sizes).await?;
    let progress = bar(u64::from(sizes.names), "names");
    let mut so_far = 0;
    while so_far < sizes.names {
        let next = (so_far + sizes.names_between).min(sizes.names);
        let began = Instant::now();
        let kept_max = lock_once(&client, &tag, so_far..next, &progress).await?;
        let rate = f64::from(next - so_far) / began.elapsed().as_secs_f64();
        so_far = next;
        let parameter = Some((NAMES, u64::from(so_far)));
        let mut record = Record::new(so_far, "all names", MEASURE, parameter);
        record.number("locks_per_second", rate);
        tokio::time::sleep(IDLE).await;
        let left = MEMORY.current_usage() as f64 - memory as f64;
        record.number("bytes_left", left);
        record.number("bytes_left_per_name", left / f64::from(so_far));
        let statistics = client.statistics();
        record.number("kept_max", kept_max as f64);
        record.number("kept_left", statistics.kept as f64);
        record.number("kept_used", statistics.kept_used as f64);
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

/// A client with peers keeps idle locks.
async fn client(ground: &Ground<'_>, sizes: &Sizes) -> Result<LockClient> {
    if !sizes.peers {
        return Ok(ground.client.clone());
    }
    Ok(builder(ground.cluster).peers(PeerOptions::auto()).build().await?)
}

/// Locks each of these names once. Returns how many locks were kept at a time, at most.
async fn lock_once(
    client: &LockClient,
    tag: &str,
    numbers: Range<u32>,
    progress: &ProgressBar,
) -> Result<u64> {
    let lock = |number: u32| {
        let name = format!("{tag}-{number}");
        async move { lock_and_unlock(client, &name).await }
    };
    let mut locks = stream::iter(numbers).map(lock).buffer_unordered(AT_ONCE);
    let mut kept_max = 0;
    while locks.try_next().await?.is_some() {
        progress.inc(1);
        kept_max = kept_max.max(client.statistics().kept);
    }
    Ok(kept_max)
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
