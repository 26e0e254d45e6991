//! What decides about locks, without any I/O.
//!
//! [`bakery`] is one contender for a place in the table. [`turns`] says who uses a held place, in
//! this process and in others. [`object`] is made of both: all that one client decides about one
//! object.

pub(crate) mod bakery;
pub(crate) mod object;
pub(crate) mod turns;
