//! What decides about locks, without any I/O.
//!
//! [`bakery`] is one contender for a place in the table. [`turns`] says who uses a held place, in
//! this process and in others.

pub(crate) mod bakery;
pub(crate) mod turns;
