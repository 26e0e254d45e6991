//! What must be there before locks are taken: the tables, and the registry of hosts.

pub mod hosts;
pub mod schema;
