//! A distributed lock for services that already run on Apache Cassandra or ScyllaDB.
//!
//! It is Lamport's bakery algorithm on plain QUORUM reads and writes: no other server, no
//! lightweight transactions. A client announces itself, draws a ticket, and waits for the smaller
//! tickets to leave. Rows carry TTLs, so a crashed holder blocks others only until its lease ends;
//! a guard renews them while the lock is held, and deletes them when it is dropped.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use bakery_lock::{LockClient, LockError};
//! use scylla::client::session_builder::SessionBuilder;
//!
//! let session = SessionBuilder::new()
//!     .known_nodes(["db1", "db2", "db3"])
//!     .user("app", "secret")
//!     .keepalive_interval(Duration::from_secs(2))
//!     .build()
//!     .await?;
//! let client = LockClient::builder(session, "bakery_lock").build().await?;
//! match client.lock("users::snap").await {
//!     Ok(guard) => {
//!         // No other client holds "users::snap" here: read, decide, write.
//!         guard.unlock().await?;
//!     }
//!     Err(LockError::TimedOut { ahead, .. }) => println!("busy; ahead of us: {ahead:?}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | | |
//! |---|---|
//! | hold a lock, and wait for it | [`LockClient::lock`], [`LockGuard`] |
//! | only if it is free | [`LockClient::try_lock`] |
//! | run work that stops when the lock is lost | [`LockClient::with_lock`] |
//! | with a timeout, TTL, label or limit of its own | [`LockClient::request`], [`LockRequest`] |
//! | readers together, writers alone | [`LockRequest::shared`] |
//! | a limited number at once | [`LockRequest::max_holders`] |
//! | a job that several machines start | [`LockRequest::min_hold`] |
//! | a step that can't be stopped | [`LockRequest::at_least`], [`LockHandle::ensure`] |
//! | several locks, all or none | [`LockClient::lock_all`] |
//! | a leader, and who it is | [`LockClient::election`], [`Election::lead`] |
//! | data that rejects late writes | [`LockHandle::fencing_token`], [`FencingToken`] |
//! | processes that pass a lock on by message | [`LockClientBuilder::peers`] |
//! | programs without async code | [`blocking`] |
//! | Redis or Valkey servers instead of a cluster | [`Masters`], [`masters`] |
//! | tests of your program | [`MemoryStore`], [`testing`] |
//! | who holds what | [`LockClient::held`], [`LockClient::contenders`], [`admin`] |
//! | create tables, register hosts | the tool `lock-hosts`, [`schema`], [`hosts`] |
//!
//! # What is guaranteed
//!
//! While the assumptions below hold:
//!
//! - At most one guard of a name is held at any moment.
//! - First come, first served: a client that has drawn a ticket goes before all that come later, or
//!   gives up.
//! - A holder that crashes blocks others for its TTL and the clock skew at most; up to 15 s longer
//!   if a write of it was still under way in an overloaded database.
//! - Unlocking, dropping a guard and dropping a future leave no row behind.
//!
//! # What is assumed
//!
//! - A process looks at its guard before each step that must not be taken twice. One that was
//!   stopped for longer than its lease continues, although another holds, until it looks.
//! - Quorums meet: all clients of a lock table use QUORUM, or all use `LOCAL_QUORUM` of one data
//!   centre. Otherwise two clients hold a lock for as long as that lasts.
//! - Acknowledged writes are not lost, and rows and tables are not deleted, truncated, dropped or
//!   altered while locks are taken. Otherwise two clients hold a lock, for two thirds of a TTL at
//!   most: the earlier holder finds out at a renewal, and is lost.
//! - The clocks of the nodes agree within `max_clock_skew` (a second by default) for as long as a
//!   lease lasts. Otherwise rows expire too early, with the same result.
//! - The clock of a client's machine neither stands still nor runs behind those of the nodes while
//!   it holds a lock, and the machine is not cloned or rolled back meanwhile.
//!
//! `docs/operations.md` says what operators should do for each, `docs/safety.md` why they are
//! needed and enough.
//!
//! # What a guard knows
//!
//! A lock is kept by a lease, not by a connection. The [`LockGuard`] renews it at a third of the
//! TTL and reports when it is at risk or lost: [`state`](LockHandle::state),
//! [`lost`](LockHandle::lost), [`cancellation_token`](LockHandle::cancellation_token). A process
//! that is stopped for longer than its lease and then continues has lost the lock without having
//! noticed yet, so look at [`state`](LockHandle::state) before each step that must not be taken
//! twice: it alone decides. The other two wake a task, which takes a runtime that runs: `lost` the
//! one it is polled on, the token the one the client was built on.
//!
//! That a lock is at risk, and that it is lost, is logged at WARN with its name, the reason and
//! times.
//!
//! ```
//! # use bakery_lock::{LockClient, MemoryStore};
//! # async fn one_step() {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = MemoryStore::new();
//! # let client = LockClient::builder_in_memory(&store).build().await?;
//! let guard = client.lock("users::snap").await?;
//! tokio::select! {
//!     () = one_step() => guard.unlock().await?,
//!     reason = guard.expiring() => eprintln!("revoked or lost: {reason:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Fencing tokens
//!
//! However late a process looks at its guard, it can be stopped right after, and write when another
//! client holds the lock. Where that must do no harm, let the data reject it: each write carries a
//! [`FencingToken`], which grows from holder to holder. It is a legal write timestamp, so Cassandra
//! itself lets the stale write lose; [`FencingToken`] states the rules.
//!
//! ```
//! # use bakery_lock::{LockClient, MemoryStore};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = MemoryStore::new();
//! # let client = LockClient::builder_in_memory(&store).build().await?;
//! let guard = client.lock("users::snap").await?;
//! let token = guard.fencing_token().await?;
//! let stamp = token.write_timestamp(0).ok_or("a token has room for 1000 writes")?;
//! // UPDATE users USING TIMESTAMP <stamp> SET .. WHERE name = 'snap'
//! # assert_eq!(stamp, token.value());
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! Each operation has an error type of its own, which says what is left behind. After a
//! [`LockError`] nothing is held. A write whose outcome is [unknown](Outcome::Unknown) is never
//! taken for one that did not happen: it is tried again, with the same timestamp, and what it may
//! have written is deleted when the acquisition is given up.
//!
//! # Metrics
//!
//! [`LockClient::statistics`] counts what a client has done. Clients also record waits, holds,
//! renewals, losses and calls to the database for any recorder of the `metrics` crate: see
//! [`metrics`], and `docs/monitoring.md`.
//!
//! # Cancel safety
//!
//! Every future of this crate can be dropped at any point. The client's task does all I/O of locks,
//! so what was begun is finished or undone there, and no row of one stays behind.
//!
//! # Runtime
//!
//! A client runs a task on the tokio runtime on which it is built; that needs tokio's timers. When
//! that runtime ends, rows expire by their TTL and calls answer [`LockError::Closed`]. End programs
//! with [`unlock`](LockGuard::unlock) or [`shutdown`](LockClient::shutdown): a guard that is
//! dropped as `main` ends sends no release.
//!
//! The futures and streams of a client, its guards and its elections may be polled on another
//! runtime, or outside tokio. Their timers are those of the runtime that polls them, and outside
//! one those of the client's; only [`LockHandle::lost`] and [`LockHandle::states`] have none there.

// All CQL is in `store/cassandra/cql.rs`.
#![warn(clippy::disallowed_methods)]
// The tests of this repository need more than a client does.
#![cfg_attr(instrumented, allow(dead_code, unused_imports))]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod admin;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod client;
mod clock;
mod combiner;
mod context;
mod core;
mod driver;
mod election;
mod entropy;
mod error;
mod fencing;
mod finding;
mod guard;
pub mod metrics;
mod options;
mod owner;
mod peers;
mod setup;
mod statistics;
mod store;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use admin::types::{
    ContenderInfo, ContenderState, Health, HealthWarning, LockMode, TurnUser, UnreadyReason,
};
pub use builder::{BuildError, LockClientBuilder, LockSettings, Session, SettingsError};
pub use client::{LockClient, LockRequest, MultiGuard, MultiLockRequest, MultiLostFuture};
pub use election::{Election, Leaders, Leadership};
pub use error::{
    EnsureError, ExpiringReason, LockError, LostReason, ShutdownError, TableError, UnlockError,
};
pub use fencing::{FenceGate, FencingError, FencingToken, StaleToken};
pub use guard::grant::GuardState;
pub use guard::{ExpiringFuture, GuardStates, LockGuard, LockHandle, LostFuture};
pub use options::{Consistency, InvalidOption, ParseConsistencyError};
pub use owner::Owner;
#[cfg(feature = "peers")]
pub use peers::{ParsePeersError, PeerOptions};
#[cfg(feature = "redis")]
pub use setup::masters::{self, MastersError};
pub use setup::{hosts, schema};
pub use statistics::{Losses, Statistics};
#[cfg(feature = "redis")]
pub use store::Masters;
pub use store::{DatabaseError, MemoryStore, MissingPermission, Outcome};
// What the public API has of other crates, so that users need not match their versions.
#[doc(no_inline)]
pub use tokio_util::sync::CancellationToken;
#[doc(no_inline)]
pub use uuid::Uuid;
