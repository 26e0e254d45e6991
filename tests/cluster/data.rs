//! Data in Cassandra that the tests protect by locks.

use std::sync::Arc;

use bakery_lock::FencingToken;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use support::scene::Scene;

/// A row with a number, read and written at QUORUM.
#[derive(Clone)]
pub(crate) struct Counter {
    session: Arc<Session>,
    pub(crate) name: String,
    select: PreparedStatement,
    update: PreparedStatement,
}

impl Counter {
    /// A counter; its table is made when it is missing.
    pub(crate) async fn new(scene: &Scene, name: &str) -> Self {
        let table = format!("\"{}\".test_counters", scene.keyspace);
        let columns = "(name text PRIMARY KEY, value bigint)";
        scene.change_schema(&format!("CREATE TABLE IF NOT EXISTS {table} {columns}")).await;
        let prepare = async |text: String| {
            let mut statement = scene.session.prepare(text).await.expect("the cluster answers");
            statement.set_consistency(Consistency::Quorum);
            statement
        };
        Counter {
            session: Arc::clone(&scene.session),
            name: name.to_owned(),
            select: prepare(format!("SELECT value FROM {table} WHERE name = ?")).await,
            update: prepare(format!("UPDATE {table} SET value = ? WHERE name = ?")).await,
        }
    }

    /// Its value.
    pub(crate) async fn value(&self) -> i64 {
        let rows = self.session.execute_unpaged(&self.select, (&self.name,)).await;
        let rows = rows.expect("the cluster answers").into_rows_result().expect("it has rows");
        let row = rows.maybe_first_row::<(i64,)>().expect("this is the column");
        row.map_or(0, |(value,)| value)
    }

    /// Reads the value and writes the next one.
    pub(crate) async fn increment(&self) {
        let values = (self.value().await + 1, &self.name);
        let written = self.session.execute_unpaged(&self.update, values).await;
        written.expect("the cluster answers");
    }
}

/// The columns of a [`Row`].
pub(crate) const COLUMNS: [&str; 3] = ["a", "b", "c"];

/// A row that is written column by column, with the timestamps of a token if there is one.
pub(crate) struct Row {
    session: Arc<Session>,
    name: String,
    token: Option<FencingToken>,
    writes: u16,
    select: PreparedStatement,
    with_token: Vec<PreparedStatement>,
    without: Vec<PreparedStatement>,
}

impl Row {
    /// A row, which is written under a lock with this token; its table is made when it is missing.
    pub(crate) async fn new(scene: &Scene, name: &str, token: Option<FencingToken>) -> Self {
        let table = format!("\"{}\".test_rows", scene.keyspace);
        let columns = "(name text PRIMARY KEY, a text, b text, c text)";
        scene.change_schema(&format!("CREATE TABLE IF NOT EXISTS {table} {columns}")).await;
        let prepare = async |text: String| {
            let mut statement = scene.session.prepare(text).await.expect("the cluster answers");
            statement.set_consistency(Consistency::Quorum);
            statement
        };
        let (mut with_token, mut without) = (Vec::new(), Vec::new());
        for column in COLUMNS {
            let set = format!("SET {column} = ? WHERE name = ?");
            with_token.push(prepare(format!("UPDATE {table} USING TIMESTAMP ? {set}")).await);
            without.push(prepare(format!("UPDATE {table} {set}")).await);
        }
        Row {
            session: Arc::clone(&scene.session),
            name: name.to_owned(),
            token,
            writes: 0,
            select: prepare(format!("SELECT a, b, c FROM {table} WHERE name = ?")).await,
            with_token,
            without,
        }
    }

    /// Writes one column.
    pub(crate) async fn write(&mut self, column: usize, text: &str) {
        let written = match self.token {
            Some(token) => {
                let stamp = token.write_timestamp(self.writes).expect("it is stopped before");
                self.writes += 1;
                let values = (stamp, text, &self.name);
                self.session.execute_unpaged(&self.with_token[column], values).await
            }
            None => self.session.execute_unpaged(&self.without[column], (text, &self.name)).await,
        };
        written.expect("the cluster answers");
    }

    /// What the columns hold; all must have been written.
    pub(crate) async fn columns(&self) -> Vec<String> {
        let rows = self.session.execute_unpaged(&self.select, (&self.name,)).await;
        let rows = rows.expect("the cluster answers").into_rows_result().expect("it has rows");
        let (a, b, c) = rows.single_row::<(String, String, String)>().expect("all are written");
        vec![a, b, c]
    }
}
