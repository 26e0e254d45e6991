//! The rows that a contender wrote in one round.

use tracing::debug;

use crate::context::ClientContext;
use crate::context::retry::until_answered;
use crate::core::bakery::{Change, ContenderId, Write, row_name};
use crate::error::TableError;
use crate::store::{DatabaseError, RowStamp};

/// The rows that another contender wrote in one round.
pub(super) struct RoundRows<'a> {
    pub(super) shared: &'a ClientContext,
    pub(super) object: &'a str,
    pub(super) contender: ContenderId,
    pub(super) round: i64,
}

impl RoundRows<'_> {
    /// The newest stamp of these rows; `None` if the round is over.
    pub(super) fn newest(&self, stamps: &[RowStamp]) -> Option<i64> {
        let own = stamps.iter().find(|row| row.row_name == row_name::ENTERING);
        own.filter(|row| row.round == self.round).map(|row| row.stamp)
    }

    /// The stamps of all rows of the contender.
    pub(super) async fn stamps(
        &self,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<Vec<RowStamp>, TableError> {
        let read = || self.shared.store.rows.read_stamps(self.object, self.contender);
        until_answered(read, last_error).await.map_err(|cause| self.refused(cause))
    }

    /// Deletes the rows, with a stamp above all of them, unless the round is over. Returns whether
    /// it was not.
    pub(super) async fn delete(
        &self,
        stamp_above: impl FnOnce(i64) -> i64,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<bool, TableError> {
        let stamps = self.stamps(last_error).await?;
        let Some(newest) = self.newest(&stamps) else { return Ok(false) };
        let contender = self.contender;
        // It says nothing of how the queue moves.
        let last_release = None;
        let change = Change::Delete { contender, revoked: false, last_release };
        self.write(Write { stamp: stamp_above(newest), change }, last_error).await?;
        debug!(object = self.object, %contender, "rows deleted by force");
        Ok(true)
    }

    pub(super) async fn write(
        &self,
        write: Write,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<(), TableError> {
        let write = || self.shared.store.rows.write(self.object, &write);
        until_answered(write, last_error).await.map_err(|cause| self.refused(cause))
    }

    fn refused(&self, cause: DatabaseError) -> TableError {
        TableError::Refused { name: Some(self.object.to_owned()), cause }
    }
}
