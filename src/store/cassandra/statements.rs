//! The statements of the store, prepared.

use scylla::client::session::Session;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::classify::classify_preparation;
use super::execution_profile::{TRY_TIMEOUT, Terms};
use super::settings::{LOCK_TABLES, SIGHTINGS};
use crate::options::Consistency;
use crate::protocol::row_name;
use crate::store::{DatabaseError, HOSTS_PER_PAGE, Identifier};

/// The number of rows on a page of the whole table: few enough that no replica is busy with it for
/// long.
const ROWS_PER_PAGE: i32 = 500;

/// The statements on the lock table.
pub(super) struct RowStatements {
    pub(super) insert: PreparedStatement,
    /// Inserts of two rows.
    pub(super) insert_batch: Batch,
    pub(super) delete: PreparedStatement,
    /// Deletes of two rows, and of three.
    pub(super) delete_batches: [Batch; 2],
    /// Deletes of two rows, and a write of what the release tells those that wait.
    pub(super) release_batch: Batch,
    pub(super) sweep: SweepStatements,
    pub(super) read_object: PreparedStatement,
    /// The same with the times of each row.
    pub(super) inspect: PreparedStatement,
    /// Rows of many objects with their times, page by page.
    pub(super) read_part: PreparedStatement,
    /// The same as one replica has it.
    pub(super) glance: PreparedStatement,
    pub(super) read_contender: PreparedStatement,
    pub(super) read_entering: PreparedStatement,
    pub(super) read_stamps: PreparedStatement,
    pub(super) read_fence: PreparedStatement,
    pub(super) write_fence: PreparedStatement,
}

impl RowStatements {
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &Identifier,
        table: &Identifier,
        consistency: &Consistency,
    ) -> Result<Self, DatabaseError> {
        let terms = Terms::new(session, consistency);
        let prepare = async |text: String| prepare(session, &terms, text).await;
        let table = format!("\"{keyspace}\".\"{table}\"");
        let columns = "row_name, host, client, slot, round, mode, max_holders, ticket, owner, why, \
                       held_since";
        let of_contender = "host = ? AND client = ? AND slot = ?";
        let last_release = "released_client, released_round, handoff_micros, \
                            WRITETIME(released_round) AS released_stamp";
        let read =
            format!("SELECT {columns}, {last_release}, mark FROM {table} WHERE object_name = ?");
        // A row is written whole, so one column tells the times of all.
        let times = "WRITETIME(round) AS stamp, TTL(round) AS ttl_seconds";
        let inspect = format!("SELECT object_name, {columns}, {times} FROM {table}");

        let [entering, tickets] = [row_name::ENTERING, row_name::TICKETS];
        let all_rows = format!("row_name IN ('{entering}', '{tickets}', '{}')", row_name::REVOKED);

        // Rows are written whole, and a write never names `fence`: a null would be a tombstone on
        // it.
        let insert = prepare(format!(
            "INSERT INTO {table} (object_name, {columns}, since) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
        ))
        .await?;
        // By the full primary key: nothing else of the object may be deleted, but by a sweep.
        let delete = prepare(format!(
            "DELETE FROM {table} USING TIMESTAMP ? \
             WHERE object_name = ? AND row_name = ? AND {of_contender}"
        ))
        .await?;
        let write_last_release = prepare(format!(
            "UPDATE {table} USING TIMESTAMP ? AND TTL ? \
             SET released_client = ?, released_round = ?, handoff_micros = ? WHERE object_name = ?"
        ))
        .await?;
        let release = vec![delete.clone(), delete.clone(), write_last_release];
        let mut glance = prepare(read.clone()).await?;
        glance.set_consistency(terms.one_replica);
        let of_part = "token(object_name) > ? AND token(object_name) <= ?";
        let mut read_part = prepare(format!("{inspect} WHERE {of_part}")).await?;
        read_part.set_page_size(ROWS_PER_PAGE);
        Ok(RowStatements {
            glance,
            insert_batch: batch(&terms, vec![insert.clone(); 2]),
            insert,
            delete_batches: [2, 3].map(|rows| batch(&terms, vec![delete.clone(); rows])),
            release_batch: batch(&terms, release),
            sweep: SweepStatements::prepare(session, &terms, &table).await?,
            delete,
            read_object: prepare(read.clone()).await?,
            inspect: prepare(format!("{inspect} WHERE object_name = ?")).await?,
            read_part,
            read_contender: prepare(format!("{read} AND {all_rows} AND {of_contender}")).await?,
            read_entering: prepare(format!(
                "{read} AND row_name = '{entering}' AND {of_contender}"
            ))
            .await?,
            read_stamps: prepare(format!(
                "SELECT row_name, round, WRITETIME(round) FROM {table} \
                 WHERE object_name = ? AND {all_rows} AND {of_contender}"
            ))
            .await?,
            // Distinct, or it would return the fence once for each row of the partition.
            read_fence: prepare(format!(
                "SELECT DISTINCT object_name, fence FROM {table} WHERE object_name = ?"
            ))
            .await?,
            // With a TTL of its own, or it would expire with the rows, by the table's default.
            write_fence: prepare(format!(
                "UPDATE {table} USING TIMESTAMP ? AND TTL ? SET fence = ? WHERE object_name = ?"
            ))
            .await?,
        })
    }
}

/// The statements of a sweep.
pub(super) struct SweepStatements {
    pub(super) mark: PreparedStatement,
    /// Range deletes: of the `entering::` rows, and of the `tickets::` rows.
    pub(super) deletes: Batch,
}

impl SweepStatements {
    async fn prepare(session: &Session, terms: &Terms, table: &str) -> Result<Self, DatabaseError> {
        let prepare = async |text: String| prepare(session, terms, text).await;
        // By the table's default it would expire with the rows. A TTL of 0 is none: a client may
        // stop for any time between the mark and the deletes.
        let mark = prepare(format!(
            "UPDATE {table} USING TIMESTAMP ? AND TTL 0 SET mark = ? WHERE object_name = ?"
        ));
        let mark = mark.await?;
        let delete = async |row_name: &str| {
            let delete = format!("DELETE FROM {table} USING TIMESTAMP ? WHERE object_name = ?");
            prepare(format!("{delete} AND row_name = '{row_name}'")).await
        };
        let deletes = vec![delete(row_name::ENTERING).await?, delete(row_name::TICKETS).await?];
        Ok(SweepStatements { mark, deletes: batch(terms, deletes) })
    }
}

/// Reads a mark with its write stamp. Only repairs need it, so no client prepares it before.
pub(super) async fn read_mark(
    session: &Session,
    keyspace: &Identifier,
    table: &Identifier,
    consistency: &Consistency,
) -> Result<PreparedStatement, DatabaseError> {
    // A partition with only a static part is one row, too.
    let select = format!(
        "SELECT mark, WRITETIME(mark) FROM \"{keyspace}\".\"{table}\" WHERE object_name = ? LIMIT 1"
    );
    prepare(session, &Terms::new(session, consistency), select).await
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
    pub(super) sightings: Option<SightingStatements>,
}

/// The statements that write and read when hosts were seen.
pub(super) struct SightingStatements {
    pub(super) write: PreparedStatement,
    /// Since when sightings are written.
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
        let prepare = async |text: String| prepare(session, &terms, text).await;
        let table = format!("\"{keyspace}\".\"lock_hosts\"");
        let seen_at = if hosts_are_seen { ", seen_at" } else { "" };
        let read = format!(
            "SELECT host_name, number, added_at, removed_at, WRITETIME(number){seen_at} \
             FROM {table} WHERE registry = ?"
        );
        let read_host = format!("{read} AND host_name = ?");
        let read_hosts = format!("{read} AND host_name > ? LIMIT {HOSTS_PER_PAGE}");
        // Distinct, or it would return `next` once for each host.
        let read_next = format!("SELECT DISTINCT registry, next FROM {table} WHERE registry = ?");
        let raise_next =
            format!("UPDATE {table} USING TIMESTAMP ? SET next = ? WHERE registry = ?");
        let write_host = format!(
            "INSERT INTO {table} (registry, host_name, number, added_at, removed_at) \
             VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        );
        // Writes only its own cell, so that it can't undo a removal; and no row marker, so that it
        // makes no row either.
        let write_sighting = format!(
            "UPDATE {table} USING TIMESTAMP ? SET seen_at = ? WHERE registry = ? AND host_name = ?"
        );
        let read_begin = format!(
            "SELECT added_at FROM {table} WHERE registry = '{LOCK_TABLES}' AND \
             host_name = '{SIGHTINGS}'"
        );
        let sightings = if hosts_are_seen {
            let (write, read_begin) = (prepare(write_sighting).await?, prepare(read_begin).await?);
            Some(SightingStatements { write, read_begin })
        } else {
            None
        };
        let read_host = prepare(read_host).await?;
        let read_host_nearby = consistency
            .datacenter()
            .map(|_| Terms::new(session, consistency).apply(read_host.clone()));
        Ok(RegistryStatements {
            read_host,
            read_host_nearby,
            read_hosts: prepare(read_hosts).await?,
            read_next: prepare(read_next).await?,
            raise_next: prepare(raise_next).await?,
            write_host: prepare(write_host).await?,
            sightings,
        })
    }
}

pub(super) async fn prepare(
    session: &Session,
    terms: &Terms,
    text: String,
) -> Result<PreparedStatement, DatabaseError> {
    let statement = session.prepare(text).await;
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
