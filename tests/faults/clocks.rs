//! A node whose clock is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bakery_lock::schema::{self, CreateOptions, Finding, Replication, SchemaError, Severity};
use bakery_lock::{BuildError, Consistency};
use cassandra_cluster::{Cluster, ClusterOptions};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use tokio::task::spawn_blocking;

use super::scene::Scene;
use super::support;

const KEYSPACE: &str = "locks";

/// How long a node may be too busy to tell its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// By how many seconds the clock of the second node is ahead.
const AHEAD: i32 = 3;

// Goal: where a node's clock certainly differs by more than the lock table allows, a client is
// refused and told by how much, and so is who checks.
// Method: two nodes; libfaketime sets the clock of one ahead by 3 s.
#[tokio::test]
async fn a_node_with_a_wrong_clock_is_found() {
    let _alone = support::alone().await;
    let (_lease, session) = cluster().await;
    let options = CreateOptions::new().replication(Replication::Factor(2));
    schema::create(&session, KEYSPACE, &options).await.expect("the keyspace can be made");

    let scene = Scene { session: Arc::clone(&session), keyspace: KEYSPACE.to_owned() };
    let error = patiently(async || scene.builder().build().await.err()).await;
    println!("a client is told: {error}");
    let BuildError::Schema(SchemaError::ClocksDiffer { problems }) = error else {
        panic!("it is refused for something else: {error:?}");
    };
    expect_figure(&problems);

    let quorum = Consistency::Quorum;
    let findings = patiently(async || {
        let report = schema::check(&session, KEYSPACE, "lock_table", &quorum).await;
        let mut findings = report.expect("the cluster answers").findings;
        findings.retain(|finding| finding.severity == Severity::Error);
        (findings.len() == 2).then_some(findings)
    });
    expect_figure(&findings.await);
}

/// What is seen in the end. The answer of a node that is too busy comes so late that nothing is
/// certain, and then nobody is refused.
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

/// The nodes, and a session on them.
async fn cluster() -> (Cluster, Arc<Session>) {
    let options = ClusterOptions {
        name: "clocks".to_owned(),
        nodes: 2,
        first_host: 51,
        clock_offsets: BTreeMap::from([(2, AHEAD)]),
        // Else the second node takes all that the first one asks of it for too old, and drops it.
        settings: BTreeMap::from([("internode_timeout".to_owned(), "false".to_owned())]),
        ..ClusterOptions::default()
    };
    let cluster = spawn_blocking(|| Cluster::lease(options)).await.expect("nobody panics");
    let cluster = cluster.unwrap_or_else(|error| panic!("no cluster can be had: {error}"));
    let session = SessionBuilder::new().known_nodes_addr(cluster.nodes()).build().await;
    (cluster, Arc::new(session.expect("the cluster is ready")))
}
