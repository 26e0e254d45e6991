//! Data in Redis that the tests protect by locks. One server has it, so that it does not depend on
//! what the lock does.

use bakery_lock::FencingToken;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use super::scene::Scene;

/// A number that is read and written.
#[derive(Clone)]
pub(crate) struct Counter {
    connection: MultiplexedConnection,
    pub(crate) name: String,
}

impl Counter {
    /// A counter. It begins with zero.
    pub(crate) async fn new(scene: &Scene, name: &str) -> Self {
        Counter { connection: scene.connections[0].clone(), name: name.to_owned() }
    }

    /// Its value.
    pub(crate) async fn value(&self) -> i64 {
        let value: Option<i64> =
            self.connection.clone().get(&self.name).await.expect("the server answers");
        value.unwrap_or(0)
    }

    /// Reads the value and writes the next one.
    pub(crate) async fn increment(&self) {
        let next = self.value().await + 1;
        let written = self.connection.clone().set(&self.name, next).await;
        let () = written.expect("the server answers");
    }
}

/// The columns of a [`Row`].
pub(crate) const COLUMNS: [&str; 3] = ["a", "b", "c"];

/// Writes a column, unless it has a newer one. ARGV: column, timestamp, text.
const WRITE: &str = "
    local newest = redis.call('HGET', KEYS[1], 'stamp of ' .. ARGV[1])
    if not newest or tonumber(newest) <= tonumber(ARGV[2]) then
      redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], 'stamp of ' .. ARGV[1], ARGV[2])
    end";

/// A hash that is written field by field, with the timestamps of a token if there is one.
pub(crate) struct Row {
    connection: MultiplexedConnection,
    name: String,
    token: Option<FencingToken>,
    writes: u16,
}

impl Row {
    /// A row, which is written under a lock with this token.
    pub(crate) async fn new(scene: &Scene, name: &str, token: Option<FencingToken>) -> Self {
        let connection = scene.connections[0].clone();
        Row { connection, name: name.to_owned(), token, writes: 0 }
    }

    /// Writes one column.
    pub(crate) async fn write(&mut self, column: usize, text: &str) {
        let write = match self.token {
            Some(token) => {
                let stamp = token.write_timestamp(self.writes).expect("it is stopped before");
                self.writes += 1;
                let mut write = redis::cmd("EVAL");
                write.arg(WRITE).arg(1).arg(&self.name).arg(COLUMNS[column]).arg(stamp).arg(text);
                write
            }
            None => {
                let mut write = redis::cmd("HSET");
                write.arg(&self.name).arg(COLUMNS[column]).arg(text);
                write
            }
        };
        let written: Result<(), _> = write.query_async(&mut self.connection).await;
        written.expect("the server answers");
    }

    /// What the columns hold; all must have been written.
    pub(crate) async fn columns(&self) -> Vec<String> {
        let read = self.connection.clone().hmget(&self.name, &COLUMNS[..]).await;
        read.expect("all are written")
    }
}
