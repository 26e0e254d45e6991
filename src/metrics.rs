//! What clients record for a recorder of the [`metrics`] crate, such as a Prometheus exporter.
//!
//! Install the recorder, then build the clients: a client looks its recorder up once, as it is
//! built, so that each count costs a few nanoseconds later. A client built before has none. For the
//! same reason the recorder must not drop metrics that rest for a while (an idle timeout): they
//! would not come back. All clients of a process count together.
//!
//! `docs/monitoring.md` lists the metrics, with alerts and a dashboard. No metric has a label with
//! the name of a lock: services lock rows by the million, and each name would be a time series of
//! its own. [`LockClient::contenders`](crate::LockClient::contenders) shows one lock,
//! [`LockClient::statistics`](crate::LockClient::statistics) of one client.
//!
//! # Example
//!
//! ```
//! use bakery_lock::{LockClient, MemoryStore};
//! use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut exporter = PrometheusBuilder::new();
//! for (metric, buckets) in bakery_lock::metrics::BUCKETS {
//!     let metric = Matcher::Full(metric.to_string());
//!     exporter = exporter.set_buckets_for_metric(metric, buckets)?;
//! }
//! let metrics = exporter.install_recorder()?;
//!
//! let store = MemoryStore::new();
//! let client = LockClient::builder_in_memory(&store).build().await?;
//! client.lock("users::snap").await?.unlock().await?;
//! // The first lock was that of the registry, to register the host.
//! assert!(metrics.render().contains("bakery_lock_wait_seconds_count 2"));
//! # Ok(())
//! # }
//! ```

use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(crate) const GRANTS: &str = "bakery_lock_grants_total";
pub(crate) const SUBLEASES: &str = "bakery_lock_subleases_total";
pub(crate) const TIMEOUTS: &str = "bakery_lock_timeouts_total";
pub(crate) const REFUSED_TRIES: &str = "bakery_lock_refused_tries_total";
pub(crate) const EXPIRING: &str = "bakery_lock_expiring_total";
pub(crate) const LOSSES: &str = "bakery_lock_losses_total";
pub(crate) const AT_RISK: &str = "bakery_lock_at_risk_total";
pub(crate) const KEPT: &str = "bakery_lock_kept";
pub(crate) const KEPT_ENDS: &str = "bakery_lock_kept_ends_total";
pub(crate) const HELD: &str = "bakery_lock_held";
pub(crate) const WAITING: &str = "bakery_lock_waiting";
pub(crate) const WAIT: &str = "bakery_lock_wait_seconds";
pub(crate) const HOLD: &str = "bakery_lock_hold_seconds";
pub(crate) const RENEWAL_MARGIN: &str = "bakery_lock_renewal_margin_ratio";
pub(crate) const LINE_LENGTH: &str = "bakery_lock_line_length";
pub(crate) const DATABASE_CALL: &str = "bakery_lock_database_call_seconds";
pub(crate) const CALLS_WAITING: &str = "bakery_lock_database_calls_waiting";

/// Upper bounds of buckets for each histogram, for exporters that ask for some. The dashboard and
/// the alerts in `docs/monitoring` need buckets, and rely on 0.4 for the renewal margin.
pub const BUCKETS: &[(&str, &[f64])] = &[
    (WAIT, &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0]),
    (HOLD, &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3600.0]),
    (RENEWAL_MARGIN, &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
    (LINE_LENGTH, &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0, 10_000.0]),
    (DATABASE_CALL, &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0]),
];

/// Describes the metrics to the recorder.
pub(crate) fn describe() {
    describe_counter!(GRANTS, "Locks granted to callers, by where their turn came from");
    describe_counter!(SUBLEASES, "Turns given to guests, which are other clients");
    describe_counter!(TIMEOUTS, "Requests for a lock that timed out");
    describe_counter!(REFUSED_TRIES, "Tries that found the lock taken");
    describe_counter!(EXPIRING, "Held locks whose holders were to finish, by reason");
    describe_counter!(LOSSES, "Locks lost while they were held, by reason");
    describe_counter!(AT_RISK, "Times that a held lock became at risk");
    describe_gauge!(KEPT, "Idle locks that are kept");
    describe_counter!(KEPT_ENDS, "Locks that were kept until then, by what ended that");
    describe_gauge!(HELD, "Locks that callers hold");
    describe_gauge!(WAITING, "Callers that wait for a lock");
    describe_histogram!(WAIT, Unit::Seconds, "From the request for a lock to its grant");
    describe_histogram!(HOLD, Unit::Seconds, "From the grant of a lock to its release or loss");
    let margin = "Share of a lease that was left when its renewal was acknowledged";
    describe_histogram!(RENEWAL_MARGIN, margin);
    let line = "Callers and guests that wait in a client's line for one lock, at each turn";
    describe_histogram!(LINE_LENGTH, Unit::Count, line);
    let calls = "Calls to the database, by kind and outcome";
    describe_histogram!(DATABASE_CALL, Unit::Seconds, calls);
    describe_gauge!(CALLS_WAITING, "Calls to the database that wait for others of their client");
}
