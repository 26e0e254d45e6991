//! The store on a real cluster keeps the promises that the protocol relies on. The store in memory
//! is held to the same by a unit test.

use bakery_lock_instrumented::testing::cassandra_conforms;

#[tokio::test(flavor = "multi_thread")]
async fn store_keeps_the_promises_of_the_trait() {
    let _beside = support::beside_others().await;
    let keyspace = support::keyspace().await;
    cassandra_conforms(&support::session().await, &keyspace, &support::unique("conformance")).await;
}
