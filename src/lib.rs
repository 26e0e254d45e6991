//! A distributed lock for services that already run on Apache Cassandra or ScyllaDB.
//!
//! It is Lamport's bakery algorithm on plain QUORUM reads and writes: no other server, no
//! lightweight transactions. Whoever wants a lock announces itself, draws a ticket and waits for
//! smaller tickets to go; rows carry TTLs, so a crashed holder blocks nobody for long, and a guard
//! renews them while the lock is held and deletes them when it is dropped.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bakery_lock::{LockClient, MemoryStore};
//!
//! // On a cluster: LockClient::builder(session, "my_keyspace").build().await?
//! let client = LockClient::builder_in_memory(&MemoryStore::new()).register_host(true).build().await?;
//!
//! let guard = client.lock("users::snap").await?;
//! // Nobody else is in here: read, decide, write.
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What holds a lock
//!
//! A lock is kept by a lease, not by a connection. The [`LockGuard`] renews it at a third of the TTL
//! and tells when it is at risk or lost. A process that is stopped for longer than its lease, and
//! goes on afterwards, has lost the lock without having noticed yet: ask the guard before a step
//! that must not be taken twice.
//!
//! # Errors
//!
//! Each operation has an error type of its own, which says what is left behind. An error of the
//! database whose outcome is unknown is never taken as "did not happen".
//!
//! # Cancel safety
//!
//! Every future of this crate can be dropped at any point. What was begun is finished or undone by
//! the client's task, so that no row stays behind.
//!
//! # Runtime
//!
//! A client runs a task on the tokio runtime on which it is built; that needs tokio's time driver.

mod client;
mod clock;
mod dispatch;
mod error;
mod guard;
pub mod hosts;
mod local;
mod options;
mod protocol;
mod runner;
pub mod schema;
mod store;

/// What tests of this package need from inside.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod test_util {
    pub use crate::store::conformance::cassandra_conforms;
}

pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{
    Ahead, BuildError, DatabaseError, LockError, LostReason, Outcome, ShutdownError, UnlockError,
};
pub use guard::{GuardState, LockGuard, Lost};
pub use options::{Consistency, OptionError};
#[cfg(feature = "test-util")]
pub use store::Fault;
pub use store::{MemoryStore, Statistics};
