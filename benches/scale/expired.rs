//! A name for which very many clients waited that died before anyone read it again: rows as such
//! clients leave them, written here, because that many clients can't wait at the same time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use common::cluster::KEYSPACE;
use common::record::Record;
use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use crate::arguments::Sizes;
use crate::bare::unix_micros;
use crate::ground::{Ground, OLD, bar, lock_and_unlock};
use crate::leavers::{CLIENTS, compare};

pub(crate) const MEASURE: &str = "clients' rows expired";
pub(crate) const FLUSHED: &str = "clients' rows expired, nodes flushed";

/// This many are written at a time.
const AT_ONCE: usize = 64;

/// The shortest that rows of clients have.
const TTL: Duration = Duration::from_secs(5);

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let rows = Rows::prepare(ground.cluster.session()).await?;
    let mut records = Vec::new();
    let progress = bar(sizes.expired.len() as u64, "numbers of clients whose rows expire");
    for &clients in sizes.expired {
        let name = ground.new_name("expired");
        records.extend(compare(ground, &name, MEASURE, 0, sizes).await?);
        let write = |number| rows.write(&name, number);
        let mut writes = stream::iter(0..clients).map(write).buffer_unordered(AT_ONCE);
        while writes.try_next().await?.is_some() {}
        drop(writes);
        tokio::time::sleep(TTL + Duration::from_secs(1)).await;
        let (before, began) = (ground.client.statistics(), Instant::now());
        lock_and_unlock(&ground.client, &name).await?;
        let first = began.elapsed();
        let between = compare(ground, &name, MEASURE, clients, sizes).await?;
        let mut record = Record::new(clients, OLD, MEASURE, Some((CLIENTS, u64::from(clients))));
        record.number("first_lock_ms", first.as_secs_f64() * 1e3);
        let failures = ground.client.statistics().failures - before.failures;
        record.number("failed_reads", failures as f64);
        records.push(record);
        records.extend(between);
        if ground.cluster.is_own() {
            ground.flush().await?;
            records.extend(compare(ground, &name, FLUSHED, clients, sizes).await?);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(records)
}

/// The row of a client that waits.
struct Rows {
    session: Arc<Session>,
    insert: PreparedStatement,
}

impl Rows {
    async fn prepare(session: &Arc<Session>) -> Result<Self> {
        let insert = format!(
            "INSERT INTO {KEYSPACE}.lock_table \
             (object_name, row_name, host, client, slot, state, about) \
             VALUES (?, 'entering::', 1, ?, 0, ?, ?) USING TIMESTAMP ? AND TTL {}",
            TTL.as_secs()
        );
        let mut insert = session.prepare(insert).await?;
        insert.set_consistency(Consistency::Quorum);
        Ok(Rows { session: Arc::clone(session), insert })
    }

    async fn write(&self, name: &str, number: u32) -> Result<()> {
        let (stamp, client) = (unix_micros()?, Uuid::new_v4());
        let state = (stamp, 0_i8, None::<i32>, i64::from(number) + 1, None::<CqlTimestamp>);
        let about = ("bench pid 4711", None::<&str>, CqlTimestamp(stamp / 1_000));
        let row = (name, client, state, about, stamp);
        self.session.execute_unpaged(&self.insert, row).await?;
        Ok(())
    }
}
