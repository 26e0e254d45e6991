//! A node whose clock is wrong, or becomes so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bakery_lock::schema::{self, CreateOptions, Finding, Replication, SchemaError, Severity};
use bakery_lock::{BuildError, Consistency, GuardState, LockClient, LockError};
use cassandra_cluster::{Cluster, ClusterOptions, Compiler};
use scylla::client::session_builder::SessionBuilder;
use tokio::time::sleep;

use super::hurt;
use support::scene::Scene;

const KEYSPACE: &str = "locks";

/// How long a node may be too busy to tell its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// By how many seconds the clock of the second node is ahead once it is wrong.
const AHEAD: i32 = 3;

/// A holder looks at the clocks at each renewal, which is every third of it.
const TTL: Duration = Duration::from_secs(12);

// Goal: where a node's clock certainly differs by more than the lock table allows, a client is
// refused and told by how much, and a check reports the same.
// Method: two nodes; the clock of one is set ahead by 3 s.
#[tokio::test]
async fn a_node_with_a_wrong_clock_is_found() {
    let _alone = support::alone().await;
    let (cluster, scene) = cluster().await;
    cluster.set_clock(2, AHEAD).expect("its clock can be set");
    let error = patiently(async || scene.builder().build().await.err()).await;
    println!("a client is told: {error}");
    let BuildError::Schema(SchemaError::ClocksDiffer { problems }) = error else {
        panic!("it is refused for something else: {error:?}");
    };
    expect_figure(&problems);

    let quorum = Consistency::Quorum;
    let findings = patiently(async || {
        let report = schema::check(&scene.session, KEYSPACE, "lock_table", &quorum).await;
        let mut findings = report.expect("the cluster answers").findings;
        findings.retain(|finding| finding.severity == Severity::Error);
        (findings.len() == 2).then_some(findings)
    });
    expect_figure(&findings.await);
}

// Goal: a bound that is below what can be measured on this cluster is refused before anything is
// made, with a bound that can be used; that bound is used. A bound that is recorded already is not
// measured again.
// Method: the least bound that there is, on two nodes: a node tells its time in milliseconds.
#[tokio::test]
async fn a_bound_that_can_not_be_measured_is_refused() {
    const MS: Duration = Duration::from_millis(1);
    let _alone = support::alone().await;
    let (_cluster, scene) = cluster().await;
    let create = async |max_clock_skew| {
        let options = CreateOptions::new().lock_table("exact").max_clock_skew(max_clock_skew);
        schema::create(&scene.session, KEYSPACE, &options).await
    };
    let error = create(MS).await.expect_err("it can't be measured");
    let text = error.to_string();
    for told in ["a max_clock_skew of 1ms can't be kept here", "ms at best", "use "] {
        assert!(text.contains(told), "{text}");
    }
    let SchemaError::Unmeasurable { max_clock_skew, usable, .. } = error else {
        panic!("it is refused for something else: {error:?}");
    };
    assert!(max_clock_skew == MS && usable > MS, "{max_clock_skew:?} and {usable:?}");

    // Nodes that have just started may be slow to tell their time.
    let created = patiently(async || create(usable).await.ok()).await;
    assert!(created.tables == ["exact"] && created.settings, "{created:?}");
    patiently(async || scene.builder().lock_table("exact").build().await.ok()).await;
}

// Goal: a client that was built while the clocks agreed finds out that one does not any more: its
// guard is at risk, and callers are sent away with the figure, until the clocks agree again. What
// it holds it renews all the time.
// Method: the clock of one of two nodes is set ahead by 3 s, and back, while a lock is held.
#[tokio::test]
async fn a_clock_that_becomes_wrong_is_found() {
    let _alone = support::alone().await;
    let (cluster, scene) = cluster().await;
    let client = patiently(async || scene.builder().ttl(TTL).build().await.ok()).await;
    let guard = patiently(async || client.lock("held").await.ok()).await;

    cluster.set_clock(2, AHEAD).expect("its clock can be set");
    let began = Instant::now();
    let (told, problems) = patiently(async || clock_problems(&client).await).await;
    println!("with a ttl of {TTL:?}, a caller is told after {:?}: {told}", began.elapsed());
    expect_figure(&problems);
    sleep(TTL * 2).await;
    assert!(matches!(guard.state(), GuardState::AtRisk { .. }), "{:?}", guard.state());
    assert!(clock_problems(&client).await.is_some(), "the clocks differ still");

    cluster.set_clock(2, 0).expect("its clock can be set");
    let began = Instant::now();
    patiently(async || clock_problems(&client).await.is_none().then_some(())).await;
    println!("once the clocks agreed, callers were let in after {:?}", began.elapsed());
    // A renewal that is late puts it at risk as well.
    let held = async || {
        sleep(Duration::from_millis(20)).await;
        matches!(guard.state(), GuardState::Held { .. }).then_some(())
    };
    patiently(held).await;
    guard.unlock().await.expect("it was held to the end");
}

// Goal: a node whose clock was far ahead and was set back is seen to agree at once: what it says of
// its clock must go back with it.
// Method: libfaketime sets the clock of one of two nodes ahead by an hour, until a client is
// refused for it, and back.
#[tokio::test]
async fn a_clock_that_is_set_back_is_seen_to_agree() {
    const HOUR: i32 = 3_600;
    let _alone = support::alone().await;
    let (cluster, scene) = cluster().await;
    cluster.set_clock(2, HOUR).expect("its clock can be set");
    let problems = patiently(async || {
        let error = scene.builder().build().await.err()?;
        let BuildError::Schema(SchemaError::ClocksDiffer { problems }) = error else { return None };
        Some(problems)
    });
    let told = problems.await[0].found.clone();
    assert!(told.starts_with("127.0.0.52:9042 is ahead of 127.0.0.51:9042 by 3"), "{told}");

    cluster.set_clock(2, 0).expect("its clock can be set");
    let began = Instant::now();
    patiently(async || scene.builder().build().await.ok()).await;
    println!("once its clock was set back, a client was built after {:?}", began.elapsed());
}

/// What a caller is told of the clocks, if it is told that. A busy node may be too late, too.
async fn clock_problems(client: &LockClient) -> Option<(String, Vec<Finding>)> {
    sleep(Duration::from_millis(20)).await;
    let error = client.try_lock("free").await.err()?;
    let told = error.to_string();
    if let LockError::ClocksDiffer { problems, .. } = error { Some((told, problems)) } else { None }
}

/// What is seen in the end. The answer of a node that is too busy comes so late that nothing is
/// certain, and then no client is refused.
async fn patiently<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "nothing is found in {PATIENCE:?}");
    }
}

/// The first finding compares the nodes, the second one this host with them.
fn expect_figure(findings: &[Finding]) {
    let [nodes, host] = findings else { panic!("there are other errors: {findings:?}") };
    let among_nodes = "127.0.0.52:9042 is ahead of 127.0.0.51:9042 by ";
    for (finding, begin) in
        [(nodes, among_nodes), (host, "differs from that of 127.0.0.52:9042 by ")]
    {
        let figure = finding.found.strip_prefix(begin).and_then(|rest| rest.split_once(" ms ± "));
        let (millis, rest) = figure.unwrap_or_else(|| panic!("there is no figure: {finding}"));
        let (error_millis, rest) = rest.split_once(' ').expect("an error has a unit");
        assert!(rest.starts_with("ms, more than 1s, so "), "{finding}");
        let number = |text: &str| text.parse::<i32>().expect("a figure is a number");
        let (millis, error_millis) = (number(millis), number(error_millis));
        assert!((millis - AHEAD * 1_000).abs() <= error_millis + 1, "{finding}");
    }
}

/// Two nodes, of which the second one's clock can be set, and the tables.
async fn cluster() -> (Cluster, Scene) {
    let options = ClusterOptions {
        name: "clocks".to_owned(),
        nodes: 2,
        first_host: 51,
        compiler: Compiler::Quick,
        clock_offsets: BTreeMap::from([(2, 0)]),
        // Else the second node takes all that the first one asks of it for too old, and drops it.
        settings: BTreeMap::from([("internode_timeout".to_owned(), "false".to_owned())]),
        ..ClusterOptions::default()
    };
    let cluster = hurt::lease(options).await;
    // Another test may have left it wrong.
    cluster.set_clock(2, 0).expect("its clock can be set");
    let session = SessionBuilder::new().known_nodes_addr(cluster.nodes()).build().await;
    let session = Arc::new(session.expect("the cluster is ready"));
    let options = CreateOptions::new().replication(Replication::Factor(2));
    schema::create(&session, KEYSPACE, &options).await.expect("the keyspace can be made");
    (cluster, Scene { session, keyspace: KEYSPACE.to_owned() })
}
