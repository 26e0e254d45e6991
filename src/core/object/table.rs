//! The rows of one object, as a quorum shows them: what tests and the model drive objects on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::bakery::{
    Change, ContenderId, Read, ReadFailure, Seen, Statics, StoredRow, Write, WriteOutcome, row_name,
};

/// The rows of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<Key, Cell>,
    /// How much sooner than their TTL says rows are gone.
    expires_early: Duration,
    /// It answers nothing.
    pub(crate) is_down: bool,
}

/// A contender, and the name of its row.
type Key = (ContenderId, &'static str);

#[derive(Clone, Debug)]
struct Cell {
    stamp: i64,
    /// `None`: it is deleted.
    row: Option<StoredRow>,
    expires: Duration,
}

impl Cell {
    fn is_live(&self, now: Duration) -> bool {
        self.row.is_some() && now < self.expires
    }
}

impl Table {
    /// A table whose rows are gone this much sooner than their TTL says.
    #[cfg(instrumented)]
    pub(crate) fn expiring_early(expires_early: Duration) -> Self {
        Table { expires_early, ..Table::default() }
    }

    /// A write takes effect, unless the table is down.
    pub(crate) fn write(&mut self, now: Duration, write: &Write) -> WriteOutcome {
        if self.is_down {
            return WriteOutcome::Unknown;
        }
        for (key, cell) in self.cells(now, write) {
            if self.rows.get(&key).is_none_or(|before| before.stamp <= cell.stamp) {
                self.rows.insert(key, cell);
            }
        }
        WriteOutcome::Applied
    }

    /// What a write puts where.
    fn cells(&self, now: Duration, write: &Write) -> Vec<(Key, Cell)> {
        let put = |(name, row): (&'static str, StoredRow), ttl_seconds: i32| {
            let ttl = Duration::from_secs(u64::from(ttl_seconds.unsigned_abs()));
            let (key, expires) = ((row.contender, name), now + ttl - self.expires_early);
            (key, Cell { stamp: write.stamp, row: Some(row), expires })
        };
        let delete = |contender, name| {
            ((contender, name), Cell { stamp: write.stamp, row: None, expires: Duration::MAX })
        };
        match &write.change {
            Change::Put { claim, ttl_seconds } => {
                vec![put((row_name::ENTERING, StoredRow::entering(claim)), *ttl_seconds)]
            }
            Change::Revoke { revocation, ttl_seconds } => {
                vec![put((row_name::REVOKED, StoredRow::revoked(revocation)), *ttl_seconds)]
            }
            Change::Delete { contender, .. } => {
                let names = write.change.deleted_rows().into_iter();
                names.map(|name| delete(*contender, name)).collect()
            }
            Change::Mark | Change::Sweep { .. } => Vec::new(),
        }
    }

    /// Whether a write would change anything.
    #[cfg(instrumented)]
    pub(crate) fn takes(&self, write: &Write) -> bool {
        let mut cells = self.cells(self.expires_early, write).into_iter();
        cells.any(|(key, cell)| self.rows.get(&key).is_none_or(|before| before.stamp < cell.stamp))
    }

    /// What a read shows, unless the table is down.
    pub(crate) fn read(&self, now: Duration, read: Read) -> Result<Seen, ReadFailure> {
        if self.is_down {
            return Err(ReadFailure::Failed);
        }
        let is_read = |row: &&StoredRow| read.asks_for(&row.row_name, row.contender);
        let live = self.rows.values().filter(|cell| cell.is_live(now));
        let rows = live.filter_map(|cell| cell.row.as_ref()).filter(is_read).cloned().collect();
        Ok(Seen { rows, statics: Statics::default(), many_dead: false })
    }

    /// How many rows of contenders there are.
    pub(crate) fn live_rows(&self, now: Duration) -> usize {
        let of_contenders = self.rows.iter().filter(|((_, name), _)| *name != row_name::REVOKED);
        of_contenders.filter(|(_, cell)| cell.is_live(now)).count()
    }
}
