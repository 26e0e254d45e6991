//! What is measured of a side.
//!
//! All clients are in processes of their own, the [`worker`]s, which the bench gives [`orders`].

pub(crate) mod distinct;
pub(crate) mod failures;
pub(crate) mod hot_name;
pub(crate) mod in_turn;
pub(crate) mod orders;
pub(crate) mod pool;
pub(crate) mod uncontended;
pub(crate) mod worker;
