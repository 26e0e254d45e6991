//! What is measured of a side.

pub(crate) mod contended;
pub(crate) mod crowd;
pub(crate) mod processes;
pub(crate) mod uncontended;
pub(crate) mod worker;
