//! What a recorder of the `metrics` crate is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bakery_lock::LostReason;
use bakery_lock::testing::Fault;
use metrics::LocalRecorderGuard;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::time::sleep;

use super::chance::exchanges;
use super::{OBJECT, client, ms, s, store};

/// What clients record that are built on this thread while it lives.
struct Recorded {
    snapshotter: Snapshotter,
    values: BTreeMap<String, Vec<f64>>,
    _guard: LocalRecorderGuard<'static>,
}

impl Recorded {
    fn new() -> Self {
        // It lives as long as the test's process: the guard borrows it.
        let recorder: &DebuggingRecorder = Box::leak(Box::default());
        let snapshotter = recorder.snapshotter();
        let guard = metrics::set_default_local_recorder(recorder);
        Recorded { snapshotter, values: BTreeMap::new(), _guard: guard }
    }

    /// Takes in what was recorded since the last time; the recorder forgets what it has told.
    fn update(&mut self) {
        for (key, _, description, value) in self.snapshotter.snapshot().into_vec() {
            let name = key.key().name();
            assert!(description.is_some(), "{name} is not described");
            let labels = key.key().labels().map(|it| format!("{}={}", it.key(), it.value()));
            let labels: Vec<_> = labels.collect();
            let values = self.values.entry(format!("{name}{{{}}}", labels.join(","))).or_default();
            match value {
                DebugValue::Counter(count) => {
                    let count = f64::from(u32::try_from(count).expect("tests count little"));
                    *values = vec![values.first().unwrap_or(&0.0) + count];
                }
                DebugValue::Gauge(change) => {
                    *values = vec![values.first().unwrap_or(&0.0) + change.0];
                }
                DebugValue::Histogram(more) => values.extend(more.iter().map(|value| value.0)),
            }
        }
    }

    /// Forgets what was recorded so far. A store's first client registers its host, under a lock.
    fn forget(&mut self) {
        self.update();
        self.values.values_mut().for_each(Vec::clear);
    }

    /// The values of a histogram; or the one of a counter or gauge.
    fn values(&mut self, name: &str, labels: &str) -> Vec<f64> {
        self.update();
        let key = format!("bakery_lock_{name}{{{labels}}}");
        self.values.get(&key).unwrap_or_else(|| panic!("{key} is not recorded")).clone()
    }

    fn value(&mut self, name: &str, labels: &str) -> f64 {
        self.values(name, labels).first().copied().unwrap_or_default()
    }

    /// The values of a histogram times a thousand, rounded.
    fn thousandths(&mut self, name: &str, labels: &str) -> Vec<f64> {
        self.values(name, labels).iter().map(|value| (value * 1_000.0).round()).collect()
    }
}

// Goal: grants are recorded by where their turn came from, with waits, holds and the line behind;
// timeouts, refused tries, locks held and callers that wait.
// Method: one lock, asked for in each way; a call to the database takes two milliseconds.
#[tokio::test(start_paused = true)]
async fn grants_are_recorded() {
    let mut recorded = Recorded::new();
    let client = client(&store(), "a").await;
    recorded.forget();
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let doorway = if exchanges() { 2.0 } else { 4.0 };
    assert_eq!(recorded.thousandths("wait_seconds", ""), [doorway], "a write and a read");
    assert!(client.try_lock(OBJECT).await.expect("the store answers").is_none());
    client.request(OBJECT).timeout(ms(10)).acquire().await.expect_err("it is held");
    let waiting: Vec<_> =
        (0..3).map(|_| tokio::spawn(client.request(OBJECT).timeout(s(60)).acquire())).collect();
    sleep(ms(500)).await;
    assert_eq!(recorded.value("waiting", ""), 3.0);
    guard.unlock().await.expect("it is held");
    for waiting in waiting {
        let guard = waiting.await.expect("it does not panic").expect("it is let in");
        assert_eq!(recorded.value("held", ""), 1.0);
        sleep(ms(100)).await;
        guard.unlock().await.expect("it is held");
    }
    assert_eq!(recorded.value("grants_total", "origin=table"), 1.0);
    assert_eq!(recorded.value("grants_total", "origin=turn"), 3.0);
    assert_eq!(recorded.value("grants_total", "origin=keeper"), 0.0);
    assert_eq!(recorded.thousandths("wait_seconds", ""), [doorway, 500.0, 600.0, 700.0]);
    assert_eq!(recorded.thousandths("hold_seconds", ""), [510.0, 100.0, 100.0, 100.0]);
    assert_eq!(recorded.values("line_length", ""), [0.0, 2.0, 1.0, 0.0]);
    assert_eq!(recorded.value("timeouts_total", ""), 1.0);
    assert_eq!(recorded.value("refused_tries_total", ""), 1.0);
    assert_eq!([recorded.value("held", ""), recorded.value("waiting", "")], [0.0, 0.0]);
}

// Goal: a renewal records how much of the old lease it left; a lock at risk is counted once each
// time, a loss by its reason and with the time for which the lock was held.
// Method: a lock that is renewed, then can't be for a while, then never again.
#[tokio::test(start_paused = true)]
async fn renewals_and_losses_are_recorded() {
    let mut recorded = Recorded::new();
    let store = store();
    let client = client(&store, "a").await;
    recorded.forget();
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    sleep(s(50)).await;
    // A third of the TTL of 60 s has passed, of a lease of 58 s.
    let margins = recorded.thousandths("renewal_margin_ratio", "");
    assert_eq!(margins, [655.0, 655.0]);
    assert_eq!(recorded.value("at_risk_total", ""), 0.0);
    store.fail_next(usize::MAX, Fault::NotApplied);
    sleep(s(35)).await;
    assert_eq!(recorded.value("at_risk_total", ""), 1.0);
    store.fail_next(0, Fault::NotApplied);
    sleep(s(10)).await;
    let late = recorded.thousandths("renewal_margin_ratio", "")[2];
    assert!(late < 333.0, "it was at risk: {late}");
    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    assert_eq!(guard.lost().await, Some(LostReason::Expired));
    sleep(ms(1)).await;
    assert_eq!(recorded.value("at_risk_total", ""), 2.0);
    assert_eq!(recorded.value("losses_total", "reason=expired"), 1.0);
    assert_eq!(recorded.value("losses_total", "reason=revoked"), 0.0);
    assert_eq!(recorded.value("held", ""), 0.0);
    let held = recorded.thousandths("hold_seconds", "")[0];
    assert!((120_000.0..200_000.0).contains(&held), "held for {held} ms");
}

// Goal: each call to the database is recorded once, by kind and outcome, with the time it took.
// Method: locks and tokens on a store whose calls take two milliseconds, and fail in each way.
#[tokio::test(start_paused = true)]
async fn calls_are_recorded() {
    let mut recorded = Recorded::new();
    let store = store();
    let client = client(&store, "a").await;
    recorded.forget();
    store.fail_next(1, Fault::UnknownApplied);
    let guard = client.lock(OBJECT).await.expect("it is tried again");
    guard.fencing_token().await.expect("it is held");
    store.fail_next(1, Fault::NotApplied);
    guard.check().await.expect("it is tried again");
    store.fail_next(1, Fault::NotApplied);
    guard.unlock().await.expect("it is tried again");
    let call = "database_call_seconds";
    assert_eq!(recorded.thousandths(call, "kind=write,outcome=unknown"), [2.0]);
    assert_eq!(recorded.thousandths(call, "kind=write,outcome=applied"), [2.0]);
    assert_eq!(recorded.thousandths(call, "kind=delete,outcome=not_applied"), [2.0]);
    assert_eq!(recorded.thousandths(call, "kind=delete,outcome=applied"), [2.0]);
    assert_eq!(recorded.thousandths(call, "kind=contender_read,outcome=failed"), [2.0]);
    let counted = client.statistics();
    for (kind, calls) in [
        ("write", counted.writes),
        ("delete", counted.deletes),
        ("fence_write", counted.fence_writes),
        ("object_read", counted.object_reads),
        ("one_replica_read", counted.one_replica_reads),
        ("page_read", counted.page_reads),
        ("contender_read", counted.contender_reads),
        ("fence_read", counted.fence_reads),
    ] {
        let of_kind = format!("bakery_lock_{call}{{kind={kind},");
        let recorded = recorded.values.iter().filter(|(key, _)| key.starts_with(&of_kind));
        let recorded: usize = recorded.map(|(_, values)| values.len()).sum();
        assert_eq!(recorded as u64, calls, "calls of the kind {kind}");
    }
}

// Goal: the dashboard and the alerts name no metric that is not recorded, and the documentation
// describes each that is, and no other.
// Method: the metrics of a client, against every name in these files.
#[tokio::test(start_paused = true)]
async fn dashboard_alerts_and_documentation_name_the_metrics() {
    let mut recorded = Recorded::new();
    client(&store(), "a").await;
    recorded.update();
    let names = recorded.values.keys().map(|key| key.split('{').next().expect("a name").to_owned());
    let recorded: BTreeSet<String> = names.collect();
    for used in ["monitoring/dashboard.json", "monitoring/alerts.yml", "monitoring/alerts.test.yml"]
    {
        let unknown: Vec<_> = named_in(used).difference(&recorded).cloned().collect();
        assert!(unknown.is_empty(), "docs/{used} names metrics that are not recorded: {unknown:?}");
    }
    assert_eq!(named_in("monitoring.md"), recorded, "docs/monitoring.md describes others");
}

/// The metrics that a document names, without what Prometheus appends to histograms.
fn named_in(document: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(document);
    let text = fs::read_to_string(&path).expect("the document is there");
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_in_name(c));
    let names = words.filter(|word| word.starts_with("bakery_lock_"));
    let of = |name: &str| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it));
        histogram.unwrap_or(name).to_owned()
    };
    names.map(of).collect()
}
