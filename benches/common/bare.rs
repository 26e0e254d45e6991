//! The yardstick: one bare QUORUM write and one bare QUORUM read of a row with one value.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use uuid::Uuid;

use crate::cluster::KEYSPACE;

/// Rows of a table of their own, one for each name.
#[derive(Debug)]
pub struct BareRows {
    session: Arc<Session>,
    write: PreparedStatement,
    read: PreparedStatement,
    value: Uuid,
}

impl BareRows {
    /// Creates the table.
    pub async fn create_table(session: &Session) -> Result<()> {
        let table = format!(
            "CREATE TABLE {KEYSPACE}.bare (name text, item text, value uuid, \
             PRIMARY KEY ((name), item))"
        );
        session.query_unpaged(table, ()).await?;
        Ok(())
    }

    /// Rows that live for so long.
    pub async fn prepare(session: &Arc<Session>, ttl: Duration) -> Result<Self> {
        let write = format!(
            "INSERT INTO {KEYSPACE}.bare (name, item, value) VALUES (?, 'item', ?) \
             USING TTL {}",
            ttl.as_secs()
        );
        let read = format!("SELECT item, value FROM {KEYSPACE}.bare WHERE name = ?");
        Ok(BareRows {
            write: session.prepare(write).await?,
            read: session.prepare(read).await?,
            session: Arc::clone(session),
            value: Uuid::new_v4(),
        })
    }

    pub async fn write(&self, name: &str) -> Result<()> {
        self.session.execute_unpaged(&self.write, (name, self.value)).await?;
        Ok(())
    }

    pub async fn read(&self, name: &str) -> Result<()> {
        let rows = self.session.execute_unpaged(&self.read, (name,)).await?;
        rows.into_rows_result()?.single_row::<(String, Uuid)>()?;
        Ok(())
    }
}
