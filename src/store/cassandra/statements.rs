//! The statements of the store, prepared.

use scylla::client::session::Session;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::classify::classify_preparation;
use super::cql::{self, Cql, Template};
use super::execution_profile::{TRY_TIMEOUT, Terms};
use crate::options::Consistency;
use crate::store::{DatabaseError, Identifier};

/// The number of rows on a page of the whole table: few enough that no replica is busy with it for
/// long.
const ROWS_PER_PAGE: i32 = 500;

/// The statements on the lock table.
pub(super) struct RowStatements {
    pub(super) insert: PreparedStatement,
    pub(super) delete: PreparedStatement,
    /// Deletes of two rows.
    pub(super) delete_batch: Batch,
    /// A delete of a row, and a write of what the release reports to waiters.
    pub(super) release_batch: Batch,
    pub(super) mark: PreparedStatement,
    sweep: PreparedStatement,
    pub(super) read_object: PreparedStatement,
    /// The same with the times of each row.
    pub(super) read_with_times: PreparedStatement,
    /// Rows of many objects with their times, page by page.
    pub(super) read_part: PreparedStatement,
    /// The same as one replica has it.
    pub(super) read_one_replica: PreparedStatement,
    /// The same of several objects.
    pub(super) read_one_replica_of_each: PreparedStatement,
    pub(super) read_contender: PreparedStatement,
    pub(super) read_entering: PreparedStatement,
    pub(super) read_front: PreparedStatement,
    pub(super) read_stamps: PreparedStatement,
    pub(super) read_fence: PreparedStatement,
    pub(super) write_fence: PreparedStatement,
    terms: Terms,
}

impl RowStatements {
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &Identifier,
        table: &Identifier,
        consistency: &Consistency,
    ) -> Result<Self, DatabaseError> {
        let terms = Terms::new(session, consistency);
        let names = [("keyspace", keyspace.as_str()), ("table", table.as_str())];
        let prepare = async |it: Template| prepare(session, &terms, it.fill(&names)).await;
        let insert = prepare(Template::InsertRow).await?;
        let delete = prepare(Template::DeleteRow).await?;
        let write_last_release = prepare(Template::WriteLastRelease).await?;
        let read_object = prepare(Template::ReadObject).await?;
        let mut read_one_replica = read_object.clone();
        read_one_replica.set_consistency(terms.one_replica);
        let mut read_one_replica_of_each = prepare(Template::ReadEach).await?;
        read_one_replica_of_each.set_consistency(terms.one_replica);
        let mut read_part = prepare(Template::ReadPart).await?;
        read_part.set_page_size(ROWS_PER_PAGE);
        Ok(RowStatements {
            read_one_replica,
            read_one_replica_of_each,
            insert,
            delete_batch: batch(&terms, vec![delete.clone(); 2]),
            release_batch: batch(&terms, vec![delete.clone(), write_last_release]),
            mark: prepare(Template::WriteMark).await?,
            sweep: prepare(Template::SweepRange).await?,
            delete,
            read_object,
            read_with_times: prepare(Template::ReadWithTimes).await?,
            read_part,
            read_contender: prepare(Template::ReadContender).await?,
            read_entering: prepare(Template::ReadEntering).await?,
            read_front: prepare(Template::ReadFront).await?,
            read_stamps: prepare(Template::ReadStamps).await?,
            read_fence: prepare(Template::ReadFence).await?,
            write_fence: prepare(Template::WriteFence).await?,
            terms,
        })
    }

    /// A batch that deletes this many ranges.
    pub(super) fn sweep_batch(&self, ranges: usize) -> Batch {
        batch(&self.terms, vec![self.sweep.clone(); ranges])
    }
}

/// Reads a mark with its write stamp. Only repairs need it, so no client prepares it before.
pub(super) async fn read_mark(
    session: &Session,
    keyspace: &Identifier,
    table: &Identifier,
    consistency: &Consistency,
) -> Result<PreparedStatement, DatabaseError> {
    let names = [("keyspace", keyspace.as_str()), ("table", table.as_str())];
    prepare(session, &Terms::new(session, consistency), Template::ReadMark.fill(&names)).await
}

/// The statements on the registry of hosts. All but one use a quorum of all replicas: a number must
/// be unique in all data centres.
pub(super) struct RegistryStatements {
    pub(super) read_host: PreparedStatement,
    /// With the quorum of one data centre, if locks use that.
    pub(super) read_host_nearby: Option<PreparedStatement>,
    pub(super) read_hosts: PreparedStatement,
    pub(super) read_next: PreparedStatement,
    pub(super) raise_next: PreparedStatement,
    pub(super) write_host: PreparedStatement,
    /// `None` if a table of an earlier version has no column for them.
    pub(super) last_seen: Option<LastSeenStatements>,
}

/// The statements that write and read when hosts were seen.
pub(super) struct LastSeenStatements {
    pub(super) write: PreparedStatement,
    /// Since when hosts are seen.
    pub(super) read_begin: PreparedStatement,
}

impl RegistryStatements {
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &Identifier,
        consistency: &Consistency,
        hosts_are_seen: bool,
    ) -> Result<Self, DatabaseError> {
        let terms = Terms::new(session, &Consistency::Quorum);
        let names = [("keyspace", keyspace.as_str())];
        let prepare = async |it: Template| prepare(session, &terms, it.fill(&names)).await;
        let (read_host, read_hosts, last_seen) = if hosts_are_seen {
            let last_seen = LastSeenStatements {
                write: prepare(Template::WriteLastSeen).await?,
                read_begin: prepare(Template::ReadSeenSince).await?,
            };
            (Template::ReadHost, Template::ReadHosts, Some(last_seen))
        } else {
            (Template::ReadHostWithoutLastSeen, Template::ReadHostsWithoutLastSeen, None)
        };
        let read_host = prepare(read_host).await?;
        let read_host_nearby = consistency
            .datacenter()
            .map(|_| Terms::new(session, consistency).apply(read_host.clone()));
        Ok(RegistryStatements {
            read_host,
            read_host_nearby,
            read_hosts: prepare(read_hosts).await?,
            read_next: prepare(Template::ReadNext).await?,
            raise_next: prepare(Template::RaiseNext).await?,
            write_host: prepare(Template::WriteHost).await?,
            last_seen,
        })
    }
}

pub(super) async fn prepare(
    session: &Session,
    terms: &Terms,
    cql: Cql,
) -> Result<PreparedStatement, DatabaseError> {
    let statement = cql::prepare(session, cql).await;
    statement.map(|statement| terms.apply(statement)).map_err(|error| classify_preparation(&error))
}

/// Several statements as a unit. A batch inherits nothing from its statements, so
/// the terms are applied to it as well. It stays in one partition, so it needs no batch log: a
/// replica applies it whole.
fn batch(terms: &Terms, statements: Vec<PreparedStatement>) -> Batch {
    let statements = statements.into_iter().map(Into::into).collect();
    let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
    batch.set_execution_profile_handle(Some(terms.profile.clone()));
    batch.set_consistency(terms.consistency);
    batch.set_serial_consistency(Some(terms.serial_consistency));
    batch.set_request_timeout(Some(TRY_TIMEOUT));
    batch.set_is_idempotent(true);
    batch
}
