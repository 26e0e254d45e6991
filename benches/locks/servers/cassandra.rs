//! The cluster to measure on, and its variant of Paxos.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bakery_lock::schema::{self, CreateOptions, Replication};
use cassandra_cluster::{Cluster, ClusterError, ClusterOptions, CommitLog};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use serde::Serialize;
use support::processor;
use tokio::task::JoinHandle;

use crate::arguments::Durability;

/// The keyspace of all sides.
pub(crate) const KEYSPACE: &str = "bakery_lock_bench";

/// How lightweight transactions are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Paxos {
    /// Cassandra's `paxos_variant: v1`, its default.
    V1,
    /// Cassandra's `paxos_variant: v2`.
    V2,
    /// As a given cluster is configured.
    AsGiven,
}

impl Paxos {
    /// What the lock on it is called.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Paxos::V1 => "LWT v1",
            Paxos::V2 => "LWT v2",
            Paxos::AsGiven => "LWT",
        }
    }
}

/// A cluster and a session on it.
pub(crate) struct TestCluster {
    session: Arc<Session>,
    nodes: Vec<String>,
    replicas: u32,
    /// What was started for the bench; none where nodes were given.
    own: Option<Arc<Cluster>>,
    /// A killed node that is about to be up again.
    starting: Option<JoinHandle<Result<(), ClusterError>>>,
}

impl TestCluster {
    /// Connects to the given nodes, or starts three.
    pub(crate) async fn open(nodes: &[String], durability: Durability) -> Result<Self> {
        let own = match nodes {
            [] => Some(Arc::new(tokio::task::spawn_blocking(move || start(durability)).await??)),
            [_, ..] => None,
        };
        let nodes = match &own {
            Some(cluster) => cluster.nodes().iter().map(SocketAddr::to_string).collect(),
            None => nodes.to_vec(),
        };
        let session = connect(&nodes).await.context("could not connect to the cluster")?;
        let known = session.get_cluster_state().get_nodes_info().len();
        let replicas = u32::try_from(known.min(3)).expect("three is not many");
        let cluster =
            TestCluster { session: Arc::new(session), nodes, replicas, own, starting: None };
        cluster.make_keyspace().await?;
        Ok(cluster)
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Where its nodes are.
    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Whether it was started for the bench.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub(crate) async fn version(&self) -> Result<String> {
        let select = "SELECT release_version FROM system.local";
        let rows = self.session.query_unpaged(select, ()).await?.into_rows_result()?;
        Ok(rows.single_row::<(String,)>()?.0)
    }

    /// The processor time that its nodes have used; `None` if they are not the bench's own.
    pub(crate) fn processor_time(&self) -> Result<Option<Duration>> {
        let Some(cluster) = &self.own else { return Ok(None) };
        let mut used = Duration::ZERO;
        for node in 1..=cluster.options().nodes {
            used += processor::time_of(cluster.pid(node)?)?;
        }
        Ok(Some(used))
    }

    pub(crate) fn kill(&self, server: usize) -> Result<()> {
        Ok(self.cluster()?.kill(number(server))?)
    }

    pub(crate) fn pause(&self, server: usize) -> Result<()> {
        Ok(self.cluster()?.pause(number(server))?)
    }

    pub(crate) fn resume(&self, server: usize) -> Result<()> {
        Ok(self.cluster()?.resume(number(server))?)
    }

    /// Starts a killed node, and does not wait until it is up.
    pub(crate) fn start_again(&mut self, server: usize) -> Result<()> {
        let cluster = Arc::clone(self.cluster()?);
        let start = move || cluster.start(number(server));
        self.starting = Some(tokio::task::spawn_blocking(start));
        Ok(())
    }

    /// Waits until all nodes are up and see each other.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        if let Some(starting) = self.starting.take() {
            starting.await??;
        }
        let cluster = Arc::clone(self.cluster()?);
        Ok(tokio::task::spawn_blocking(move || cluster.heal()).await??)
    }

    fn cluster(&self) -> Result<&Arc<Cluster>> {
        self.own.as_ref().context("the nodes are not the bench's own")
    }

    /// The variants of Paxos to measure.
    pub(crate) fn variants(&self) -> &'static [Paxos] {
        if self.own.is_some() { &[Paxos::V1, Paxos::V2] } else { &[Paxos::AsGiven] }
    }

    /// Switches all nodes to a variant while they run. Nothing else may run meanwhile: proposers of
    /// different variants don't respect each other.
    pub(crate) async fn switch(&self, paxos: Paxos) -> Result<()> {
        let value = match paxos {
            Paxos::V1 => "v1",
            Paxos::V2 => "v2",
            Paxos::AsGiven => return Ok(()),
        };
        let cluster = self.own.clone().context("only the bench's own cluster can be switched")?;
        tokio::task::spawn_blocking(move || switch_nodes(&cluster, value)).await??;
        for (node, setting) in self.settings("paxos_variant").await? {
            if setting != value {
                bail!("node {node} still has paxos_variant {setting}");
            }
        }
        // The programs that switched the nodes took processor time and caches from them.
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(())
    }

    /// A setting of each node, as it is now.
    async fn settings(&self, name: &str) -> Result<Vec<(IpAddr, String)>> {
        let mut settings = Vec::new();
        for node in self.session.get_cluster_state().get_nodes_info() {
            let mut select =
                Statement::new("SELECT value FROM system_views.settings WHERE name = ?");
            let target = NodeIdentifier::Node(Arc::clone(node));
            let routing = SingleTargetLoadBalancingPolicy::new(target, None);
            select.set_load_balancing_policy(Some(routing));
            select.set_consistency(Consistency::One);
            let rows = self.session.query_unpaged(select, (name,)).await?.into_rows_result()?;
            let (value,) = rows.single_row::<(String,)>()?;
            settings.push((node.address.ip(), value));
        }
        Ok(settings)
    }

    /// Makes the keyspace with our lock's tables; the other sides add theirs.
    async fn make_keyspace(&self) -> Result<()> {
        self.drop_keyspace().await?;
        let replication = Replication::Factor(self.replicas);
        let options = CreateOptions::new().replication(replication);
        schema::create(&self.session, KEYSPACE, &options).await?;
        Ok(())
    }

    /// Drops what the bench has made.
    pub(crate) async fn drop_keyspace(&self) -> Result<()> {
        let drop = format!("DROP KEYSPACE IF EXISTS {KEYSPACE}");
        self.session.query_unpaged(drop, ()).await?;
        Ok(())
    }
}

/// Nodes are numbered from 1.
fn number(server: usize) -> u8 {
    u8::try_from(server + 1).expect("there are three nodes")
}

/// Starts a cluster with a name and addresses of its own, so that tests may run meanwhile; not that
/// figures would be worth much then.
fn start(durability: Durability) -> Result<Cluster> {
    let options = ClusterOptions {
        name: "bench".to_owned(),
        nodes: 3,
        first_host: 41,
        // Enough that no memtable gets full while the bench runs.
        heap_mib: 1024,
        commit_log: match durability {
            Durability::Usual => CommitLog::Periodic,
            Durability::Synced => CommitLog::Batch,
        },
        ..ClusterOptions::default()
    };
    Ok(Cluster::lease(options)?)
}

/// One session for all sides: what our lock makes of its profile, the others get by this one.
pub(crate) async fn connect(nodes: &[String]) -> Result<Session> {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(Duration::from_secs(3)))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .build();
    let builder = SessionBuilder::new()
        .known_nodes(nodes)
        .default_execution_profile_handle(profile.into_handle());
    Ok(builder.build().await?)
}

/// There is no setting to switch it in a table, but each node has it as a managed bean.
fn switch_nodes(cluster: &Cluster, value: &str) -> Result<()> {
    let bean = "org.apache.cassandra.db:type=StorageProxy";
    let command = ["sjk", "mx", "-b", bean, "-f", "PaxosVariant", "--set", "--value", value];
    thread::scope(|scope| {
        let numbers = 1..=cluster.options().nodes;
        let nodes: Vec<_> =
            numbers.map(|node| scope.spawn(move || cluster.nodetool(node, &command))).collect();
        for node in nodes {
            node.join().expect("the thread does not panic")?;
        }
        Ok(())
    })
}
