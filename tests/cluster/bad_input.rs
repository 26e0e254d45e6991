//! Names, options and tables that can't be used: each gives an error that says what to do, and
//! nothing is changed.

use std::time::Duration;

use bakery_lock::hosts::HostRegistry;
use bakery_lock::schema::{self, CreateOptions, Replication, SchemaError};
use bakery_lock::{BuildError, Consistency, LockClientBuilder};

use support::scene::{Scene, built, refusal};

// Goal: names of keyspaces and tables that can't be used are refused with a reason, before anything
// is sent. Those of objects are in `names`.
// Method: names with quotes, names that are empty or too long.
#[tokio::test]
async fn unusable_names_are_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let quoted = format!("{}\"; DROP KEYSPACE \"{}", scene.keyspace, scene.keyspace);
    for keyspace in [quoted.as_str(), "", "a.b", &"x".repeat(49)] {
        let builder = scene.elsewhere(keyspace).builder();
        expect_refusal(builder, &["can't be the name of a keyspace", "A-Z, a-z, 0-9 and _"]).await;
        let created = schema::create(&scene.session, keyspace, &CreateOptions::new()).await;
        let error = created.expect_err("the name can't be used");
        expect_text(&error, &["can't be the name of a keyspace"]);
    }
    let builder = scene.builder().lock_table("lock_table\" ");
    expect_refusal(builder, &["can't be the name of a table"]).await;
    for name in ["lock_hosts", "lock_peers"] {
        let builder = scene.builder().lock_table(name);
        expect_refusal(builder, &[name, "registry of hosts", "use another name"]).await;
    }
    // The keyspace is still there.
    scene.client().await;
}

// Goal: a host without a number is told the command to run, and is not registered by that.
// Method: build a client for a host that was never registered.
#[tokio::test]
async fn unknown_host_is_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let host = support::unique("host");
    let builder = scene.builder().host(&host).register_host(false);
    let error = refusal(builder).await;
    assert!(matches!(error, BuildError::UnknownHost { .. }), "{error:?}");
    let command = format!("lock-hosts --keyspace {} add {host}", scene.keyspace);
    expect_text(&error, &[&host, &command, "register_host(true)"]);
    let registry = HostRegistry::new(scene.session.clone(), &scene.keyspace).await;
    let registry = registry.expect("the cluster is ready");
    let hosts = registry.list().await.expect("the cluster answers");
    assert!(hosts.iter().all(|known| known.name() != host), "it was registered");
    registry.close().await;
}

// Goal: a keyspace or table that does not exist is named, with the command that makes it, and is
// not made by that.
// Method: ask for them twice.
#[tokio::test]
async fn missing_tables_are_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let missing = support::unique_keyspace("missing");
    for _ in 0..2 {
        let nowhere = scene.elsewhere(&missing);
        let command = format!("`lock-hosts init --keyspace {missing}");
        let expected = [missing.as_str(), "does not exist", command.as_str()];
        let error = expect_refusal(nowhere.builder(), &expected).await;
        let expected = matches!(error, BuildError::Schema(SchemaError::MissingKeyspace { .. }));
        assert!(expected, "{error:?}");
        let created = schema::create(&scene.session, &missing, &CreateOptions::new()).await;
        expect_text(&created.expect_err("it has no replication"), &["--replication 3"]);

        let builder = scene.builder().lock_table("missing");
        let expected = ["table \"missing\" does not exist", "lock-hosts init"];
        let error = expect_refusal(builder, &expected).await;
        let expected = matches!(error, BuildError::Schema(SchemaError::MissingTable { .. }));
        assert!(expected, "{error:?}");
    }
}

// Goal: a table or keyspace with which two could hold one lock is refused with the statement that
// repairs it, and stays as it is; once repaired it works.
// Method: alter one option at a time, in a keyspace of its own.
#[tokio::test]
async fn wrong_table_options_are_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("options").await;
    let keyspace = &scene.keyspace;
    let table = format!("ALTER TABLE \"{keyspace}\".lock_table WITH");
    scene.client().await;
    for (wrong, right, expected) in [
        (
            format!("{table} gc_grace_seconds = 0"),
            format!("{table} gc_grace_seconds = 240"),
            ["gc_grace_seconds is 0, not 240", "deleted rows may come back", "run ALTER TABLE"],
        ),
        (
            format!("{table} default_time_to_live = 0"),
            format!("{table} default_time_to_live = 120"),
            ["default_time_to_live is 0", "not made for locks", "lock-hosts init"],
        ),
        (
            format!("ALTER KEYSPACE \"{keyspace}\" WITH durable_writes = false"),
            format!("ALTER KEYSPACE \"{keyspace}\" WITH durable_writes = true"),
            ["durable_writes is off", "forgets acknowledged rows", "run ALTER KEYSPACE"],
        ),
    ] {
        scene.change_schema(&wrong).await;
        for _ in 0..2 {
            let error = expect_refusal(scene.builder(), &expected).await;
            assert!(matches!(error, BuildError::Schema(SchemaError::Unfit { .. })), "{error:?}");
        }
        scene.change_schema(&right).await;
        scene.client().await;
    }
    let columns = "object_name text PRIMARY KEY, host int";
    let options = "default_time_to_live = 120 AND gc_grace_seconds = 240";
    scene
        .change_schema(&format!("CREATE TABLE \"{keyspace}\".other ({columns}) WITH {options}"))
        .await;
    let builder = scene.builder().lock_table("other");
    expect_refusal(builder, &["column", "use another keyspace or lock table"]).await;
    scene.drop_keyspace().await;
}

// Goal: TTLs out of bounds are refused with the bounds, those of the table among them.
// Method: a table whose longest TTL is 30 s, and the defaults, which want 60.
#[tokio::test]
async fn ttls_out_of_bounds_are_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("ttl").await;
    let options = CreateOptions::new().lock_table("short").max_ttl(Duration::from_secs(30));
    let created = scene.create(&options).await;
    created.expect("the table is new");
    let builder = || scene.builder().lock_table("short");
    for (ttl, expected) in [
        (4_000, "is too short: use at least 5s"),
        (5_500, "is not in whole seconds"),
        (60_000, "is longer than the lock table allows: use at most 30s"),
    ] {
        let builder = builder().ttl(Duration::from_millis(ttl));
        let error = expect_refusal(builder, &[expected]).await;
        assert!(matches!(error, BuildError::Option(_)), "{error:?}");
    }
    let client = built(builder().ttl(Duration::from_secs(30))).await;
    let request = client.request("object").ttl(Duration::from_secs(31));
    expect_text(&request.acquire().await.expect_err("it is too long"), &["use at most 30s"]);
    assert!(scene.rows("object").await.is_empty());

    for max_ttl in [29_000, 601_000, 30_500] {
        let options = CreateOptions::new().max_ttl(Duration::from_millis(max_ttl));
        let created = scene.create(&options).await;
        expect_text(&created.expect_err("it is refused"), &["use whole seconds, from 30 to 600"]);
    }
    scene.drop_keyspace().await;
}

// Goal: a replication that can't serve the quorum asked for is refused.
// Method: more replicas than twice the nodes, when the keyspace is made and by altering it later; a
// data centre that there isn't; no replicas. The altered keyspace has no tablets, with which
// ScyllaDB would refuse the change.
#[tokio::test]
async fn replication_that_serves_no_quorum_is_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let nodes = scene.session.get_cluster_state().get_nodes_info().len();
    let factor = u32::try_from(nodes * 2 + 1).expect("a cluster has few nodes");
    let crowded = scene.elsewhere(&support::unique_keyspace("crowded"));
    let options = CreateOptions::new().replication(Replication::Factor(factor));
    let created = schema::create(&scene.session, &crowded.keyspace, &options).await;
    let found = format!("{} of {factor} replicas must answer", factor / 2 + 1);
    let expected = [&found, "alter the replication of keyspace", "or add nodes"];
    expect_text(&created.expect_err("it has too few nodes"), &expected);

    if scene.is_scylla().await {
        let (keyspace, replicas) = (&crowded.keyspace, nodes.min(3));
        let replication =
            format!("{{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}");
        let options = format!("replication = {replication} AND tablets = {{'enabled': false}}");
        crowded.change_schema(&format!("CREATE KEYSPACE {keyspace} WITH {options}")).await;
    }
    // It makes the keyspace, if that is not there, on as many replicas.
    support::create_keyspace(&crowded.keyspace, CreateOptions::new()).await;
    let datacenter = scene.session.get_cluster_state().get_nodes_info()[0].datacenter.clone();
    let datacenter = datacenter.expect("a node has a data centre");
    let replication = format!("{{'class': 'NetworkTopologyStrategy', '{datacenter}': {factor}}}");
    let keyspace = &crowded.keyspace;
    crowded
        .change_schema(&format!("ALTER KEYSPACE {keyspace} WITH replication = {replication}"))
        .await;
    expect_refusal(crowded.builder(), &expected).await;
    crowded.drop_keyspace().await;

    let builder = scene.builder().consistency(Consistency::LocalQuorum("nowhere".to_owned()));
    expect_refusal(builder, &["there is no data centre \"nowhere\""]).await;

    let missing = support::unique_keyspace("missing");
    let options = CreateOptions::new().replication(Replication::Factor(0));
    let created = schema::create(&scene.session, &missing, &options).await;
    expect_text(&created.expect_err("it needs replicas"), &["a keyspace needs replicas"]);
}

async fn expect_refusal(builder: LockClientBuilder, texts: &[&str]) -> BuildError {
    let error = refusal(builder).await;
    expect_text(&error, texts);
    error
}

/// The message of an error must tell all of this.
fn expect_text(error: &dyn std::error::Error, texts: &[&str]) {
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "{message:?} does not say {text:?}");
    }
}
