//! The servers that sides run on.

pub(crate) mod cassandra;
