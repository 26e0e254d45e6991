//! The store on masters keeps the promises that the protocol relies on.

use std::time::Duration;

use bakery_lock::Masters;
use bakery_lock::masters::{self, InitOptions};
use bakery_lock_instrumented::testing::masters_conform;

use support::masters::MasterServers;

#[tokio::test(flavor = "multi_thread")]
async fn store_keeps_the_promises_of_the_trait() {
    let servers = MasterServers::start(3);
    let masters = Masters::connect(servers.urls()).await.expect("these are addresses");
    // The longest TTL that the tests of stores use.
    let options = InitOptions::new().max_ttl(Duration::from_secs(600)).fresh(true);
    masters::init(&masters, &options).await.expect("the masters answer");
    masters_conform(&servers.urls(), &support::unique("conformance")).await;
}
