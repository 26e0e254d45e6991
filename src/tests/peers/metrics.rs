//! What a recorder receives of turns between clients.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::network::TestNetwork;
use super::{OBJECT, client, ms, store};
use crate::testing::Weather;

// Goal: a guest's turn is recorded once by its keeper, though the
// grant is repeated until it arrives, and once as a grant by the guest.
// Method: two clients lock in turn; messages become slow, so that the grant is made again.
#[tokio::test(start_paused = true)]
async fn turns_of_other_clients_are_recorded() {
    let recorder = DebuggingRecorder::new();
    let recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, network) = (store(), TestNetwork::new(7, Weather::CALM));
    let [keeper, guest] = [client(&store, &network), client(&store, &network)];
    drop(recording);
    let first = keeper.lock(OBJECT).await.expect("the lock is free");
    let sublease = tokio::spawn(async move { guest.lock(OBJECT).await });
    tokio::time::sleep(ms(200)).await;
    network.set_weather(Weather { latency: 600, ..Weather::CALM });
    first.unlock().await.expect("it is held");
    let sublease = sublease.await.expect("it does not panic").expect("it is let in");
    sublease.unlock().await.expect("it is held");

    let recorded = recorder.snapshotter().snapshot().into_vec();
    let count = |metric: &str, label: Option<&str>| {
        let is_it = |key: &::metrics::Key| {
            key.name() == metric && key.labels().next().map(::metrics::Label::value) == label
        };
        let found = recorded.iter().find(|(key, ..)| is_it(key.key()));
        let (.., value) = found.unwrap_or_else(|| panic!("{metric} is not recorded"));
        match value {
            DebugValue::Counter(count) => *count,
            DebugValue::Gauge(_) | DebugValue::Histogram(_) => panic!("{metric} is no counter"),
        }
    };
    assert_eq!(count("bakery_lock_grants_total", Some("table")), 1);
    assert_eq!(count("bakery_lock_grants_total", Some("keeper")), 1);
    assert_eq!(count("bakery_lock_subleases_total", None), 1);
}
