//! Stores for tests, behind the feature `test-util`.
//!
//! [`FaultyStore`] is for tests of your own program: what does it do when the database is down, or
//! when a lock is lost while it is held? Time is tokio's; pause it, and a minute passes at once.
//!
//! ```toml
//! [dev-dependencies]
//! bakery-lock = { version = "0.1", features = ["test-util"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! The lock is lost:
//!
//! ```
//! use bakery_lock::LostReason;
//! use bakery_lock::testing::FaultyStore;
//!
//! # /*
//! #[tokio::test(start_paused = true)]
//! async fn work_stops_when_the_lock_is_lost() -> Result<(), Box<dyn std::error::Error>> {
//! # */
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = FaultyStore::new();
//!     let client = store.client_builder().host("web1").build().await?;
//!     let guard = client.lock("users::snap").await?;
//!
//!     store.lose_rows("users::snap");
//!     // The next renewal finds out, a third of the TTL later at most.
//!     assert_eq!(guard.lost().await, Some(LostReason::RowMissing));
//!     // Here: did your program stop its work?
//!     Ok(())
//! }
//! ```
//!
//! The database is down:
//!
//! ```
//! use bakery_lock::LostReason;
//! use bakery_lock::testing::{Fault, FaultyStore};
//!
//! # /*
//! #[tokio::test(start_paused = true)]
//! async fn a_holder_stops_when_the_database_is_down() -> Result<(), Box<dyn std::error::Error>> {
//! # */
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = FaultyStore::new();
//!     let client = store.client_builder().host("web1").build().await?;
//!     let guard = client.lock("users::snap").await?;
//!
//!     store.fail_next(usize::MAX, Fault::UnknownNotApplied);
//!     // No renewal succeeds, so the lease ends, before the rows expire.
//!     assert_eq!(guard.lost().await, Some(LostReason::Expired));
//!
//!     store.fail_next(0, Fault::UnknownNotApplied);
//!     client.lock("users::snap").await?;
//!     Ok(())
//! }
//! ```

pub(crate) mod clock;
pub(crate) mod entropy;
mod faulty_store;
#[cfg(feature = "test-util")]
mod flood;
// Not in the published package.
#[cfg(any(test, instrumented))]
#[cfg_attr(not(instrumented), allow(dead_code, unreachable_pub, reason = "unit tests use a part"))]
#[allow(clippy::disallowed_methods, reason = "they look into tables themselves")]
#[path = "../../tests/instrumented/src/mod.rs"]
pub(crate) mod instrumented;

#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use crate::clock::set_wall_clock_error;

pub use self::faulty_store::{Fault, FaultyStore};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use self::flood::flood;
#[cfg(all(instrumented, feature = "redis"))]
#[doc(hidden)]
pub use self::instrumented::conformance::masters_conform;
#[cfg(any(test, instrumented))]
#[doc(hidden)]
pub use self::instrumented::simulated::{
    Conditions, Counted, Cut, Geography, LineKind, LineRecord, LossRecord, Replicas, Routing,
    SimulatedClient, SimulatedCluster, Spread, Weather, Work, WriteKind, WriteRecord,
};
#[cfg(instrumented)]
#[doc(hidden)]
pub use self::instrumented::{
    conformance::{cassandra_conforms, lock_table_id},
    seeded_bugs::{bugs, plant},
    virtual_time,
};
