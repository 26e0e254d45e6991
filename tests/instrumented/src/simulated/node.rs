//! Replicas, their orders and their answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::core::bakery::{Change, FENCE_TTL_SECONDS, LastRelease, Read, Statics, Write};
use crate::store::memory::replica::{Cell, Fence, Key, Release, Replica, Sweep, cells};
use crate::store::{StoredMark, TimedRow};

/// One replica.
pub(super) struct Node {
    pub(super) is_up: bool,
    pub(super) slow_by: u64,
    ahead: Duration,
    replica: Replica,
    /// All applied orders and their times: the ones left after a crash are applied again.
    journal: Vec<(Duration, Arc<Order>)>,
}

impl Node {
    /// An empty replica with a clock ahead of the true time.
    pub(super) fn new(ahead: Duration) -> Self {
        Node { is_up: true, slow_by: 0, ahead, replica: Replica::default(), journal: Vec::new() }
    }

    /// The time of its clock.
    pub(super) fn clock(&self, now: Duration) -> Duration {
        now + self.ahead
    }

    /// Forgets all writes after `synced`, and returns their number.
    pub(super) fn forget(&mut self, synced: Duration) -> usize {
        let before = self.journal.len();
        self.journal.retain(|(applied, _)| *applied <= synced);
        self.replica = Replica::default();
        for (_, order) in &self.journal {
            self.replica.perform(order);
        }
        before - self.journal.len()
    }

    /// Loses rows, and returns the live ones among them. A crash does not bring them back.
    pub(super) fn lose(&mut self, now: Duration, order: &Arc<Order>) -> Vec<Key> {
        let live = self.seen(&order.object, Read::Object, now).rows.into_iter();
        let live = live.filter(|seen| seen.is_live() && order.loses(&seen.key));
        let lost = live.map(|seen| seen.key).collect();
        self.journal.push((now, Arc::clone(order)));
        self.replica.perform(order);
        lost
    }

    /// Carries out an order, and answers.
    pub(super) fn perform(&mut self, now: Duration, order: &Arc<Order>) -> Seen {
        match &order.action {
            Action::Apply(..)
            | Action::RaiseFence(_)
            | Action::RaiseMark(_)
            | Action::Sweep(_)
            | Action::Lose(_) => {
                self.journal.push((now, Arc::clone(order)));
                self.replica.perform(order);
                let seen = order.then.map(|read| self.seen(&order.object, read, now));
                seen.unwrap_or_default()
            }
            Action::Read(read) => self.seen(&order.object, *read, now),
            Action::ReadFence => {
                let fence = self.replica.fences.get(&order.object);
                let fence = fence.filter(|fence| self.clock(now) < fence.dead_from);
                Seen { fence: fence.map(|fence| fence.value), ..Seen::default() }
            }
        }
    }

    /// What a read of an object shows.
    pub(super) fn seen(&self, object: &str, read: Read, now: Duration) -> Seen {
        let rows = self.replica.objects.get(object).into_iter().flatten();
        let asked = rows.filter(|((name, id), _)| read.asks_for(name, *id));
        let seen = asked.map(|(key, cell)| {
            let ttl_seconds = cell.ttl_seconds(self.clock(now));
            SeenRow { key: key.clone(), cell: cell.clone(), ttl_seconds }
        });
        let sweeps = self.replica.sweeps.get(object).cloned().unwrap_or_default();
        let last_release = self.replica.last_release(object, self.clock(now));
        let mark = self.replica.marks.get(object).map(|mark| mark.value);
        Seen { rows: seen.collect(), fence: None, sweeps, statics: Statics { last_release, mark } }
    }
}

/// A request of a client.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    Write(&'a Write),
    /// Each replica writes, and answers what it shows then.
    Exchange(&'a Write, Read),
    WriteFence(i64),
    Read(Read),
    /// A read of the object that one answer is enough for.
    OneReplica,
    ReadFence,
}

/// An order to replicas.
pub(super) struct Order {
    object: String,
    action: Action,
    /// What is read after the action.
    then: Option<Read>,
}

enum Action {
    Apply(Vec<(Key, Cell)>, Option<Release>),
    RaiseFence(Fence),
    RaiseMark(i64),
    Sweep(Sweep),
    Lose(Lost),
    Read(Read),
    ReadFence,
}

/// What a replica loses of an object.
pub(super) enum Lost {
    /// These rows, as if they had expired.
    Rows(Vec<Key>),
    /// All rows and tombstones. What is static stays: the fence, and the mark.
    Object,
}

impl Order {
    /// The loss of rows that no client requested.
    pub(super) fn lose(object: &str, lost: Lost) -> Self {
        Order::of(object, Action::Lose(lost))
    }

    /// Raises the mark of an object.
    pub(super) fn raise_mark(object: &str, mark: i64) -> Self {
        Order::of(object, Action::RaiseMark(mark))
    }

    /// Raises the fence of an object.
    pub(super) fn raise_fence(object: &str, value: i64, clock: Duration) -> Self {
        let ttl = Duration::from_secs(u64::from(FENCE_TTL_SECONDS.unsigned_abs()));
        let fence = Fence { value, dead_from: clock + ttl };
        Order::of(object, Action::RaiseFence(fence))
    }

    /// Notes a release of an object.
    pub(super) fn note_release(object: &str, last: LastRelease, clock: Duration) -> Self {
        let action = Action::Apply(Vec::new(), Some(Release::new(last, clock)));
        Order::of(object, action)
    }

    /// Writes rows as a coordinator has seen them, where they are missing.
    pub(super) fn repair(object: &str, rows: Vec<SeenRow>) -> Self {
        let rows = rows.into_iter().map(|row| (row.key, row.cell)).collect();
        Order::of(object, Action::Apply(rows, None))
    }

    /// The object that it is about.
    pub(super) fn object(&self) -> &str {
        &self.object
    }

    /// Whether it loses a row.
    fn loses(&self, key: &Key) -> bool {
        match &self.action {
            Action::Lose(Lost::Rows(keys)) => keys.contains(key),
            Action::Lose(Lost::Object) => true,
            Action::Apply(..)
            | Action::RaiseFence(_)
            | Action::RaiseMark(_)
            | Action::Sweep(_)
            | Action::Read(_)
            | Action::ReadFence => false,
        }
    }

    /// A request, as a coordinator with the time `clock` passes it on.
    pub(super) fn new(object: &str, ask: Ask<'_>, clock: Duration) -> Self {
        let then = match ask {
            Ask::Exchange(_, read) => Some(read),
            Ask::Write(_)
            | Ask::WriteFence(_)
            | Ask::Read(_)
            | Ask::OneReplica
            | Ask::ReadFence => None,
        };
        let action = match ask {
            Ask::Write(write) | Ask::Exchange(write, _) => match &write.change {
                Change::Mark => Action::RaiseMark(write.stamp),
                Change::Sweep { spared } => Action::Sweep(Sweep::new(write.stamp, spared, clock)),
                Change::Put { .. } | Change::Revoke { .. } | Change::Delete { .. } => {
                    Action::Apply(cells(write, clock), Release::of(write, clock))
                }
            },
            Ask::WriteFence(value) => return Self::raise_fence(object, value, clock),
            Ask::Read(read) => Action::Read(read),
            Ask::OneReplica => Action::Read(Read::Object),
            Ask::ReadFence => Action::ReadFence,
        };
        Order { then, ..Order::of(object, action) }
    }

    fn of(object: &str, action: Action) -> Self {
        Order { object: object.to_owned(), action, then: None }
    }

    /// Whether it changes anything.
    pub(super) fn writes(&self) -> bool {
        match self.action {
            Action::Apply(..)
            | Action::RaiseFence(_)
            | Action::RaiseMark(_)
            | Action::Sweep(_)
            | Action::Lose(_) => true,
            Action::Read(_) | Action::ReadFence => false,
        }
    }
}

impl Replica {
    /// Applies writes; reads change nothing.
    fn perform(&mut self, order: &Order) {
        match &order.action {
            Action::Apply(cells, release) => {
                for (key, cell) in cells {
                    self.apply(&order.object, key, cell);
                }
                if let Some(release) = release {
                    self.note_release(&order.object, *release);
                }
            }
            Action::RaiseFence(fence) => self.raise_fence(&order.object, *fence),
            Action::RaiseMark(mark) => self.raise_mark(&order.object, StoredMark::of(*mark)),
            Action::Sweep(sweep) => self.sweep(&order.object, sweep.clone()),
            Action::Lose(Lost::Rows(keys)) => {
                let rows = self.objects.get_mut(&order.object).into_iter().flatten();
                for (_, cell) in rows.filter(|(key, _)| keys.contains(key)) {
                    cell.row = None;
                }
            }
            Action::Lose(Lost::Object) => {
                self.objects.remove(&order.object);
                self.sweeps.remove(&order.object);
            }
            Action::Read(_) | Action::ReadFence => {}
        }
    }
}

/// The answer of one replica; empty for a write.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) rows: Vec<SeenRow>,
    pub(super) fence: Option<i64>,
    sweeps: Vec<Sweep>,
    pub(super) statics: Statics,
}

impl Seen {
    /// Whether both replicas have the same rows, dead ones included: a coordinator compares
    /// digests. Fences are left out.
    pub(super) fn agrees(&self, other: &Seen) -> bool {
        let versions = |seen: &Seen| -> Vec<_> {
            let rows = seen.rows.iter();
            rows.map(|row| (row.key.clone(), row.cell.stamp, row.cell.row.is_none())).collect()
        };
        versions(self) == versions(other)
    }

    /// What replicas show together: the newest write of each row that no sweep hides, dead or
    /// alive, and the highest mark.
    pub(super) fn merge(answers: impl IntoIterator<Item = Seen>) -> Seen {
        let mut newest = BTreeMap::<Key, SeenRow>::new();
        let mut merged = Seen::default();
        for seen in answers {
            merged.sweeps.extend(seen.sweeps);
            merged.statics = newest_statics(merged.statics, seen.statics);
            for row in seen.rows {
                if newest.get(&row.key).is_none_or(|newest| row.cell.beats(&newest.cell)) {
                    newest.insert(row.key.clone(), row);
                }
            }
        }
        let is_hidden =
            |row: &SeenRow| merged.sweeps.iter().any(|sweep| sweep.hides(&row.key, row.cell.stamp));
        merged.rows = newest.into_values().filter(|row| !is_hidden(row)).collect();
        merged
    }

    /// The visible rows.
    pub(super) fn live(self) -> Vec<TimedRow> {
        self.rows.into_iter().filter_map(SeenRow::live).collect()
    }
}

/// What two replicas show together of the static columns.
fn newest_statics(one: Statics, other: Statics) -> Statics {
    let releases = [one.last_release, other.last_release].into_iter().flatten();
    Statics { last_release: releases.max_by_key(|last| last.stamp), mark: one.mark.max(other.mark) }
}

/// A row of one replica.
#[derive(Clone)]
pub(super) struct SeenRow {
    pub(super) key: Key,
    pub(super) cell: Cell,
    /// How long it lives by that replica's clock; `None` if it is dead.
    ttl_seconds: Option<i32>,
}

impl SeenRow {
    /// Whether it was live by that replica's clock.
    fn is_live(&self) -> bool {
        self.ttl_seconds.is_some()
    }

    /// The row, if it is visible.
    fn live(self) -> Option<TimedRow> {
        let SeenRow { cell: Cell { row, stamp, .. }, ttl_seconds, .. } = self;
        let row = row.filter(|_| ttl_seconds.is_some())?;
        Some(TimedRow { row, stamp: Some(stamp), ttl_seconds })
    }
}
