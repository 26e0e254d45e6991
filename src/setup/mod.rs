//! What must be there before locks are taken: the tables, and the registry of hosts.

pub mod hosts;
#[cfg(feature = "redis")]
pub mod masters;
pub mod schema;
