//! Without the feature `metrics` nothing is recorded.

use std::time::Duration;

use super::Reason;
use crate::core::object::io::Origin;
use crate::error::ExpiringReason;

/// Nothing.
#[derive(Debug, Default)]
pub(super) struct LockMetrics;

impl LockMetrics {
    pub(super) fn granted(&self, _: Origin, _: Duration) {}

    pub(super) fn lent(&self) {}

    pub(super) fn passed_on(&self, _: usize) {}

    pub(super) fn expiring(&self, _: &ExpiringReason) {}

    pub(super) fn ended(&self, _: impl FnOnce() -> Duration) {}

    pub(super) fn lost(&self, _: Reason) {}

    pub(super) fn renewed(&self, _: f64) {}

    pub(super) fn at_risk(&self) {}

    pub(super) fn waits(&self) {}

    pub(super) fn waited(&self) {}

    pub(super) fn refused_try(&self) {}

    pub(super) fn timed_out(&self) {}
}
