//! The I/O that the state machine asks for: one operation at a time, each one try.

use std::sync::Arc;

use tracing::debug;

use super::sweeping;
use crate::core::bakery::{
    ContenderId, Input, Mode, OpId, Read, ReadFailure, Snapshot, Statics, Write, WriteOutcome,
};
use crate::engine::shared::Shared;
use crate::store::{DatabaseError, Outcome};

/// The answer of an operation.
pub(super) struct Answer {
    /// What it tells the contender.
    pub(super) input: Input,
    /// Why it failed, if it did.
    pub(super) error: Option<DatabaseError>,
    /// Whether a sweep may be of use, by what it met.
    pub(super) calls_for_sweep: bool,
}

/// One try of a write.
pub(super) async fn write(shared: Arc<Shared>, object: Arc<str>, op: OpId, write: Write) -> Answer {
    let result = shared.store.write(&object, &write).await;
    let outcome = result.as_ref().map_or_else(write_outcome, |()| WriteOutcome::Applied);
    if let (WriteOutcome::Unknown, Err(error)) = (outcome, &result) {
        debug!(?error, "whether a write is applied is unknown; it is made again");
    }
    Answer { input: Input::Written { op, outcome }, error: result.err(), calls_for_sweep: false }
}

/// One try of a read.
pub(super) async fn read(shared: Arc<Shared>, object: Arc<str>, op: OpId, read: Read) -> Answer {
    match shared.store.read(&object, read).await {
        Ok(seen) => {
            let calls_for_sweep = sweeping::is_called_for(&shared, read, &seen);
            let input = Input::Read { op, rows: Ok(seen.rows), statics: seen.statics };
            Answer { input, error: None, calls_for_sweep }
        }
        Err(error) => {
            let (rows, statics) = (Err(read_failure(&error)), Statics::default());
            let input = Input::Read { op, rows, statics };
            Answer { input, error: Some(error), calls_for_sweep: false }
        }
    }
}

/// A glance at the table for contenders that wait there until a place of this mode is released. One
/// that fails tells nothing.
pub(super) async fn glance(
    shared: Arc<Shared>,
    object: Arc<str>,
    (place, mode): (ContenderId, Mode),
) -> Vec<ContenderId> {
    let rows = shared.store.glance(&object).await.unwrap_or_default();
    Snapshot::of(&rows).conflicting(place, mode)
}

fn write_outcome(error: &DatabaseError) -> WriteOutcome {
    match error.outcome() {
        Outcome::Applied => WriteOutcome::Applied,
        Outcome::NotApplied if error.is_permanent() => WriteOutcome::Rejected,
        Outcome::NotApplied => WriteOutcome::NotApplied,
        Outcome::Unknown => WriteOutcome::Unknown,
    }
}

fn read_failure(error: &DatabaseError) -> ReadFailure {
    if error.is_permanent() { ReadFailure::Rejected } else { ReadFailure::Failed }
}
