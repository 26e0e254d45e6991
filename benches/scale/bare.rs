//! Bare operations on a table with the lock's columns.

use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use anyhow::{Result, ensure};
use bakery_lock::schema::{self, CreateOptions};
use common::cluster::{KEYSPACE, TestCluster};
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use crate::ground::nanoseconds;

/// What an uncontended lock and unlock send, without the lock: a write and a read of a row with the
/// lock's columns, in a table with its options, and a delete.
pub(crate) struct LockRows {
    session: Arc<Session>,
    write: PreparedStatement,
    read: PreparedStatement,
    delete: PreparedStatement,
    client: Uuid,
}

impl LockRows {
    pub(crate) async fn prepare(cluster: &TestCluster) -> Result<Self> {
        let session = Arc::clone(cluster.session());
        schema::create(&session, KEYSPACE, &CreateOptions::new().lock_table("bare_rows")).await?;
        let table = format!("{KEYSPACE}.bare_rows");
        let columns = "row_name, host, client, slot, state, about";
        let write = format!(
            "INSERT INTO {table} (object_name, {columns}) \
             VALUES (?, 'entering::', 1, ?, 0, ?, ?) USING TIMESTAMP ? AND TTL 60"
        );
        let read = format!(
            "SELECT {columns}, last_release, WRITETIME(last_release), mark FROM {table} \
             WHERE object_name = ?"
        );
        let delete = format!(
            "DELETE FROM {table} USING TIMESTAMP ? WHERE object_name = ? \
             AND row_name = 'entering::' AND host = 1 AND client = ? AND slot = 0"
        );
        Ok(LockRows {
            write: session.prepare(write).await?,
            read: session.prepare(read).await?,
            delete: session.prepare(delete).await?,
            client: Uuid::new_v4(),
            session,
        })
    }

    /// How long the write and the read took, and the delete, in nanoseconds.
    pub(crate) async fn pair(&self, name: &str) -> Result<[u64; 2]> {
        let stamp = unix_micros()?;
        let since = CqlTimestamp(stamp / 1000);
        let state = (stamp, 0_i8, None::<i32>, None::<i64>, None::<CqlTimestamp>);
        let about = ("bench pid 4711", None::<&str>, since);
        let row = (name, self.client, state, about, stamp);
        let began = Instant::now();
        self.session.execute_unpaged(&self.write, row).await?;
        let rows = self.session.execute_unpaged(&self.read, (name,)).await?.into_rows_result()?;
        ensure!(rows.rows_num() == 1, "{name} has {} rows, and should have one", rows.rows_num());
        let locked = began.elapsed();
        self.session.execute_unpaged(&self.delete, (unix_micros()?, name, self.client)).await?;
        Ok([nanoseconds(locked), nanoseconds(began.elapsed() - locked)])
    }
}

pub(crate) fn unix_micros() -> Result<i64> {
    Ok(i64::try_from(UNIX_EPOCH.elapsed()?.as_micros())?)
}
