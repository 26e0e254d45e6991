//! A cluster of the bench's own or a given one, with a session and the lock's tables.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use bakery_lock::schema::{self, CreateOptions, Replication};
use cassandra_cluster::{Cluster, ClusterError, ClusterOptions, Compiler};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::{Consistency, SerialConsistency};
use support::processor;
use tokio::task::{JoinHandle, spawn_blocking};

/// The keyspace of all that is measured.
pub const KEYSPACE: &str = "bakery_lock_bench";

/// A cluster, a session on it, and the lock's tables in a keyspace of their own.
pub struct TestCluster {
    session: Arc<Session>,
    nodes: Vec<String>,
    replicas: u32,
    /// What was started for the bench; none where nodes were given.
    own: Option<Arc<Cluster>>,
    /// A killed node that is about to be up again.
    starting: Option<JoinHandle<Result<(), ClusterError>>>,
}

impl TestCluster {
    /// Connects to the given nodes; without any it starts a cluster.
    pub async fn open(nodes: &[String], options: ClusterOptions) -> Result<Self> {
        let own = match nodes {
            [] => Some(Arc::new(spawn_blocking(move || Cluster::lease(options)).await??)),
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

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Where its nodes are.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Whether it was started for the bench.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub async fn version(&self) -> Result<String> {
        let select = "SELECT release_version FROM system.local";
        let rows = self.session.query_unpaged(select, ()).await?.into_rows_result()?;
        Ok(rows.single_row::<(String,)>()?.0)
    }

    /// The processor time that its nodes have used; `None` if they are not the bench's own.
    pub fn processor_time(&self) -> Result<Option<Duration>> {
        let Some(cluster) = &self.own else { return Ok(None) };
        let mut used = Duration::ZERO;
        for node in 1..=cluster.options().nodes {
            used += processor::time_of(cluster.pid(node)?)?;
        }
        Ok(Some(used))
    }

    pub fn kill(&self, server: usize) -> Result<()> {
        Ok(self.cluster()?.kill(number(server))?)
    }

    pub fn pause(&self, server: usize) -> Result<()> {
        Ok(self.cluster()?.pause(number(server))?)
    }

    pub fn resume(&self, server: usize) -> Result<()> {
        Ok(self.cluster()?.resume(number(server))?)
    }

    /// Starts a killed node, and does not wait until it is up.
    pub fn start_again(&mut self, server: usize) -> Result<()> {
        let cluster = Arc::clone(self.cluster()?);
        self.starting = Some(spawn_blocking(move || cluster.start(number(server))));
        Ok(())
    }

    /// Waits until all nodes are up and see each other.
    pub async fn heal(&mut self) -> Result<()> {
        if let Some(starting) = self.starting.take() {
            starting.await??;
        }
        let cluster = Arc::clone(self.cluster()?);
        Ok(spawn_blocking(move || cluster.heal()).await??)
    }

    /// Runs `nodetool` for all nodes at once; returns what it says of each. Each run starts a
    /// virtual machine, which takes processor time and caches from the nodes for a second or two.
    pub async fn nodetool(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let cluster = Arc::clone(self.cluster()?);
        let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let said = spawn_blocking(move || {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            thread::scope(|scope| {
                let of = |node| cluster.nodetool(node, &arguments);
                let numbers = 1..=cluster.options().nodes;
                let nodes: Vec<_> = numbers.map(|node| scope.spawn(move || of(node))).collect();
                let said = nodes.into_iter().map(|it| it.join().expect("it does not panic"));
                said.collect::<Result<Vec<_>, _>>()
            })
        });
        Ok(said.await??)
    }

    fn cluster(&self) -> Result<&Arc<Cluster>> {
        self.own.as_ref().context("the nodes are not the bench's own")
    }

    /// Makes the keyspace with the lock's tables; other sides add theirs.
    async fn make_keyspace(&self) -> Result<()> {
        self.drop_keyspace().await?;
        let replication = Replication::Factor(self.replicas);
        let options = CreateOptions::new().replication(replication);
        schema::create(&self.session, KEYSPACE, &options).await?;
        Ok(())
    }

    /// Drops what the bench has made.
    pub async fn drop_keyspace(&self) -> Result<()> {
        let drop = format!("DROP KEYSPACE IF EXISTS {KEYSPACE}");
        self.session.query_unpaged(drop, ()).await?;
        Ok(())
    }
}

/// Nodes are numbered from 1.
fn number(server: usize) -> u8 {
    u8::try_from(server + 1).expect("there are three nodes")
}

/// The cluster that benches start: it has a name and addresses of its own, so that tests may run
/// meanwhile; not that figures would be worth much then.
pub fn options() -> ClusterOptions {
    // Enough that no memtable gets full while sides are compared.
    ClusterOptions {
        name: "bench".to_owned(),
        nodes: 3,
        first_host: 41,
        heap_mib: 1024,
        compiler: Compiler::Full,
        ..ClusterOptions::default()
    }
}

/// One session for all sides: what our lock makes of its profile, the others get by this one.
pub async fn connect(nodes: &[String]) -> Result<Session> {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(Duration::from_secs(3)))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .build();
    let builder = SessionBuilder::new()
        .known_nodes(nodes)
        // As the guide advises: otherwise a frozen node is noticed after up to a minute.
        .keepalive_interval(Duration::from_secs(2))
        .keepalive_timeout(Duration::from_secs(3))
        .default_execution_profile_handle(profile.into_handle());
    Ok(builder.build().await?)
}
