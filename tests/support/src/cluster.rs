//! The cluster that integration tests run on.
//!
//! It is, in this order: the nodes that `BAKERY_LOCK_TEST_NODES` names; a container of the image
//! that `BAKERY_LOCK_TEST_IMAGE` names; three nodes of `tools/cassandra-cluster`. When none of them
//! can be had, tests fail and say what to install.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bakery_lock::schema::{self, CreateOptions, Replication};
use cassandra_cluster::{Cluster, ClusterOptions};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use tokio::sync::{Mutex, MutexGuard, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{failure, pace};

/// The keyspace that all tests share.
const KEYSPACE: &str = "bakery_lock_test";

/// How many replicas there are, if there are as many nodes.
const REPLICAS: usize = 3;

/// Interval between checks for schema agreement.
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(20);

const CQL_PORT: u16 = 9042;

/// A session on the cluster. It belongs to the runtime of the test that asks for it.
pub async fn session() -> Arc<Session> {
    session_on(&nodes().await).await
}

/// A session on these nodes that waits for their answers as long as a test waits.
pub async fn session_on(nodes: &[SocketAddr]) -> Arc<Session> {
    let profile = ExecutionProfile::builder().request_timeout(Some(pace::limit())).build();
    let session = SessionBuilder::new()
        .known_nodes_addr(nodes)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(pace::limit())
        // Each session would read the columns of the tables of all tests.
        .fetch_full_schema_metadata(false)
        .schema_agreement_timeout(pace::limit())
        .schema_agreement_interval(AGREEMENT_INTERVAL)
        .build()
        .await;
    Arc::new(session.expect("the cluster answers"))
}

/// The keyspace that all tests share, with the tables. Objects have names of their own, see
/// [`unique`].
pub async fn keyspace() -> String {
    static CREATED: OnceCell<()> = OnceCell::const_new();
    let create = async || create_keyspace(KEYSPACE, CreateOptions::new()).await;
    CREATED.get_or_init(create).await;
    KEYSPACE.to_owned()
}

/// Makes a keyspace with the tables, on as many replicas as there are nodes for.
pub async fn create_keyspace(keyspace: &str, options: CreateOptions) {
    let session = session().await;
    let nodes = session.get_cluster_state().get_nodes_info().len();
    let replicas = u32::try_from(nodes.min(REPLICAS)).expect("a few replicas");
    let options = options.replication(Replication::Factor(replicas));
    let _turn = turn_to_change_the_schema().await;
    schema::create(&session, keyspace, &options).await.expect("the schema can be made");
}

/// Serialises the schema changes of this program's tests. Nodes can't agree on a schema while
/// another test changes it.
pub async fn turn_to_change_the_schema() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// The addresses of the cluster's nodes; of those that are to be connected to first.
pub async fn nodes() -> Vec<SocketAddr> {
    let nodes = tokio::task::spawn_blocking(cluster).await;
    nodes.expect("finding a cluster does not panic").to_vec()
}

/// A name that no other test and no other run uses.
pub fn unique(tag: &str) -> String {
    format!("test::{tag}::{}", suffix("-"))
}

/// A name for a keyspace that no other test and no other run uses.
pub fn unique_keyspace(tag: &str) -> String {
    format!("test_{tag}_{}", suffix("_"))
}

/// Lets the holder run without the other tests of this program that ask for it, or for
/// [`beside_others`]: for tests that measure, and for tests that take all of the machine.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().await
}

/// Lets the holder run beside others that ask for it: for tests that measure nothing, or whose
/// bounds leave seconds.
pub async fn beside_others() -> RwLockReadGuard<'static, ()> {
    TURNS.read().await
}

static TURNS: RwLock<()> = RwLock::const_new(());

/// Finds or starts the cluster, once in each process.
fn cluster() -> &'static [SocketAddr] {
    failure::explain();
    /// Statics are not dropped, but a lease ends with the process that holds it.
    static FOUND: OnceLock<(Vec<SocketAddr>, Option<Cluster>)> = OnceLock::new();
    let (nodes, _lease) = FOUND.get_or_init(|| {
        let (nodes, lease) = find_cluster();
        pace::measure_writes(&nodes);
        (nodes, lease)
    });
    nodes
}

fn find_cluster() -> (Vec<SocketAddr>, Option<Cluster>) {
    if let Ok(named) = std::env::var("BAKERY_LOCK_TEST_NODES") {
        (named.split(',').map(resolve).collect(), None)
    } else if let Ok(image) = std::env::var("BAKERY_LOCK_TEST_IMAGE") {
        let node = in_a_container(&image);
        let node = node.unwrap_or_else(|error| panic!("no cluster for tests: {error}"));
        (vec![resolve(&node)], None)
    } else {
        let nodes = u8::try_from(REPLICAS).expect("a few nodes");
        let options = ClusterOptions { nodes, disposable: true, ..ClusterOptions::default() };
        let lease = Cluster::lease(options);
        let lease = lease.unwrap_or_else(|error| panic!("no cluster for tests: {error}"));
        (lease.nodes(), Some(lease))
    }
}

#[cfg(feature = "containers")]
use crate::container::contact_point as in_a_container;

#[cfg(not(feature = "containers"))]
fn in_a_container(image: &str) -> Result<String, String> {
    Err(format!("{image} needs the tests with --features bakery-lock-test-support/containers"))
}

fn resolve(node: &str) -> SocketAddr {
    let with_port = node.to_socket_addrs();
    let found = with_port.or_else(|_| (node, CQL_PORT).to_socket_addrs());
    let found = found.ok().and_then(|mut addresses| addresses.next());
    found.unwrap_or_else(|| panic!("no cluster for tests: {node:?} is no address of a node"))
}

/// The process and the time tell runs apart, a counter the calls of one process.
fn suffix(separator: &str) -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970");
    let (seconds, process) = (now.as_secs(), std::process::id());
    format!("{seconds:x}{separator}{process:x}{separator}{call}")
}
