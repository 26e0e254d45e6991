//! What the figures of the benchmark are and how they are made: pure functions with tests.
//!
//! [`contest`] makes figures of what contenders saw, [`quantiles`] sums up durations, [`record`] is
//! what is kept of a measurement, [`outcome`] compares sides and judges by targets.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only the benches of this package use it"
)]

pub mod contest;
pub mod outcome;
pub mod quantiles;
pub mod record;
