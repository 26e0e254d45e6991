//! A node whose clock is wrong, or becomes so.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bakery_lock::schema::{self, CreateOptions, Finding, Replication, SchemaError, Severity};
use bakery_lock::{BuildError, Consistency, GuardState, LockClient, LockError};
use cassandra_cluster::{Cluster, ClusterOptions};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use super::hurt::{self, seen};
use support::scene::{Scene, built};
use support::{pace, session_on};

const KEYSPACE: &str = "locks";

/// By how many seconds the clock of the second node is ahead once it is wrong.
const AHEAD: i32 = 3;

/// A holder looks at the clocks at each renewal, which is every third of it.
const TTL: Duration = Duration::from_secs(12);

// Goal: where a node's clock certainly differs by more than the lock table allows, a client is
// refused and told by how much, and a check reports the same.
// Method: two nodes; the clock of one is set ahead by 3 s.
#[tokio::test]
async fn node_with_a_wrong_clock_is_found() {
    let (cluster, scene, _turn) = cluster().await;
    cluster.set_clock(2, AHEAD).expect("its clock can be set");
    let (told, problems) = seen("a client is refused", async || refusal(&scene).await).await;
    println!("a client is told: {told}");
    expect_figure(&problems);

    let quorum = Consistency::Quorum;
    let findings = seen("a check reports it", async || {
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
async fn bound_that_can_not_be_measured_is_refused() {
    const MS: Duration = Duration::from_millis(1);
    let (_cluster, scene, _turn) = cluster().await;
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

    // A node that is busier meanwhile can tell its time less exactly, so more is advised.
    let advised = Cell::new(usable);
    let created = seen("a bound that can be used", async || match create(advised.get()).await {
        Ok(created) => Some(created),
        Err(SchemaError::Unmeasurable { usable, .. }) => {
            advised.set(usable);
            None
        }
        Err(error) => panic!("it is refused for something else: {error:?}"),
    });
    let created = created.await;
    assert!(created.tables == ["exact"] && created.settings, "{created:?}");
    built(scene.builder().lock_table("exact")).await;
}

// Goal: a client that was built while the clocks agreed finds out that one does not any more: its
// guard is at risk, and callers are sent away with the figure, until the clocks agree again. What
// it holds it renews all the time.
// Method: the clock of one of two nodes is set ahead by 3 s, and back, while a lock is held.
#[tokio::test]
async fn clock_that_becomes_wrong_is_found() {
    let (cluster, scene, _turn) = cluster().await;
    let ttl = pace::scaled(TTL);
    let client = built(scene.builder().ttl(ttl)).await;
    let guard = seen("a lock", async || client.lock("held").await.ok()).await;

    cluster.set_clock(2, AHEAD).expect("its clock can be set");
    let began = Instant::now();
    let (told, problems) = seen("a caller is told", async || clock_problems(&client).await).await;
    println!("with a ttl of {ttl:?}, a caller is told after {:?}: {told}", began.elapsed());
    expect_figure(&problems);
    sleep(ttl * 2).await;
    // A look at a node that is too busy to tell its time shows nothing.
    let is_at_risk = async || matches!(guard.state(), GuardState::AtRisk { .. });
    pace::until("a guard at risk", is_at_risk).await;
    seen("the clocks differ still", async || clock_problems(&client).await).await;

    cluster.set_clock(2, 0).expect("its clock can be set");
    let began = Instant::now();
    pace::until("callers are let in", async || is_let_in(&client).await).await;
    println!("once the clocks agreed, callers were let in after {:?}", began.elapsed());
    // A renewal that is late puts it at risk as well.
    let is_held = async || matches!(guard.state(), GuardState::Held { .. });
    pace::until("a guard that is held", is_held).await;
    guard.unlock().await.expect("it was held to the end");
}

// Goal: a node whose clock was far ahead and was set back is seen to agree at once: what it says of
// its clock must go back with it.
// Method: libfaketime sets the clock of one of two nodes ahead by an hour, until a client is
// refused for it, and back.
#[tokio::test]
async fn clock_that_is_set_back_is_seen_to_agree() {
    const HOUR: i32 = 3_600;
    let (cluster, scene, _turn) = cluster().await;
    cluster.set_clock(2, HOUR).expect("its clock can be set");
    let (_, problems) = seen("a client is refused", async || refusal(&scene).await).await;
    let told = problems[0].found.as_str();
    assert!(told.starts_with("127.0.0.52:9042 is ahead of 127.0.0.51:9042 by 3"), "{told}");

    cluster.set_clock(2, 0).expect("its clock can be set");
    let began = Instant::now();
    seen("a client", async || scene.builder().build().await.ok()).await;
    println!("once its clock was set back, a client was built after {:?}", began.elapsed());
}

/// What a caller is told of the clocks, if both differ for certain. A busy node may be too late.
async fn clock_problems(client: &LockClient) -> Option<(String, Vec<Finding>)> {
    let error = client.try_lock("free").await.err()?;
    let told = error.to_string();
    let LockError::ClocksDiffer { problems, .. } = error else { return None };
    (problems.len() == 2).then_some((told, problems))
}

/// Whether a caller gets a lock.
async fn is_let_in(client: &LockClient) -> bool {
    client.try_lock("free").await.is_ok_and(|guard| guard.is_some())
}

/// Why a client is not built, if both clocks differ for certain.
async fn refusal(scene: &Scene) -> Option<(String, Vec<Finding>)> {
    let error = scene.builder().build().await.err()?;
    let told = error.to_string();
    let BuildError::Schema(SchemaError::ClocksDiffer { problems, .. }) = error else {
        println!("a client is refused for something else: {error:?}");
        return None;
    };
    (problems.len() == 2).then_some((told, problems))
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

/// Two nodes, of which the second one's clock can be set, and the tables. One test at a time has
/// them, as long as it holds the guard.
async fn cluster() -> (Cluster, Scene, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let options = ClusterOptions {
        name: "clocks".to_owned(),
        nodes: 2,
        first_host: 51,
        clock_offsets: BTreeMap::from([(2, 0)]),
        // Else the second node takes all that the first one asks of it for too old, and drops it.
        settings: BTreeMap::from([("internode_timeout".to_owned(), "false".to_owned())]),
        ..ClusterOptions::default()
    };
    let cluster = hurt::lease(options).await;
    // Another test may have left it wrong.
    cluster.set_clock(2, 0).expect("its clock can be set");
    let session = session_on(&cluster.nodes()).await;
    let options = CreateOptions::new().replication(Replication::Factor(2));
    schema::create(&session, KEYSPACE, &options).await.expect("the keyspace can be made");
    (cluster, Scene { session, keyspace: KEYSPACE.to_owned() }, turn)
}
