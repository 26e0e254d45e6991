//! What the clients of a lock table must agree on: recorded when the table is made, compared
//! when a client is built.

use std::sync::Arc;
use std::time::Duration;

use bakery_lock::hosts::HostRegistry;
use bakery_lock::schema::{CreateOptions, Created, SchemaError};
use bakery_lock::{BuildError, Consistency, GuardState, LockClientBuilder};
use bakery_lock_instrumented::testing::lock_table_id;
use scylla::statement::unprepared::Statement;

use super::lossy::LossyLink;
use support::scene::{self, Scene, built};

/// How many answers a client is built from at most, statements and schema included.
const FRAMES_MAX: usize = 120;

const MS: Duration = Duration::from_millis(1);

// Goal: a client that would not exclude the others is refused, with both consistencies and what to
// do; the consistency that all use works, QUORUM as well as LOCAL_QUORUM.
// Method: a table for QUORUM and one for LOCAL_QUORUM of the data centre that the cluster has, and
// clients with either for both.
#[tokio::test]
async fn client_with_another_consistency_is_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("consistency").await;
    let datacenter = datacenter(&scene);
    let local = Consistency::LocalQuorum(datacenter.clone());
    let options = CreateOptions::new().lock_table("local").consistency(local.clone());
    assert!(scene.create(&options).await.expect("the table is new").settings);
    let builder = |table: &str, consistency: &Consistency| {
        scene.builder().lock_table(table).consistency(consistency.clone())
    };
    let named = format!("LOCAL_QUORUM of data centre {datacenter:?}");
    for (table, right, wrong, told) in [
        ("lock_table", &Consistency::Quorum, &local, ["is used with QUORUM", &named]),
        ("local", &local, &Consistency::Quorum, [&named, "asks for QUORUM"]),
    ] {
        let error = refusal(builder(table, wrong)).await;
        assert!(matches!(error, SchemaError::OtherConsistency { .. }), "{error:?}");
        let change = "stop all clients, run DELETE FROM";
        expect_text(&error, &[told[0], told[1], "two that differ could hold one lock", change]);
        let client = built(builder(table, right)).await;
        let guard = client.lock("object").await.expect("the lock is free");
        guard.unlock().await.expect("the lock was held");
    }
    scene.drop_keyspace().await;
}

// Goal: a table without recorded settings is refused with the command that records them, so is a
// table whose settings were deleted to change them, until they are recorded again.
// Method: delete the record by the statement that the refusal of other settings advises.
#[tokio::test]
async fn table_without_settings_is_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("unrecorded").await;
    let other = CreateOptions::new().max_clock_skew(250 * MS);
    let error = scene.create(&other).await.expect_err("others are recorded").to_string();
    let (_, advice) = error.split_once("run ").expect("it says what to run");
    let (delete, _) = advice.split_once(", and then").expect("it says what is next");
    scene.execute(delete).await;

    let error = refusal(scene.builder()).await;
    assert!(matches!(error, SchemaError::NotRecorded { .. }), "{error:?}");
    let keyspace = &scene.keyspace;
    let command = format!(
        "run `lock-hosts init --keyspace {keyspace} --lock-table lock_table --max-ttl 120s`"
    );
    expect_text(&error, &["are not recorded", &command, "--consistency"]);

    let created = scene.create(&other).await.expect("the record is gone");
    assert!(created.settings && created.tables.is_empty(), "{created:?}");
    scene.client().await;
    scene.drop_keyspace().await;
}

// Goal: settings are recorded once. The same settings again change nothing, others are refused with
// what is recorded, and leave it as it is.
// Method: record some twice, then others; then look at what a client goes by: the skew shortens its
// leases.
#[tokio::test]
async fn settings_are_recorded_once() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("once").await;
    let skew = 1_400 * MS;
    let table = CreateOptions::new().lock_table("skewed");
    let settings = table.clone().max_clock_skew(skew);
    let created = scene.create(&settings).await.expect("the table is new");
    assert!(created.settings, "{created:?}");
    let created = scene.create(&settings).await.expect("it is as asked for");
    assert_eq!(created, Created::default());

    let local = Consistency::LocalQuorum(datacenter(&scene));
    for other in [table.clone(), settings.clone().consistency(local)] {
        let error = scene.create(&other).await.expect_err("others are recorded");
        assert!(matches!(error, SchemaError::Differs { .. }), "{error:?}");
        let recorded = "settings of skewed: QUORUM and a max_clock_skew of 1.4s are recorded, not ";
        expect_text(&error, &[recorded, "use what is recorded, or stop all clients"]);
    }

    let ttl = Duration::from_secs(5);
    let client = built(scene.builder().lock_table("skewed").ttl(ttl)).await;
    let guard = client.lock("object").await;
    let guard = guard.expect("the lock is free");
    let GuardState::Held { remaining, .. } = guard.state() else {
        panic!("the lock is held: {:?}", guard.state());
    };
    assert!(remaining <= ttl - Duration::from_secs(1) - skew, "{remaining:?} are left");
    guard.unlock().await.expect("the lock was held");
    scene.drop_keyspace().await;
}

// Goal: a table for clients of another protocol is refused by a client, by the registry and when
// settings are recorded, with both numbers and what to do. One without a number, or in a registry
// without a column for it, is that of the first version.
// Method: write another number and a null by hand, and drop the column.
#[tokio::test]
async fn table_of_another_protocol_is_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("protocol").await;
    let registry = format!("\"{}\".lock_hosts", scene.keyspace);
    let row = "registry = 'lock_tables' AND host_name = 'lock_table'";
    let set = async |number: &str| {
        scene.execute(&format!("UPDATE {registry} SET protocol = {number} WHERE {row}")).await;
    };
    let number = async || {
        let mut select = Statement::new(format!("SELECT protocol FROM {registry} WHERE {row}"));
        select.set_consistency(scylla::statement::Consistency::Quorum);
        let rows = scene.session.query_unpaged(select, ()).await.expect("the cluster answers");
        let rows = rows.into_rows_result().expect("a select has rows");
        rows.single_row::<(Option<i32>,)>().expect("the settings are a row").0
    };
    assert_eq!(number().await, Some(2));

    set("3").await;
    let both = "is for clients of protocol 3, and this version knows protocol 2";
    let expected = [both, "clients of both could hold one lock", "stop all clients"];
    let error = refusal(scene.builder()).await;
    assert!(matches!(error, SchemaError::OtherProtocol { recorded: 3, .. }), "{error:?}");
    expect_text(&error, &expected);
    let created = scene.create(&CreateOptions::new()).await;
    expect_text(&created.expect_err("the protocol is another one"), &expected);
    let opened = HostRegistry::new(Arc::clone(&scene.session), &scene.keyspace).await;
    expect_text(&opened.expect_err("the protocol is another one"), &expected);
    assert_eq!(number().await, Some(3), "it is left as it is");

    let is_of_the_first_version = async || {
        let error = refusal(scene.builder()).await;
        assert!(matches!(error, SchemaError::OtherProtocol { recorded: 1, .. }), "{error:?}");
    };
    set("null").await;
    is_of_the_first_version().await;
    scene.change_schema(&format!("ALTER TABLE {registry} DROP protocol")).await;
    is_of_the_first_version().await;
    scene.drop_keyspace().await;
}

// Goal: settings that can't be kept are refused, and nothing is made or recorded.
// Method: skews out of bounds, and a data centre that there isn't.
#[tokio::test]
async fn unusable_settings_are_not_recorded() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("unusable").await;
    let table = CreateOptions::new().lock_table("other");
    for skew in [Duration::ZERO, 1_500 * MS, Duration::from_micros(1_500)] {
        let error = scene.create(&table.clone().max_clock_skew(skew)).await;
        let error = error.expect_err("the skew can't be used");
        assert!(matches!(error, SchemaError::MaxClockSkew { .. }), "{error:?}");
        expect_text(&error, &["use whole milliseconds, from 1 to 1499"]);
    }
    let nowhere = Consistency::LocalQuorum("nowhere".to_owned());
    let error = scene.create(&table.clone().consistency(nowhere)).await;
    let error = error.expect_err("there is no such data centre");
    expect_text(&error, &["there is no data centre \"nowhere\""]);
    let created = scene.create(&table).await.expect("nothing was made");
    assert_eq!(created.tables, ["other"]);
    scene.drop_keyspace().await;
}

// Goal: a table that was dropped and made again can be told from the one before, and its settings
// outlive it.
// Method: look at its id before, without and after.
#[tokio::test]
async fn table_that_is_made_again_is_another_one() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("again").await;
    let id = async || lock_table_id(&scene.session, &scene.keyspace).await;
    let before = id().await;
    assert!(before.is_some() && id().await == before, "{before:?}");
    scene.change_schema(&format!("DROP TABLE \"{}\".lock_table", scene.keyspace)).await;
    assert_eq!(id().await, None);
    let created = scene.create(&CreateOptions::new()).await.expect("the table is gone");
    assert!(!created.settings && created.tables == ["lock_table"], "{created:?}");
    let after = id().await;
    assert!(after.is_some() && after != before, "{before:?} and then {after:?}");
    scene.client().await;
    scene.drop_keyspace().await;
}

/// What the nodes send while a client is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answers {
    bytes: usize,
    frames: usize,
}

// Goal: what a client looks at when it is built, clocks and all, is little, and does not grow with
// the number of registered hosts.
// Method: count what the nodes answer, before and after 20,000 hosts were added.
#[tokio::test]
async fn client_is_built_from_few_answers() {
    const HOSTS: usize = 20_000;
    const AT_ONCE: usize = 500;
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("many_hosts").await;
    let lossy = LossyLink::new(&scene).await;
    let before = answers_for_a_client(&scene, &lossy).await;
    for first in (0..HOSTS).step_by(AT_ONCE) {
        let insert = |number: usize| {
            format!(
                "INSERT INTO \"{}\".lock_hosts (registry, host_name, number, added_at) \
                 VALUES ('hosts', 'pod-{number}', {number}, currentTimestamp()); ",
                scene.keyspace
            )
        };
        let inserts: String = (first..first + AT_ONCE).map(|pod| insert(pod + 10)).collect();
        scene.execute(&format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")).await;
    }
    let after = answers_for_a_client(&scene, &lossy).await;
    println!("a client is built from {before:?}, among {HOSTS} hosts from {after:?}");
    assert!(before.frames <= FRAMES_MAX && after.frames <= FRAMES_MAX);
    // A row of each host would be half a megabyte.
    assert!(after.bytes < before.bytes + HOSTS, "{before:?} before, {after:?} after");
    scene.drop_keyspace().await;
}

/// The least of a few clients: the driver has answers of its own now and then.
async fn answers_for_a_client(scene: &Scene, lossy: &LossyLink) -> Answers {
    let mut least = Vec::new();
    for _ in 0..5 {
        let answers = lossy.answers();
        let client = built(lossy.builder(scene)).await;
        client.shutdown().await.expect("nothing is held");
        least.push(answers.end());
    }
    let (bytes, frames) = least.into_iter().min().expect("there are a few");
    Answers { bytes, frames }
}

/// The data centre of the cluster for tests, which has one.
fn datacenter(scene: &Scene) -> String {
    let state = scene.session.get_cluster_state();
    let datacenter = state.get_nodes_info().iter().find_map(|node| node.datacenter.clone());
    datacenter.expect("a node has a data centre")
}

async fn refusal(builder: LockClientBuilder) -> SchemaError {
    let error = scene::refusal(builder).await;
    let BuildError::Schema(error) = error else {
        panic!("it is refused for something else: {error:?}");
    };
    error
}

/// The message of an error must tell all of this.
fn expect_text(error: &dyn std::error::Error, texts: &[&str]) {
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "{message:?} does not say {text:?}");
    }
}
