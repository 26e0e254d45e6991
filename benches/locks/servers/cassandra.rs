//! The cluster that sides on Cassandra share, and its variant of Paxos.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use cassandra_cluster::{ClusterOptions, CommitLog};
use common::cluster::{TestCluster, options};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use serde::Serialize;

use crate::arguments::Durability;

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

/// Connects to the given nodes, or starts three.
pub(crate) async fn open(nodes: &[String], durability: Durability) -> Result<TestCluster> {
    let commit_log = match durability {
        Durability::Usual => CommitLog::Periodic,
        Durability::Synced => CommitLog::Batch,
    };
    TestCluster::open(nodes, ClusterOptions { commit_log, ..options() }).await
}

/// The variants of Paxos to measure.
pub(crate) fn variants(cluster: &TestCluster) -> &'static [Paxos] {
    if cluster.is_own() { &[Paxos::V1, Paxos::V2] } else { &[Paxos::AsGiven] }
}

/// Switches all nodes to a variant while they run. Nothing else may run meanwhile: proposers of
/// different variants don't respect each other.
///
/// There is no setting to switch it in a table, but each node has it as a managed bean.
pub(crate) async fn switch(cluster: &TestCluster, paxos: Paxos) -> Result<()> {
    let value = match paxos {
        Paxos::V1 => "v1",
        Paxos::V2 => "v2",
        Paxos::AsGiven => return Ok(()),
    };
    let bean = "org.apache.cassandra.db:type=StorageProxy";
    let command = ["sjk", "mx", "-b", bean, "-f", "PaxosVariant", "--set", "--value", value];
    cluster.nodetool(&command).await?;
    for (node, setting) in settings(cluster, "paxos_variant").await? {
        if setting != value {
            bail!("node {node} still has paxos_variant {setting}");
        }
    }
    // The programs that switched the nodes took processor time and caches from them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}

/// A setting of each node, as it is now.
async fn settings(cluster: &TestCluster, name: &str) -> Result<Vec<(IpAddr, String)>> {
    let mut settings = Vec::new();
    for node in cluster.session().get_cluster_state().get_nodes_info() {
        let mut select = Statement::new("SELECT value FROM system_views.settings WHERE name = ?");
        let target = NodeIdentifier::Node(Arc::clone(node));
        let routing = SingleTargetLoadBalancingPolicy::new(target, None);
        select.set_load_balancing_policy(Some(routing));
        select.set_consistency(Consistency::One);
        let rows = cluster.session().query_unpaged(select, (name,)).await?.into_rows_result()?;
        let (value,) = rows.single_row::<(String,)>()?;
        settings.push((node.address.ip(), value));
    }
    Ok(settings)
}
