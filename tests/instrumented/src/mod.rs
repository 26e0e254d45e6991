//! What only the tests of this repository need of the library, and no user: replicas with faults,
//! the contract of all stores, seeded bugs.
//!
//! The package `bakery-lock-instrumented` is the library with this module; the published package is
//! without.

pub(crate) mod conformance;
#[cfg(instrumented)]
pub(crate) mod seeded_bugs;
pub(crate) mod simulated;
pub mod virtual_time;
