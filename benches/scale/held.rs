//! Very many locks that one client holds: memory, renewals, and what another lock costs meanwhile.

use std::time::Instant;

use anyhow::Result;
use common::record::Record;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::MEMORY;
use crate::arguments::Sizes;
use crate::ground::{Ground, LOCK, Side, bar, builder};

pub(crate) const MEASURE: &str = "held locks";
pub(crate) const LOCKS: &str = "locks";

/// This many are acquired or released at a time.
const AT_ONCE: usize = 64;

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let tag = ground.new_name("beside-held");
    let sides = [Side::Bare(tag.clone()), Side::Names(LOCK, tag)];
    let mut records = compare(ground, &sides, 0, sizes).await?;
    let client = builder(ground.cluster).build().await?;
    let progress = bar(u64::from(sizes.held), "locks held");
    let (began, memory, tag) = (Instant::now(), MEMORY.current_usage(), ground.new_name("held"));
    let acquire = |number: u32| {
        let (client, name) = (client.clone(), format!("{tag}-{number}"));
        async move { client.lock(&name).await }
    };
    let guards = stream::iter(0..sizes.held).map(acquire).buffer_unordered(AT_ONCE);
    let guards: Vec<_> = guards.inspect(|_| progress.inc(1)).try_collect().await?;
    progress.finish_and_clear();
    let (acquired, each) = (began.elapsed(), f64::from(sizes.held));
    let memory = MEMORY.current_usage().saturating_sub(memory);
    let (renewing, before) = (Instant::now(), client.statistics());
    records.extend(compare(ground, &sides, sizes.held, sizes).await?);
    if let Some(left) = sizes.held_for.checked_sub(renewing.elapsed()) {
        tokio::time::sleep(left).await;
    }
    let (after, seconds) = (client.statistics(), renewing.elapsed().as_secs_f64());
    let lost = guards.iter().filter(|guard| !guard.state().is_held()).count();
    let releasing = Instant::now();
    let released = stream::iter(guards).map(bakery_lock::LockGuard::unlock);
    let released: Vec<_> = released.buffer_unordered(AT_ONCE).collect().await;
    let mut record = Record::new(0, "one client", MEASURE, Some((LOCKS, u64::from(sizes.held))));
    record.number("locked_per_second", each / acquired.as_secs_f64());
    record.number("bytes_per_lock", memory as f64 / each);
    record.number("renewals_per_second", (after.writes - before.writes) as f64 / seconds);
    let operations = after.operations() - before.operations();
    record.number("operations_per_second", operations as f64 / seconds);
    record.number("lost", lost as f64);
    record.number("unlocked_per_second", each / releasing.elapsed().as_secs_f64());
    record.number("not_unlocked", released.iter().filter(|it| it.is_err()).count() as f64);
    records.push(record);
    client.shutdown().await?;
    Ok(records)
}

async fn compare(
    ground: &Ground<'_>,
    sides: &[Side],
    held: u32,
    sizes: &Sizes,
) -> Result<Vec<Record>> {
    let records = ground.compare(sides, sizes).await?.into_iter();
    let parameters = [(LOCKS.to_owned(), u64::from(held))];
    let complete = |record| Record {
        half: held,
        measure: MEASURE.to_owned(),
        parameters: parameters.clone().into(),
        ..record
    };
    Ok(records.map(complete).collect())
}
