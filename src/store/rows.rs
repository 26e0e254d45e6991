//! The rows of one lock table.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Part, StoreFuture};
use crate::core::bakery::{ContenderId, Read, Seen, StoredRow, Write};

/// The rows of one lock table.
///
/// The protocol relies on this (design sections 3 and 4): an acknowledged write is seen by every
/// read that begins afterwards, until it is overwritten with a higher stamp or its TTL is over; of
/// two writes to one row the higher stamp wins, whatever their order; a delete beats a write of the
/// same stamp; rows of one [`Write`] are applied as a unit. Each call is one try, bounded in time,
/// never repeated by the store or its driver. A dropped future may still be applied.
pub(crate) trait LockRows: Debug + Send + Sync {
    /// Applies a write to the rows of an object.
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()>;

    /// Reads the requested rows of an object, all with one read.
    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen>;

    /// How to write and read in one round trip, if this store can.
    fn exchanges(&self) -> Option<&dyn Exchanges> {
        None
    }

    /// Reads all rows of an object, each with its times.
    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>>;

    /// The parts of the lock table; each object is in one of them.
    fn parts(&self) -> Vec<Part>;

    /// Reads rows of a part, from its beginning or from where an earlier page ended. Objects with
    /// a fence alone are left out.
    fn read_page<'a>(&'a self, part: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page>;

    /// Reads all rows of an object as one replica nearby has them. It is a hint: rows may be
    /// missing, and there may be rows that are gone.
    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>>;

    /// The same of several objects, with one read where the store can. The rows come in any order.
    fn read_one_replica_of_each<'a>(
        &'a self,
        objects: &'a [Arc<str>],
    ) -> StoreFuture<'a, Vec<(String, StoredRow)>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for object in objects {
                let rows = self.read_one_replica(object).await?;
                all.extend(rows.into_iter().map(|row| (object.to_string(), row)));
            }
            Ok(all)
        })
    }

    /// Reads the rounds and stamps of a contender's rows.
    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>>;

    /// Reads the mark of an object with its write stamp; `None` if it has none.
    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>>;

    /// Reads the fence of an object; `None` if it has none.
    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>>;

    /// Raises the fence of an object to `value`, stamped with the value itself, so that a smaller
    /// value never replaces a larger one. It lives for
    /// [`FENCE_TTL_SECONDS`](crate::core::bakery::FENCE_TTL_SECONDS), however long the table's rows
    /// live.
    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()>;
}

/// A write and a read in one round trip.
pub(crate) trait Exchanges: Send + Sync {
    /// Applies a write and reads the requested rows, each replica both as a unit, in this order.
    /// What is read is what a quorum shows that did both. The outcome of an error is that of the
    /// write.
    ///
    /// So of two exchanges that succeed, at least one shows what the other wrote, unless that was
    /// overwritten or is over.
    fn exchange<'a>(
        &'a self,
        object: &'a str,
        write: &'a Write,
        read: Read,
    ) -> StoreFuture<'a, Seen>;
}

/// A row, when it was written and how long it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedRow {
    /// The row.
    pub(crate) row: StoredRow,
    /// The write timestamp, in µs; `None` for a row without a round.
    pub(crate) stamp: Option<i64>,
    /// The time that is left of its TTL, in seconds; `None` if it lives for ever, or has no round.
    pub(crate) ttl_seconds: Option<i32>,
}

/// When a row was written, and for which round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowStamp {
    /// The column `row_name`.
    pub(crate) row_name: String,
    /// The column `round`.
    pub(crate) round: i64,
    /// The write timestamp, in µs.
    pub(crate) stamp: i64,
}

impl RowStamp {
    /// The stamp of a row. A row without a round has none.
    pub(crate) fn of(TimedRow { row, stamp, .. }: TimedRow) -> Option<Self> {
        Some(RowStamp { row_name: row.row_name, round: row.round?, stamp: stamp? })
    }
}

/// The mark of an object. The order is that of a cluster: the higher stamp wins, then the larger
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredMark {
    /// The write timestamp, in µs.
    pub(crate) stamp: i64,
    /// The mark: its stamp, unless it was written by hand.
    pub(crate) value: i64,
}

impl StoredMark {
    /// As clients write it.
    pub(crate) fn of(stamp: i64) -> Self {
        StoredMark { stamp, value: stamp }
    }
}

/// Some rows of a part, in the order of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Rows, each with its object. Those of one object follow each other, also across pages.
    pub(crate) rows: Vec<(String, TimedRow)>,
    /// Where the next page begins; `None` at the end of the part.
    pub(crate) next: Option<Cursor>,
}

/// Where a page begins, as the store that returned it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(pub(crate) Arc<[u8]>);
