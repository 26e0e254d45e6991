//! Clients of one data centre while the other one is down.

use std::collections::BTreeMap;
use std::sync::Arc;

use bakery_lock::hosts::{HostRegistry, RegistryError};
use bakery_lock::schema::{self, CreateOptions, Replication, SchemaError};
use bakery_lock::{BuildError, Consistency, LockClientBuilder};
use cassandra_cluster::{Cluster, ClusterOptions};

use super::hurt::{Hurt, seen};
use support::scene::{Scene, built};
use support::session_on;

const HERE: &str = "datacenter1";
const THERE: &str = "datacenter2";

// Goal: while the other data centre is down, a client with LOCAL_QUORUM is built and locks, by the
// settings and the registration that its own data centre shows. What that does not show is unknown,
// not missing: a host, or settings, that may be recorded in the other half.
// Method: a node in each of two data centres, of which one is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn data_centre_goes_on_without_the_other() {
    let _alone = support::alone().await;
    let options = ClusterOptions {
        name: "datacenters".to_owned(),
        nodes: 2,
        first_host: 71,
        datacenters: 2,
        ..ClusterOptions::default()
    };
    let cluster = Hurt::lease(options).await;
    let scene = scene(&cluster).await;
    create(&scene, "lock_table").await;
    create(&scene, "unrecorded").await;
    forget_settings(&scene, "unrecorded").await;
    let registry = HostRegistry::new(Arc::clone(&scene.session), &scene.keyspace).await;
    let registry = registry.expect("both data centres are up");
    registry.add("here").await.expect("both data centres are up");
    registry.close().await;

    cluster.on(|cluster| cluster.kill(2)).await;
    cluster.on(|cluster: &Cluster| cluster.wait_until_seen_down(2)).await;
    // Its own data centre is up.
    let client = built(builder(&scene, "here")).await;
    let guard = client.lock("object").await.expect("its own data centre is up");
    guard.unlock().await.expect("the lock was held");

    for register in [false, true] {
        let unanswered = async || {
            let builder = builder(&scene, "unknown").register_host(register);
            let error = builder.build().await.expect_err("it may be registered over there");
            if let BuildError::Registry(RegistryError::Unanswered(cause)) = error {
                return Some(cause);
            }
            // A node that is too busy answers too late before that.
            let is_late = matches!(error, BuildError::Schema(SchemaError::Database(_)));
            assert!(is_late, "it is refused for something else: {error:?}");
            None
        };
        let cause = seen("no answer of the registry", unanswered).await;
        assert!(!cause.is_permanent(), "{cause:?}");
    }
    let unrecorded = builder(&scene, "here").lock_table("unrecorded");
    let error = unrecorded.build().await.expect_err("they may be recorded over there");
    assert!(matches!(error, BuildError::Schema(SchemaError::Database(_))), "{error:?}");

    cluster.heal().await;
    let is_unknown = async || {
        let error = builder(&scene, "unknown").build().await.err()?;
        matches!(error, BuildError::UnknownHost { .. }).then_some(())
    };
    seen("no data centre has it", is_unknown).await;
}

/// A session, and a keyspace with a replica in each data centre.
async fn scene(cluster: &Hurt) -> Scene {
    Scene { session: session_on(&cluster.nodes()).await, keyspace: "locks".to_owned() }
}

async fn create(scene: &Scene, lock_table: &str) {
    let factors = BTreeMap::from([(HERE.to_owned(), 1), (THERE.to_owned(), 1)]);
    let options = CreateOptions::new()
        .lock_table(lock_table)
        .replication(Replication::PerDatacenter(factors))
        .consistency(Consistency::LocalQuorum(HERE.to_owned()));
    let created = schema::create(&scene.session, &scene.keyspace, &options).await;
    created.expect("both data centres are up");
}

async fn forget_settings(scene: &Scene, lock_table: &str) {
    let registry = format!("\"{}\".lock_hosts", scene.keyspace);
    let row = format!("registry = 'lock_tables' AND host_name = '{lock_table}'");
    scene.execute(&format!("DELETE FROM {registry} WHERE {row}")).await;
}

fn builder(scene: &Scene, host: &str) -> LockClientBuilder {
    let local = Consistency::LocalQuorum(HERE.to_owned());
    scene.builder().host(host).register_host(false).consistency(local)
}
