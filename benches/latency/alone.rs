//! A lone client: nothing it wants is wanted by another one.

use std::time::Duration;

use bakery_lock_instrumented::testing::SimulatedCluster;
use bakery_lock_instrumented::testing::virtual_time;
use serde::Serialize;

use crate::measured::{Quantiles, pairs};
use crate::scenario::Scenario;

/// What lock and unlock take, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Alone {
    pub(crate) scenario: String,
    pub(crate) zone: &'static str,
    pub(crate) lock: Quantiles,
    pub(crate) unlock: Quantiles,
    pub(crate) both: Quantiles,
}

/// A client in each zone where one is measured, one after the other.
pub(crate) fn of(scenario: &Scenario, count: u32, seed: u64) -> Vec<Alone> {
    let in_zone = |zone: &usize| {
        let cluster = cluster(scenario, seed);
        let (inner, zone) = (cluster.clone(), *zone);
        let measured = virtual_time::run(&cluster, async move {
            let client = inner.connect(Duration::ZERO, 0, seed);
            inner.set_zone(client.number(), zone);
            let client = client.client_builder().host(HOST).build().await;
            let client = client.expect("the host is registered");
            pairs(&client, "alone", count).await.expect("nothing fails in the simulation")
        });
        Alone {
            scenario: scenario.name.clone(),
            zone: scenario.zones[zone],
            lock: Quantiles::of(measured.lock),
            unlock: Quantiles::of(measured.unlock),
            both: Quantiles::of(measured.both),
        }
    };
    scenario.lone.iter().map(in_zone).collect()
}

/// The host of all clients.
pub(crate) const HOST: &str = "host";

pub(crate) fn cluster(scenario: &Scenario, seed: u64) -> SimulatedCluster {
    SimulatedCluster::with_geography(seed, scenario.geography.clone(), &[HOST.to_owned()])
}
