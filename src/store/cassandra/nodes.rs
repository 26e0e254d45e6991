//! What each node of a cluster reports about itself.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement;
use scylla::statement::unprepared::Statement;
use tracing::debug;
use uuid::Uuid;

use super::catalog::Dialect;
use super::classify::classify;
use super::codec::decode;
use super::cql::{Cql, Template, query};
use crate::clock::{Clock, SystemClock};
use crate::store::{
    ClockReading, DatabaseError, Identifier, Node, NodeReport, Outcome, PROBE_TIMEOUT,
    at_the_same_time, best_reading,
};

/// How long one node may take to answer a question about itself.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How well answering nodes cover the replicas of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// The number of ranges of the ring.
    pub(crate) ranges: usize,
    /// The number of ranges with fewer answering replicas than required.
    pub(crate) short: usize,
}

/// Asks nodes through a session.
#[derive(Debug)]
pub(crate) struct Nodes<'a> {
    session: &'a Session,
}

impl<'a> Nodes<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Nodes { session }
    }

    /// All nodes that the driver knows, ordered by address.
    pub(crate) fn all(&self) -> Vec<Node> {
        let state = self.session.get_cluster_state();
        let node = |node: &std::sync::Arc<scylla::cluster::Node>| Node {
            host_id: node.host_id,
            address: node.address.to_string(),
            datacenter: node.datacenter.clone().unwrap_or_default(),
            connected: node.is_connected(),
        };
        let mut nodes: Vec<_> = state.get_nodes_info().iter().map(node).collect();
        nodes.sort_by(|a, b| a.address.cmp(&b.address));
        nodes
    }

    /// Refreshes the driver's metadata of nodes and keyspaces.
    pub(crate) async fn refresh(&self) -> Result<(), DatabaseError> {
        let refreshed = self.session.refresh_metadata().await;
        refreshed.map_err(|error| DatabaseError::new(Outcome::NotApplied, error))
    }

    /// Compares a node's clock with ours, as exactly as a few readings allow.
    pub(crate) async fn clock(&self, node: &Node) -> Result<ClockReading, DatabaseError> {
        best_reading(TIMEOUT, silent(), || self.clock_once(node)).await
    }

    /// Compares the clocks of one data centre or of all with ours, all at the same time: it takes
    /// as many round trips as readings. A node that does not answer soon is left out.
    pub(crate) async fn probe_clocks(&self, datacenter: Option<&str>) -> Vec<(Node, ClockReading)> {
        let readings = self.probe(datacenter, |node| async move { self.clock_soon(&node).await });
        let told = readings.await.into_iter();
        told.filter_map(|(node, reading)| Some((node, reading?))).collect()
    }

    /// Asks the nodes of one data centre or of all for their clocks and for a table, all at the
    /// same time. Each answers for itself, as far as it knows the schema.
    pub(crate) async fn probe_table(
        &self,
        keyspace: &Identifier,
        table: &Identifier,
        datacenter: Option<&str>,
    ) -> Vec<(Node, Option<NodeReport>)> {
        let testimonies = self.probe(datacenter, |node| async move {
            let (clock, lock_table) =
                tokio::join!(self.clock_soon(&node), self.table_id(&node, keyspace, table));
            Ok(NodeReport { clock: clock?, lock_table: lock_table? })
        });
        testimonies.await
    }

    /// Asks nodes a question in passing, all at the same time. `None` is the answer of a node that
    /// fails, or does not answer soon.
    async fn probe<T, F>(
        &self,
        datacenter: Option<&str>,
        ask: impl Fn(Node) -> F,
    ) -> Vec<(Node, Option<T>)>
    where
        F: Future<Output = Result<T, DatabaseError>>,
    {
        let counts = |node: &Node| datacenter.is_none_or(|name| node.datacenter == name);
        let nodes = self.all().into_iter().filter(|node| node.connected && counts(node));
        let answers = nodes.map(|node| {
            let answer = ask(node.clone());
            async move {
                let failed = |error: &_| debug!(node = node.address, ?error, "no answer");
                let answer = answer.await.inspect_err(failed).ok();
                (node, answer)
            }
        });
        at_the_same_time(answers).await
    }

    /// The settings of a node that say what becomes of acknowledged writes, and others. What is
    /// not set, or unknown to this version of the database, is missing.
    pub(crate) async fn settings(
        &self,
        node: &Node,
        dialect: Dialect,
    ) -> Result<BTreeMap<String, String>, DatabaseError> {
        let template = match dialect {
            Dialect::Cassandra => Template::ReadNodeSettings,
            Dialect::Scylla => Template::ReadNodeConfig,
        };
        let result = query(self.session, pinned(node, template.fill(&[])), ()).await;
        let rows = decode::<(String, Option<String>)>(result.map_err(|error| classify(&error))?)?;
        let set = |(name, value): (String, Option<String>)| {
            Some((name, value?.trim_matches('"').to_owned()))
        };
        Ok(rows.into_iter().filter_map(set).collect())
    }

    /// Whether each range of the table has `required` replicas in `answering`, in one data centre
    /// or in all. `None` if the driver does not know where the replicas are, as with tablets.
    pub(crate) fn coverage(
        &self,
        keyspace: &Identifier,
        table: &Identifier,
        datacenter: Option<&str>,
        required: u32,
        answering: &BTreeSet<Uuid>,
    ) -> Option<Coverage> {
        let state = self.session.get_cluster_state();
        if state.get_keyspace(keyspace.as_str())?.tablet_based {
            return None;
        }
        let tokens = state.replica_locator().ring().iter().map(|(token, _)| *token);
        let mut coverage = Coverage { ranges: 0, short: 0 };
        for token in tokens {
            let replicas = state.get_token_endpoints(keyspace.as_str(), table.as_str(), token);
            let counted = replicas.iter().filter(|(node, _)| {
                let here = datacenter.is_none_or(|name| node.datacenter.as_deref() == Some(name));
                here && answering.contains(&node.host_id)
            });
            coverage.ranges += 1;
            coverage.short += usize::from(counted.count() < required as usize);
        }
        (coverage.ranges > 0).then_some(coverage)
    }

    async fn clock_soon(&self, node: &Node) -> Result<ClockReading, DatabaseError> {
        best_reading(PROBE_TIMEOUT, silent(), || self.clock_once(node)).await
    }

    async fn clock_once(&self, node: &Node) -> Result<ClockReading, DatabaseError> {
        let read = pinned(node, Template::ReadClock.fill(&[]));
        let clock = SystemClock::new();
        let asked_at = clock.unix_micros();
        let result = query(self.session, read, ()).await;
        let round_trip = i64::try_from(clock.elapsed().as_micros()).unwrap_or(i64::MAX);
        let rows = decode::<(i64,)>(result.map_err(|error| classify(&error))?)?;
        let (millis,) = *rows.first().ok_or_else(|| {
            DatabaseError::permanent(format!("node {} does not tell the time", node.address))
        })?;
        // The server truncates to milliseconds, so on average it was half a millisecond later.
        let offset_micros = millis * 1000 + 500 - (asked_at + round_trip / 2);
        Ok(ClockReading { offset_micros, error_micros: round_trip / 2 + 500 })
    }

    /// The id of a table as one node knows it, if it does.
    async fn table_id(
        &self,
        node: &Node,
        keyspace: &Identifier,
        table: &Identifier,
    ) -> Result<Option<Uuid>, DatabaseError> {
        let names = [("keyspace", keyspace.as_str()), ("table", table.as_str())];
        let mut statement = pinned(node, Template::ReadTableIdOfNode.fill(&names));
        statement.set_request_timeout(Some(PROBE_TIMEOUT));
        let result = query(self.session, statement, ()).await;
        let rows = decode::<(Uuid,)>(result.map_err(|error| classify(&error))?)?;
        Ok(rows.into_iter().next().map(|(id,)| id))
    }
}

fn silent() -> DatabaseError {
    DatabaseError::new(Outcome::NotApplied, "the node does not answer in time")
}

/// A statement that the given node answers, or no node.
fn pinned(node: &Node, cql: Cql) -> Statement {
    let target = NodeIdentifier::HostId(node.host_id);
    let mut statement = cql.unprepared();
    statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(target, None)));
    statement.set_retry_policy(Some(std::sync::Arc::new(FallthroughRetryPolicy::new())));
    statement.set_consistency(statement::Consistency::One);
    statement.set_request_timeout(Some(TIMEOUT));
    statement
}
