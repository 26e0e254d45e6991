//! The yardstick: one bare QUORUM write and one bare QUORUM read of the same row.

use std::sync::Arc;

use anyhow::Result;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use uuid::Uuid;

use crate::sides::{Setup, Side};
use common::cluster::KEYSPACE;

/// "Locking" writes a row and "unlocking" reads it, so that it is timed as the locks are.
#[derive(Debug)]
pub(crate) struct Bare {
    session: Arc<Session>,
    write: PreparedStatement,
    read: PreparedStatement,
    value: Uuid,
}

impl Bare {
    /// Creates the table.
    pub(crate) async fn create_table(session: &Session) -> Result<()> {
        let table = format!(
            "CREATE TABLE {KEYSPACE}.bare (name text, item text, value uuid, \
             PRIMARY KEY ((name), item))"
        );
        session.query_unpaged(table, ()).await?;
        Ok(())
    }

    pub(crate) async fn prepare(session: &Arc<Session>, setup: &Setup) -> Result<Self> {
        let write = format!(
            "INSERT INTO {KEYSPACE}.bare (name, item, value) VALUES (?, 'item', ?) \
             USING TTL {}",
            setup.ttl.as_secs()
        );
        let read = format!("SELECT item, value FROM {KEYSPACE}.bare WHERE name = ?");
        Ok(Bare {
            write: session.prepare(write).await?,
            read: session.prepare(read).await?,
            session: Arc::clone(session),
            value: Uuid::new_v4(),
        })
    }
}

impl Side for Bare {
    type Held = String;

    async fn lock(&self, name: &str) -> Result<String> {
        self.session.execute_unpaged(&self.write, (name, self.value)).await?;
        Ok(name.to_owned())
    }

    async fn unlock(&self, name: String) -> Result<()> {
        let rows = self.session.execute_unpaged(&self.read, (name,)).await?;
        rows.into_rows_result()?.single_row::<(String, Uuid)>()?;
        Ok(())
    }
}
