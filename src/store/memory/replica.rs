//! One copy of the rows, and which of two writes wins.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::core::bakery::{
    Change, ContenderId, LAST_RELEASE_TTL_SECONDS, LastRelease, StoredRow, Write, row_name,
};
use crate::store::{StoredMark, TimedRow};

/// The clustering key of a row.
pub(crate) type Key = (String, ContenderId);

/// One copy of the rows.
#[derive(Default)]
pub(crate) struct Replica {
    pub(crate) objects: HashMap<String, BTreeMap<Key, Cell>>,
    pub(crate) fences: HashMap<String, Fence>,
    pub(crate) releases: HashMap<String, Release>,
    pub(crate) marks: HashMap<String, StoredMark>,
    pub(crate) sweeps: HashMap<String, Vec<Sweep>>,
}

/// A sweep of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) horizon: i64,
    /// The contenders whose rows it leaves.
    pub(crate) spared: Vec<ContenderId>,
    pub(crate) dead_from: Duration,
}

impl Sweep {
    /// A sweep at `now` that leaves the rows of these contenders.
    pub(crate) fn new(horizon: i64, spared: &[ContenderId], now: Duration) -> Self {
        Sweep { horizon, spared: spared.to_vec(), dead_from: now }
    }

    /// Whether it hides a row with this key and stamp.
    pub(crate) fn hides(&self, (name, contender): &Key, stamp: i64) -> bool {
        stamp <= self.horizon && name == row_name::ENTERING && !self.spared.contains(contender)
    }

    /// Whether it hides all that another one does.
    fn covers(&self, other: &Sweep) -> bool {
        let leaves_no_more = self.spared.iter().all(|contender| other.spared.contains(contender));
        other.horizon <= self.horizon && leaves_no_more
    }
}

/// The fence of an object. The order is that of a cluster: the value is the stamp, so the larger
/// one wins; of equal values, the one that lives longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fence {
    pub(crate) value: i64,
    pub(crate) dead_from: Duration,
}

/// The last release of an object: the one with the highest stamp.
#[derive(Clone, Copy)]
pub(crate) struct Release {
    last: LastRelease,
    dead_from: Duration,
}

impl Release {
    /// What a write reports to waiters, if anything.
    pub(crate) fn of(write: &Write, now: Duration) -> Option<Self> {
        let Change::Delete { last_release: Some(last), .. } = write.change else {
            return None;
        };
        Some(Release::new(last, now))
    }

    /// A release that is written at `now`.
    pub(crate) fn new(last: LastRelease, now: Duration) -> Self {
        Release { last, dead_from: dead_from(now, LAST_RELEASE_TTL_SECONDS) }
    }

    /// What reads at `now` show.
    fn live(&self, now: Duration) -> Option<LastRelease> {
        (now < self.dead_from).then_some(self.last)
    }

    /// Whether reads at `now` may show it.
    pub(crate) fn is_live(&self, now: Duration) -> bool {
        self.live(now).is_some()
    }
}

impl Replica {
    /// Writes a row, unless a newer write of it is there, or a sweep that hides it.
    pub(crate) fn apply(&mut self, object: &str, key: &Key, cell: &Cell) {
        let mut sweeps = self.sweeps.get(object).into_iter().flatten();
        if sweeps.any(|sweep| sweep.hides(key, cell.stamp)) {
            return;
        }
        let rows = match self.objects.get_mut(object) {
            Some(rows) => rows,
            None => self.objects.entry(object.to_owned()).or_default(),
        };
        if rows.get(key).is_none_or(|newest| cell.beats(newest)) {
            rows.insert(key.clone(), cell.clone());
        }
    }

    /// Notes a release, unless a later one is there.
    pub(crate) fn note_release(&mut self, object: &str, release: Release) {
        let latest = self.releases.entry(object.to_owned()).or_insert(release);
        if release.last.stamp > latest.last.stamp {
            *latest = release;
        }
    }

    /// The last release of an object that reads at `now` show.
    pub(crate) fn last_release(&self, object: &str, now: Duration) -> Option<LastRelease> {
        self.releases.get(object)?.live(now)
    }

    /// Writes a mark, unless one with a higher stamp is there.
    pub(crate) fn raise_mark(&mut self, object: &str, mark: StoredMark) {
        let highest = self.marks.entry(object.to_owned()).or_insert(mark);
        *highest = mark.max(*highest);
    }

    /// Sweeps an object: rows that it hides are forgotten.
    pub(crate) fn sweep(&mut self, object: &str, sweep: Sweep) {
        if let Some(rows) = self.objects.get_mut(object) {
            rows.retain(|key, cell| !sweep.hides(key, cell.stamp));
        }
        let sweeps = self.sweeps.entry(object.to_owned()).or_default();
        sweeps.retain(|earlier| !sweep.covers(earlier));
        sweeps.push(sweep);
    }

    /// Writes a fence, unless a larger one is there.
    pub(crate) fn raise_fence(&mut self, object: &str, fence: Fence) {
        let newest = self.fences.entry(object.to_owned()).or_insert(fence);
        *newest = fence.max(*newest);
    }
}

/// The newest write of a row. Rows are written whole, so a row needs only one stamp.
#[derive(Clone)]
pub(crate) struct Cell<Row = StoredRow> {
    pub(crate) stamp: i64,
    /// What was written; `None` when the row was deleted.
    pub(crate) row: Option<Row>,
    /// From when on the row is no longer seen.
    pub(crate) dead_from: Duration,
}

impl<Row> Cell<Row> {
    /// The higher stamp wins; with the same stamp, a delete wins. Repeating a write changes
    /// nothing: a retry does not prolong a row.
    pub(crate) fn beats(&self, other: &Self) -> bool {
        (self.stamp, self.row.is_none()) > (other.stamp, other.row.is_none())
    }

    /// The row, if there is one at `now`.
    pub(crate) fn live(&self, now: Duration) -> Option<&Row> {
        self.row.as_ref().filter(|_| now < self.dead_from)
    }

    /// How long the row lives after `now`, in whole seconds as Cassandra reports it; `None` if
    /// there is none.
    pub(crate) fn ttl_seconds(&self, now: Duration) -> Option<i32> {
        self.live(now)?;
        i32::try_from(self.dead_from.as_secs() - now.as_secs()).ok()
    }
}

impl Cell {
    /// The row with its times, if there is one at `now`.
    pub(crate) fn timed(&self, now: Duration) -> Option<TimedRow> {
        let (row, stamp) = (self.live(now)?.clone(), Some(self.stamp));
        Some(TimedRow { row, stamp, ttl_seconds: self.ttl_seconds(now) })
    }
}

/// The effect of a write on each row that it touches.
pub(crate) fn cells(write: &Write, now: Duration) -> Vec<(Key, Cell)> {
    let stamp = write.stamp;
    match &write.change {
        Change::Put { claim, ttl_seconds } => {
            let dead_from = dead_from(now, *ttl_seconds);
            vec![written(StoredRow::entering(claim), stamp, dead_from)]
        }
        Change::Revoke { revocation, ttl_seconds } => {
            let dead_from = dead_from(now, *ttl_seconds);
            vec![written(StoredRow::revoked(revocation), stamp, dead_from)]
        }
        Change::Delete { contender, .. } => {
            let cell = |name: &&str| {
                let key = ((*name).to_owned(), *contender);
                (key, Cell { stamp, row: None, dead_from: now })
            };
            write.change.deleted_rows().iter().map(cell).collect()
        }
        Change::Mark | Change::Sweep { .. } => Vec::new(),
    }
}

fn written(row: StoredRow, stamp: i64, dead_from: Duration) -> (Key, Cell) {
    let key = (row.row_name.clone(), row.contender);
    (key, Cell { stamp, row: Some(row), dead_from })
}

/// Cassandra counts whole seconds, so a row may live up to one second less than its TTL.
pub(super) fn dead_from(now: Duration, ttl_seconds: i32) -> Duration {
    let ttl = Duration::from_secs(u64::from(ttl_seconds.unsigned_abs()));
    Duration::from_secs(now.as_secs()) + ttl
}
