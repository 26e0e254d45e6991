//! The locks of a client, as its recorder sees them.

use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::Reason;
use crate::core::object::io::Origin;
use crate::core::turns::KeptEnd;
use crate::error::ExpiringReason;
use crate::metrics::{
    AT_RISK, EXPIRING, GRANTS, HELD, HOLD, KEPT, KEPT_ENDS, LINE_LENGTH, LOSSES, REFUSED_TRIES,
    RENEWAL_MARGIN, SUBLEASES, TIMEOUTS, WAIT, WAITING, describe,
};

impl Origin {
    const COUNT: usize = Origin::Keeper as usize + 1;

    /// In the order of the variants.
    const LABELS: [&str; Origin::COUNT] = ["table", "turn", "keeper"];
}

impl KeptEnd {
    const COUNT: usize = KeptEnd::Lost as usize + 1;

    /// In the order of the variants.
    const LABELS: [&str; KeptEnd::COUNT] =
        ["used", "unused", "outsiders", "other_mode", "too_many", "client", "revoked", "lost"];
}

impl Reason {
    /// In the order of the variants.
    const LABELS: [&str; Reason::COUNT] = [
        "expired",
        "row_missing",
        "revoked",
        "conflict",
        "hold_limit",
        "table_gone",
        "keeper_unreachable",
        "keeper_lost",
        "client_closed",
    ];
}

/// What is recorded of locks, looked up once.
#[derive(Debug)]
pub(super) struct LockMetrics {
    grants: [Counter; Origin::COUNT],
    subleases: Counter,
    timeouts: Counter,
    refused_tries: Counter,
    /// Revoked, past their hold limit, and of a keeper that needs its place.
    expiring: [Counter; 3],
    losses: [Counter; Reason::COUNT],
    at_risk: Counter,
    kept: Gauge,
    kept_ends: [Counter; KeptEnd::COUNT],
    held: Gauge,
    waiting: Gauge,
    wait: Histogram,
    hold: Histogram,
    renewal_margin: Histogram,
    line_length: Histogram,
}

impl Default for LockMetrics {
    /// With the recorder that is installed now.
    fn default() -> Self {
        describe();
        LockMetrics {
            grants: Origin::LABELS.map(|origin| counter!(GRANTS, "origin" => origin)),
            subleases: counter!(SUBLEASES),
            timeouts: counter!(TIMEOUTS),
            refused_tries: counter!(REFUSED_TRIES),
            expiring: ["revoked", "hold_limit", "keeper"]
                .map(|reason| counter!(EXPIRING, "reason" => reason)),
            losses: Reason::LABELS.map(|reason| counter!(LOSSES, "reason" => reason)),
            at_risk: counter!(AT_RISK),
            kept: gauge!(KEPT),
            kept_ends: KeptEnd::LABELS.map(|reason| counter!(KEPT_ENDS, "reason" => reason)),
            held: gauge!(HELD),
            waiting: gauge!(WAITING),
            wait: histogram!(WAIT),
            hold: histogram!(HOLD),
            renewal_margin: histogram!(RENEWAL_MARGIN),
            line_length: histogram!(LINE_LENGTH),
        }
    }
}

impl LockMetrics {
    pub(super) fn granted(&self, origin: Origin, waited: Duration) {
        self.grants[origin as usize].increment(1);
        self.wait.record(waited);
        self.held.increment(1.0);
    }

    pub(super) fn sublease(&self) {
        self.subleases.increment(1);
    }

    /// `waiting` stay in the line as another one leaves it with a turn.
    #[expect(clippy::cast_precision_loss, reason = "a line is shorter than 2^53")]
    pub(super) fn passed_on(&self, waiting: usize) {
        self.line_length.record(waiting as f64);
    }

    pub(super) fn expiring(&self, reason: &ExpiringReason) {
        let [revoked, hold_limit, keeper] = &self.expiring;
        let counter = match reason {
            ExpiringReason::Revoked { .. } => revoked,
            ExpiringReason::HoldLimit => hold_limit,
            ExpiringReason::Keeper => keeper,
        };
        counter.increment(1);
    }

    pub(super) fn ended(&self, held: impl FnOnce() -> Duration) {
        self.hold.record(held());
        self.held.decrement(1.0);
    }

    pub(super) fn lost(&self, reason: Reason) {
        self.losses[reason as usize].increment(1);
    }

    pub(super) fn renewed(&self, left: f64) {
        self.renewal_margin.record(left);
    }

    pub(super) fn at_risk(&self) {
        self.at_risk.increment(1);
    }

    pub(super) fn kept(&self) {
        self.kept.increment(1.0);
    }

    pub(super) fn kept_ends(&self, end: KeptEnd) {
        self.kept.decrement(1.0);
        self.kept_ends[end as usize].increment(1);
    }

    pub(super) fn waits(&self) {
        self.waiting.increment(1.0);
    }

    pub(super) fn waited(&self) {
        self.waiting.decrement(1.0);
    }

    pub(super) fn refused_try(&self) {
        self.refused_tries.increment(1);
    }

    pub(super) fn timed_out(&self) {
        self.timeouts.increment(1);
    }
}
