//! One name that is locked very often, compared with names that were not.

use std::time::Instant;

use anyhow::Result;
use common::record::Record;

use crate::arguments::Sizes;
use crate::ground::{Ground, OLD, Side, YOUNG, bar, lock_and_unlock};
use crate::state::{State, state};

pub(crate) const MEASURE: &str = "age";
/// How often the name was locked before.
pub(crate) const LOCKS: &str = "locks";

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let (name, young) = (ground.new_name("old"), ground.new_name("young"));
    let sides = [Side::Name(OLD, name.clone()), Side::Names(YOUNG, young)];
    let progress = bar(u64::from(sizes.locks), "locks of one name");
    let (mut records, mut so_far) = (Vec::new(), 0);
    loop {
        for record in ground.compare(&sides, sizes).await? {
            let mut record = Record {
                half: so_far,
                measure: MEASURE.to_owned(),
                parameters: [(LOCKS.to_owned(), u64::from(so_far))].into(),
                ..record
            };
            if record.side == OLD && ground.cluster.is_own() {
                let State { files, flushes, compactions, tombstones_per_read, .. } =
                    state(ground.cluster).await?;
                record.number("files", files as f64);
                record.number("flushes", flushes as f64);
                record.number("compactions", compactions as f64);
                record.number("dead_cells_per_read", tombstones_per_read);
            }
            records.push(record);
        }
        if so_far >= sizes.locks {
            progress.finish_and_clear();
            return Ok(records);
        }
        let next = (so_far + sizes.locks_between).min(sizes.locks);
        let began = Instant::now();
        for _ in so_far..next {
            lock_and_unlock(&ground.client, &name).await?;
            progress.inc(1);
        }
        let mut record =
            Record::new(so_far, "all locks", MEASURE, Some((LOCKS, u64::from(so_far))));
        let rate = f64::from(next - so_far) / began.elapsed().as_secs_f64();
        record.number("locks_per_second", rate);
        records.push(record);
        so_far = next;
        if so_far.is_multiple_of(sizes.locks_between_flushes) && ground.cluster.is_own() {
            ground.flush().await?;
        }
    }
}
