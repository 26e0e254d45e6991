//! What each node of a cluster reports about itself.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::task::Poll;
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
use crate::store::{ClockReading, DatabaseError, Identifier, Node, NodeReport, Outcome};

/// How long one node may take to answer a question about itself.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The number of readings of a clock; the fastest answer is the most exact one.
const CLOCK_READINGS: usize = 3;

/// How long all readings of a clock may take, and any other question asked in passing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

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
        best_reading(TIMEOUT, || self.clock_once(node)).await
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
        best_reading(PROBE_TIMEOUT, || self.clock_once(node)).await
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

/// The most exact of a few readings of a clock, as far as they come in time. If one fails, only
/// those before it count.
async fn best_reading<F>(
    limit: Duration,
    read: impl Fn() -> F,
) -> Result<ClockReading, DatabaseError>
where
    F: Future<Output = Result<ClockReading, DatabaseError>>,
{
    let mut best = Err(DatabaseError::new(Outcome::NotApplied, "the node does not answer in time"));
    let readings = async {
        for _ in 0..CLOCK_READINGS {
            let reading = read().await;
            let (failed, is_first) = (reading.is_err(), best.is_err());
            let error =
                |read: &Result<ClockReading, _>| read.as_ref().ok().map(|it| it.error_micros);
            if is_first || (!failed && error(&reading) < error(&best)) {
                best = reading;
            }
            if failed {
                break;
            }
        }
    };
    // Readings from before the limit are kept.
    let _ = tokio::time::timeout(limit, readings).await;
    best
}

/// Drives futures until all are done. Their results are in the order of the futures.
pub(crate) async fn at_the_same_time<T>(
    futures: impl Iterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    let mut runs: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, result) in &mut runs {
            if result.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *result = Some(output);
            }
        }
        let done = runs.iter().all(|(_, result)| result.is_some());
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    runs.into_iter().filter_map(|(_, result)| result).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The best of readings that take this long, in ms, and are as exact as that; `None` fails.
    async fn best_of(readings: &[Option<i64>]) -> Option<i64> {
        let next = std::cell::Cell::new(0);
        let read = || {
            let reading = readings.get(next.replace(next.get() + 1)).copied();
            async move {
                let Some(millis) = reading.expect("no more are asked for") else {
                    return Err(DatabaseError::new(Outcome::Unknown, "no answer"));
                };
                tokio::time::sleep(Duration::from_millis(millis.unsigned_abs())).await;
                Ok(ClockReading { offset_micros: 0, error_micros: millis * 1_000 })
            }
        };
        let best = best_reading(Duration::from_millis(100), read).await;
        best.ok().map(|reading| reading.error_micros / 1_000)
    }

    #[tokio::test(start_paused = true)]
    async fn most_exact_reading_counts() {
        assert_eq!(best_of(&[Some(50), Some(2), Some(30)]).await, Some(2));
        assert_eq!(best_of(&[Some(2), Some(50), Some(30)]).await, Some(2));
        assert_eq!(best_of(&[Some(50), None]).await, Some(50));
        assert_eq!(best_of(&[Some(50), Some(200)]).await, Some(50));
        assert_eq!(best_of(&[Some(200)]).await, None);
        assert_eq!(best_of(&[None]).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn parallel_queries_take_as_long_as_the_slowest() {
        let began = tokio::time::Instant::now();
        let waits = [30, 10, 20].map(|millis| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            millis
        });
        assert_eq!(at_the_same_time(waits.into_iter()).await, [30, 10, 20]);
        assert_eq!(began.elapsed(), Duration::from_millis(30));
    }
}
