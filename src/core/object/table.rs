//! The rows of one object, as a quorum shows them: what tests and the model drive objects on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::bakery::{
    Change, ContenderId, Read, ReadFailure, Seen, Statics, StoredRow, Write, WriteOutcome, row_name,
};

/// The rows of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<(ContenderId, &'static str), Cell>,
    /// How much sooner than their TTL says rows are gone.
    expires_early: Duration,
    /// It answers nothing.
    pub(crate) is_down: bool,
}

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
    /// A table whose rows are gone so much sooner than their TTL says.
    #[cfg(model)]
    pub(crate) fn expiring_early(expires_early: Duration) -> Self {
        Table { expires_early, ..Table::default() }
    }

    /// A write takes effect, unless the table is down.
    pub(crate) fn write(&mut self, now: Duration, write: &Write) -> WriteOutcome {
        if self.is_down {
            return WriteOutcome::Unknown;
        }
        match &write.change {
            Change::Put { claim, ttl_seconds } => {
                self.put(now, write.stamp, StoredRow::entering(claim), *ttl_seconds);
                if let Some(row) = StoredRow::ticket(claim) {
                    self.put(now, write.stamp, row, *ttl_seconds);
                }
            }
            Change::Revoke { revocation, ttl_seconds } => {
                self.put(now, write.stamp, StoredRow::revoked(revocation), *ttl_seconds);
            }
            Change::Delete { contender, .. } => {
                for name in write.change.deleted_rows() {
                    let cell = Cell { stamp: write.stamp, row: None, expires: Duration::MAX };
                    self.apply((*contender, name), cell);
                }
            }
            Change::Mark | Change::Sweep { .. } => {}
        }
        WriteOutcome::Applied
    }

    fn put(&mut self, now: Duration, stamp: i64, row: StoredRow, ttl_seconds: i32) {
        let ttl = Duration::from_secs(u64::from(ttl_seconds.unsigned_abs()));
        let names = [row_name::ENTERING, row_name::TICKETS, row_name::REVOKED];
        let name = names.into_iter().find(|name| *name == row.row_name);
        let key = (row.contender, name.expect("rows have one of three names"));
        self.apply(key, Cell { stamp, row: Some(row), expires: now + ttl - self.expires_early });
    }

    fn apply(&mut self, key: (ContenderId, &'static str), cell: Cell) {
        if self.rows.get(&key).is_none_or(|before| before.stamp <= cell.stamp) {
            self.rows.insert(key, cell);
        }
    }

    /// Whether a write would change anything.
    #[cfg(model)]
    pub(crate) fn takes(&self, write: &Write) -> bool {
        let (contender, names) = match &write.change {
            Change::Put { claim, .. } if claim.ticket.is_some() => {
                (claim.contender, vec![row_name::ENTERING, row_name::TICKETS])
            }
            Change::Put { claim, .. } => (claim.contender, vec![row_name::ENTERING]),
            Change::Revoke { revocation, .. } => (revocation.contender, vec![row_name::REVOKED]),
            Change::Delete { contender, .. } => (*contender, write.change.deleted_rows()),
            Change::Mark | Change::Sweep { .. } => return false,
        };
        names.into_iter().any(|name| {
            let cell = self.rows.get(&(contender, name));
            cell.is_none_or(|before| before.stamp < write.stamp)
        })
    }

    /// What a read shows, unless the table is down.
    pub(crate) fn read(&self, now: Duration, read: Read) -> Result<Seen, ReadFailure> {
        if self.is_down {
            return Err(ReadFailure::Failed);
        }
        let is_read = |row: &&StoredRow| match read {
            Read::Object => true,
            Read::Contender(contender) => row.contender == contender,
            Read::Entering(contender) => {
                row.contender == contender && row.row_name == row_name::ENTERING
            }
        };
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
