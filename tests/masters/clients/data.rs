//! Data in Redis that the tests protect by locks. One server has it, so that it does not depend on
//! what the lock does.

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
