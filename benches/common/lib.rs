//! What the benches have in common.
//!
//! Figures are made by pure functions with tests: [`contest`] makes them of what contenders saw,
//! [`quantiles`] sums up durations, [`record`] is what is kept of a measurement, [`outcome`]
//! compares sides and judges by targets. [`cluster`] is what is measured on, [`bare`] the
//! yardstick, [`origin`] says where figures come from, [`table`] shows them. [`resp`] speaks to
//! `bakery-lockd` and Redis.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only the benches of this package use it"
)]

pub mod bare;
pub mod cluster;
pub mod contest;
pub mod origin;
pub mod outcome;
pub mod quantiles;
pub mod record;
pub mod resp;
pub mod table;
