//! What Prometheus reads: the metrics of the library, and those of the daemon.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bakery_lock::metrics::BUCKETS;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use super::daemon::Daemon;

/// How often what was recorded is sorted into buckets: until then each value takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

const CONNECTIONS: &str = "bakery_lockd_connections";
const ACCEPTED: &str = "bakery_lockd_connections_accepted_total";
const TURNED_AWAY: &str = "bakery_lockd_connections_refused_total";
const SLOW_READERS: &str = "bakery_lockd_slow_readers_total";
const COMMANDS: &str = "bakery_lockd_commands_total";
const REFUSED: &str = "bakery_lockd_refused_total";
const UNKNOWN_SCRIPTS: &str = "bakery_lockd_unknown_scripts_total";
const PENDING: &str = "bakery_lockd_pending";
const HELD: &str = "bakery_lockd_held";
const GRANTED: &str = "bakery_lockd_granted_total";
const EXPIRED: &str = "bakery_lockd_expired_total";
const LOST: &str = "bakery_lockd_lost_total";

/// The metrics of this process.
#[derive(Clone, Debug)]
pub(super) struct Exporter(PrometheusHandle);

impl Exporter {
    /// Records from now on. The client must be built later, or it records nothing.
    ///
    /// # Errors
    ///
    /// Something else records in this process.
    pub(super) fn install() -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for (metric, buckets) in BUCKETS {
            let metric = Matcher::Full((*metric).to_owned());
            builder = builder.set_buckets_for_metric(metric, buckets)?;
        }
        let exporter = Exporter(builder.install_recorder()?);
        describe();
        Ok(exporter)
    }

    /// Keeps what is recorded small.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; it never returns.
    pub(super) async fn keep_up(self) {
        let mut interval = tokio::time::interval(UPKEEP);
        loop {
            interval.tick().await;
            self.0.run_upkeep();
        }
    }

    /// All metrics, as Prometheus reads them.
    pub(super) fn text(&self, daemon: &Daemon) -> String {
        // The daemon counts for itself, so that a command costs no look-up of a metric.
        record(daemon);
        self.0.render()
    }
}

fn record(daemon: &Daemon) {
    let counts = &daemon.counts;
    let count = |name: &'static str, value: &AtomicU64| {
        counter!(name).absolute(value.load(Ordering::Relaxed));
    };
    count(ACCEPTED, &counts.connections);
    count(TURNED_AWAY, &counts.turned_away);
    count(SLOW_READERS, &counts.slow_readers);
    count(UNKNOWN_SCRIPTS, &counts.unknown_scripts);
    count(GRANTED, &counts.granted);
    count(EXPIRED, &counts.expired);
    count(LOST, &counts.lost);
    for (command, count) in counts.commands.counts() {
        counter!(COMMANDS, "command" => command).absolute(count);
    }
    for (reason, count) in counts.refused.counts() {
        counter!(REFUSED, "reason" => reason).absolute(count);
    }
    let set = |name: &'static str, value: usize| gauge!(name).set(value as f64);
    set(CONNECTIONS, daemon.hub.connections());
    set(PENDING, daemon.locks.pending());
    for (kind, count) in daemon.locks.counts().by_kind() {
        gauge!(HELD, "kind" => kind).set(count as f64);
    }
}

fn describe() {
    describe_gauge!(CONNECTIONS, "Connections of clients");
    describe_counter!(
        ACCEPTED,
        "Connections that clients opened, those that were refused included"
    );
    describe_counter!(TURNED_AWAY, "Connections refused because there were as many as allowed");
    describe_counter!(SLOW_READERS, "Connections closed because they did not read their messages");
    describe_counter!(COMMANDS, "Commands that clients sent, by name");
    describe_counter!(REFUSED, "Errors that clients got, by their first word");
    describe_counter!(UNKNOWN_SCRIPTS, "Calls of scripts that the daemon does not know");
    describe_gauge!(PENDING, "Requests for locks that are neither granted nor refused yet");
    describe_gauge!(HELD, "Locks held, by what ends them: connection, time or process");
    describe_counter!(GRANTED, "Locks granted to clients");
    describe_counter!(EXPIRED, "Locks whose time was over before they were released");
    describe_counter!(LOST, "Locks lost while they were held");
}
