//! A lock table on Apache Cassandra or ScyllaDB.

mod catalog;
mod classify;
mod codec;
mod cql;
mod execution_profile;
mod login;
mod nodes;
mod peers;
mod settings;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use uuid::Uuid;

pub(crate) use self::catalog::{Catalog, Column, Dialect, KeyspaceFacts, Rights, TableFacts};
use self::classify::classify;
use self::codec::{
    claim_values, contender_key, deletions, fence, fence_values, front_keys, host_values, hosts,
    last_release_values, last_seen_values, mark, mark_values, next, revocation_values, row_stamps,
    seen_since, stored_rows, swept_ranges, timed_rows, warns_of_dead_rows,
};
pub(crate) use self::cql::Cql;
use self::login::LoginWatch;
pub(crate) use self::nodes::{Coverage, Nodes};
use self::peers::{PeerStatements, peer, peer_values};
pub(crate) use self::settings::{Recorded, SettingsRecord, forget_settings_cql};
use self::statements::{RegistryStatements, RowStatements, read_mark};
use super::{
    Cursor, HostRow, HostTable, Identifier, LockRows, NodeProbe, Page, Part, PeerRow, PeerTable,
    RowStamp, StoreFuture, StoredMark, Testimonies, TimedRow,
};
use crate::core::bakery::{Change, ContenderId, LastRelease, Read, Seen, StoredRow, Write};
use crate::options::Consistency;
use crate::store::{DatabaseError, Outcome};

/// Preparing asks every node, and the driver waits for each without a limit of its own.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the time that a host was seen can't be written to a registry that an earlier version made.
const NOT_SEEN: &str = "lock_hosts has no column seen_at: run `lock-hosts init`";

/// Why there are no peers: an earlier version made the keyspace, or the store has no use for them.
const NO_PEERS: &str =
    "there was no table lock_peers for this client: run `lock-hosts init`, and build it again";

/// The one partition of the registry.
const REGISTRY: &str = "hosts";

/// What an earlier version did not make: whether it is there, and whether a store has a use for it.
/// Without it, only its own feature is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    /// When hosts were seen, in the registry.
    pub(crate) last_seen: bool,
    /// The table of peers.
    pub(crate) peers: bool,
}

/// The rows of one lock table, and the other tables in the same keyspace.
pub(crate) struct CassandraStore {
    session: Arc<Session>,
    keyspace: Identifier,
    lock_table: Identifier,
    consistency: Consistency,
    rows: RowStatements,
    registry: RegistryStatements,
    /// `None` if there is no table of peers, or no use for it.
    peers: Option<PeerStatements>,
    login: LoginWatch,
}

impl CassandraStore {
    /// Waits until all nodes know the tables, and prepares the statements.
    pub(crate) async fn prepare(
        session: Arc<Session>,
        keyspace: &Identifier,
        lock_table: &Identifier,
        consistency: &Consistency,
        extras: Extras,
    ) -> Result<Self, DatabaseError> {
        let preparation = async {
            // A node that does not know a new table yet would refuse its statements for good.
            Catalog::new(&session).settle().await;
            let rows = RowStatements::prepare(&session, keyspace, lock_table, consistency).await?;
            let registry =
                RegistryStatements::prepare(&session, keyspace, consistency, extras.last_seen);
            let registry = registry.await?;
            let peers = if extras.peers {
                Some(PeerStatements::prepare(&session, keyspace, consistency).await?)
            } else {
                None
            };
            Ok((rows, registry, peers))
        };
        let prepared = tokio::time::timeout(PREPARATION_TIMEOUT, preparation).await;
        let (rows, registry, peers) = prepared.unwrap_or_else(|_| {
            let slow = "preparing the statements took too long: a node does not answer";
            Err(DatabaseError::new(Outcome::NotApplied, slow))
        })?;
        let (keyspace, lock_table) = (keyspace.clone(), lock_table.clone());
        let consistency = consistency.clone();
        let login = LoginWatch::default();
        Ok(CassandraStore {
            session,
            keyspace,
            lock_table,
            consistency,
            rows,
            registry,
            peers,
            login,
        })
    }

    /// The present id of the lock table; `None` if the table is gone. If the id has changed, the
    /// table was dropped and made again, and the rows of all holders went with it.
    pub(crate) async fn lock_table_id(&self) -> Result<Option<Uuid>, DatabaseError> {
        Catalog::new(&self.session).table_id(&self.keyspace, &self.lock_table).await
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, DatabaseError> {
        self.answered(self.session.execute_unpaged(statement, values).await)
    }

    /// The answer of a request.
    fn answered<T>(&self, result: Result<T, ExecutionError>) -> Result<T, DatabaseError> {
        let answer = result.map_err(|error| classify(&error));
        self.login.seen(&answer);
        answer
    }

    fn hosts(&self, result: QueryResult) -> Result<Vec<HostRow>, DatabaseError> {
        hosts(result, self.registry.last_seen.is_some())
    }

    fn peers(&self) -> Result<&PeerStatements, DatabaseError> {
        self.peers.as_ref().ok_or_else(|| DatabaseError::permanent(NO_PEERS))
    }

    /// Deletes the rows of a contender as a unit, with what the release reports to waiters.
    async fn delete(
        &self,
        object: &str,
        rows: Vec<impl SerializeRow>,
        last_release: Option<LastRelease>,
    ) -> Result<(), DatabaseError> {
        let statements = &self.rows;
        let answer = match (rows.as_slice(), last_release) {
            ([row], None) => return self.execute(&statements.delete, row).await.map(drop),
            ([row], Some(last)) => {
                let values = (row, last_release_values(object, last));
                self.session.batch(&statements.release_batch, values).await
            }
            // One that was asked to leave reports nothing.
            _ => self.session.batch(&statements.delete_batch, rows).await,
        };
        self.answered(answer).map(drop)
    }
}

impl LockRows for CassandraStore {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        let statements = &self.rows;
        Box::pin(async move {
            match &write.change {
                Change::Put { claim, ttl_seconds } => {
                    let row = claim_values(object, claim, write.stamp, *ttl_seconds);
                    self.execute(&statements.insert, row).await.map(drop)
                }
                Change::Revoke { revocation, ttl_seconds } => {
                    let row = revocation_values(object, revocation, write.stamp, *ttl_seconds);
                    self.execute(&statements.insert, row).await.map(drop)
                }
                Change::Delete { contender, last_release, .. } => {
                    let names = write.change.deleted_rows();
                    let rows = deletions(object, *contender, &names, write.stamp);
                    self.delete(object, rows, *last_release).await
                }
                Change::Mark => {
                    let values = mark_values(object, write.stamp);
                    self.execute(&statements.mark, values).await.map(drop)
                }
                Change::Sweep { spared } => {
                    let ranges = swept_ranges(object, spared, write.stamp);
                    let batch = statements.sweep_batch(ranges.len());
                    self.answered(self.session.batch(&batch, ranges).await).map(drop)
                }
            }
        })
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        let statements = &self.rows;
        Box::pin(async move {
            let result = match read {
                Read::Object => self.execute(&statements.read_object, (object,)).await,
                Read::Contender(id) => {
                    self.execute(&statements.read_contender, contender_key(object, id)).await
                }
                Read::Entering(id) => {
                    self.execute(&statements.read_entering, contender_key(object, id)).await
                }
                Read::Front { own, ahead } => {
                    self.execute(&statements.read_front, front_keys(object, own, &ahead)).await
                }
            }?;
            let many_dead = warns_of_dead_rows(&result);
            let (rows, statics) = stored_rows(result)?;
            Ok(Seen { rows, statics, many_dead })
        })
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        Box::pin(async move {
            let rows = timed_rows(self.execute(&self.rows.read_with_times, (object,)).await?)?;
            Ok(rows.into_iter().map(|(_, row)| row).collect())
        })
    }

    fn parts(&self) -> Vec<Part> {
        let state = self.session.get_cluster_state();
        Part::of_ring(state.replica_locator().ring().iter().map(|(token, _)| token.value()))
    }

    fn read_page<'a>(&'a self, part: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let from = from.map(|cursor| PagingState::new_from_raw_bytes(Arc::clone(&cursor.0)));
            let tokens = (part.after, part.up_to);
            let page = self.session.execute_single_page(
                &self.rows.read_part,
                tokens,
                from.unwrap_or_default(),
            );
            let (result, next) = self.answered(page.await)?;
            let next = match next {
                PagingStateResponse::HasMorePages { state } => state.as_bytes_slice().cloned(),
                PagingStateResponse::NoMorePages => None,
            };
            Ok(Page { rows: timed_rows(result)?, next: next.map(Cursor) })
        })
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        Box::pin(async move {
            let (rows, _) =
                stored_rows(self.execute(&self.rows.read_one_replica, (object,)).await?)?;
            Ok(rows)
        })
    }

    fn read_one_replica_of_each<'a>(
        &'a self,
        objects: &'a [Arc<str>],
    ) -> StoreFuture<'a, Vec<(String, StoredRow)>> {
        Box::pin(async move {
            if let [object] = objects {
                // The driver sends it to a replica.
                let rows = self.read_one_replica(object).await?;
                return Ok(rows.into_iter().map(|row| (object.to_string(), row)).collect());
            }
            let names: Vec<_> = objects.iter().map(|name| &**name).collect();
            let read = self.execute(&self.rows.read_one_replica_of_each, (names,));
            let rows = timed_rows(read.await?)?;
            Ok(rows.into_iter().map(|(object, timed)| (object, timed.row)).collect())
        })
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        Box::pin(async move {
            let key = contender_key(object, contender);
            row_stamps(self.execute(&self.rows.read_stamps, key).await?)
        })
    }

    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        Box::pin(async move {
            let (keyspace, table) = (&self.keyspace, &self.lock_table);
            let read = read_mark(&self.session, keyspace, table, &self.consistency).await?;
            mark(self.execute(&read, (object,)).await?)
        })
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        Box::pin(async move { fence(self.execute(&self.rows.read_fence, (object,)).await?) })
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let values = fence_values(object, value);
            self.execute(&self.rows.write_fence, values).await.map(drop)
        })
    }
}

impl HostTable for CassandraStore {
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async move {
            let result = self.execute(&self.registry.read_host, (REGISTRY, name)).await?;
            Ok(self.hosts(result)?.into_iter().next())
        })
    }

    fn read_host_nearby<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async move {
            let Some(read) = &self.registry.read_host_nearby else {
                return Ok(None);
            };
            Ok(self.hosts(self.execute(read, (REGISTRY, name)).await?)?.into_iter().next())
        })
    }

    fn read_hosts<'a>(&'a self, after: &'a str) -> StoreFuture<'a, Vec<HostRow>> {
        Box::pin(async move {
            self.hosts(self.execute(&self.registry.read_hosts, (REGISTRY, after)).await?)
        })
    }

    fn read_next(&self) -> StoreFuture<'_, i32> {
        Box::pin(async move { next(self.execute(&self.registry.read_next, (REGISTRY,)).await?) })
    }

    fn raise_next(&self, next: i32) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let values = (i64::from(next), next, REGISTRY);
            self.execute(&self.registry.raise_next, values).await.map(drop)
        })
    }

    fn write_host<'a>(&'a self, host: &'a HostRow) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let values = host_values(REGISTRY, host);
            self.execute(&self.registry.write_host, values).await.map(drop)
        })
    }

    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>> {
        Box::pin(async move {
            let Some(last_seen) = &self.registry.last_seen else {
                return Ok(None);
            };
            seen_since(self.execute(&last_seen.read_begin, ()).await?).map(Some)
        })
    }

    fn write_last_seen<'a>(&'a self, name: &'a str, at_micros: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let Some(last_seen) = &self.registry.last_seen else {
                return Err(DatabaseError::permanent(NOT_SEEN));
            };
            let values = last_seen_values(REGISTRY, name, at_micros);
            self.execute(&last_seen.write, values).await.map(drop)
        })
    }
}

impl PeerTable for CassandraStore {
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let values = peer_values(peer, ttl_seconds);
            self.execute(&self.peers()?.write, values).await.map(drop)
        })
    }

    fn read_peer(&self, client: Uuid) -> StoreFuture<'_, Option<PeerRow>> {
        Box::pin(async move { peer(client, self.execute(&self.peers()?.read, (client,)).await?) })
    }

    fn delete_peer(&self, client: Uuid, stamp: i64) -> StoreFuture<'_, ()> {
        Box::pin(
            async move { self.execute(&self.peers()?.delete, (stamp, client)).await.map(drop) },
        )
    }
}

impl NodeProbe for CassandraStore {
    fn probe_nodes(&self) -> Testimonies<'_> {
        Box::pin(async move {
            let datacenter = self.consistency.datacenter();
            let nodes = Nodes::new(&self.session);
            nodes.probe_table(&self.keyspace, &self.lock_table, datacenter).await
        })
    }
}

impl fmt::Debug for CassandraStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraStore")
            .field("keyspace", &self.keyspace)
            .field("lock_table", &self.lock_table)
            .finish_non_exhaustive()
    }
}
