//! A server: its record, its rows, and what its scripts do, written once more.

use std::time::Duration;

use uuid::Uuid;

use super::record::{MastersSettings, PROTOCOL, Record, View};
use super::{CLIENTS, Flaw, SERVERS};

/// A time. How long something has lasted or will last is kept, not since when, so that a history
/// may last for any time.
pub(super) type Ticks = u8;

/// What passes in a tick: as long as requests may be under way.
const TICK: Duration = crate::core::bakery::TIME_IN_FLIGHT;

/// How long rows live.
pub(super) const TTL: Ticks = 2;

/// A write that begins later than this after it was sent is not applied.
pub(super) const LATE_AFTER: Ticks = 1;

/// Identifies the data of a server.
pub(super) type Epoch = u8;

/// A view: its version, and who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ViewId {
    pub(super) version: u8,
    pub(super) maker: u8,
}

/// A process: its server, and how often that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) server: u8,
    pub(super) start: u8,
}

/// What a server has recorded, but for what all have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) place: u8,
    pub(super) epoch: Epoch,
    pub(super) process: Process,
    pub(super) is_durable: bool,
    pub(super) view: ViewId,
    pub(super) members: [Epoch; PLACES],
    /// For how long it takes no part yet.
    pub(super) waits: Ticks,
}

/// How many servers the lock table has. Each client has as many addresses.
pub(super) const PLACES: usize = 3;

/// The view and the epoch that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Gate {
    pub(super) view: ViewId,
    pub(super) epoch: Epoch,
}

/// The row of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    round: u8,
    /// How long ago it was sent.
    pub(super) age: Ticks,
    left: Ticks,
}

/// One server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) process: Process,
    /// Whether it syncs each write.
    pub(super) is_durable: bool,
    pub(super) entry: Option<Entry>,
    pub(super) rows: [Option<Row>; CLIENTS],
}

/// How a server can lose what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is started again, empty.
    Restarted,
    /// It is emptied while it runs.
    Emptied,
    /// It is started again with its record and no rows, as from an old snapshot.
    OldSnapshot,
    /// It is made to follow another server, and then to follow none.
    Follows(u8),
    /// It is started again with all it had; only if it syncs each write.
    Kept,
}

/// What a script answers to a request with a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ok,
    Absent,
    OtherView,
    Waits,
    Late,
}

impl ViewId {
    /// The view as the library has it.
    pub(super) fn shipped(self) -> View {
        let id = Uuid::from_u128(self.maker.into());
        if self.version == 1 {
            return View::first(id);
        }
        let first = View::first(Uuid::nil());
        (2..self.version).fold(first, |view, _| view.next(Uuid::nil())).next(id)
    }
}

impl Process {
    pub(super) fn run_id(self) -> String {
        format!("{}.{}", self.server, self.start)
    }
}

/// The settings of the lock table.
pub(super) fn settings() -> MastersSettings {
    MastersSettings { max_ttl: TICK * u32::from(TTL), max_clock_skew: Duration::ZERO }
}

/// For how many ticks a server takes no part, by the shipped rule.
pub(super) fn wait() -> Ticks {
    let ticks = settings().over_after().as_secs().div_ceil(TICK.as_secs());
    Ticks::try_from(ticks).expect("a model lasts a few ticks")
}

/// A time from now as the library has it, if now is 0.
fn millis(ticks: Ticks) -> i64 {
    i64::try_from(TICK.as_millis()).expect("a tick is short") * i64::from(ticks)
}

impl Entry {
    /// The record as the library has it.
    pub(super) fn shipped(&self) -> Record {
        Record {
            cluster: Uuid::from_u128(1),
            settings: settings(),
            protocol: PROTOCOL,
            index: self.place.into(),
            epoch: Uuid::from_u128(self.epoch.into()),
            run_id: self.process.run_id(),
            is_durable: self.is_durable,
            view: self.view.shipped(),
            members: self.members.map(|epoch| Uuid::from_u128(epoch.into())).into(),
            usable_from: millis(self.waits),
        }
    }
}

impl Server {
    /// A member that has taken part for long; the last one is an empty server elsewhere.
    pub(super) fn first(server: u8, is_durable: bool) -> Self {
        let process = Process { server, start: 0 };
        let members = FIRST_EPOCHS;
        let entry = members.get(usize::from(server)).map(|epoch| Entry {
            place: server,
            epoch: *epoch,
            process,
            is_durable,
            view: FIRST_VIEW,
            members,
            waits: 0,
        });
        Server { process, is_durable, entry, rows: [None; CLIENTS] }
    }

    /// What `common.lua` and `change.lua` answer; a read is never late.
    pub(super) fn answer(&self, gate: Gate, age: Option<Ticks>, flaw: Option<Flaw>) -> Answer {
        let is_late = age.is_some_and(|age| age > LATE_AFTER);
        if is_late && flaw != Some(Flaw::NoLateLimit) {
            return Answer::Late;
        }
        if flaw == Some(Flaw::NoGate) {
            return Answer::Ok;
        }
        let Some(entry) = self.entry else { return Answer::Absent };
        let is_view_known = entry.view == gate.view || flaw == Some(Flaw::NoViewInGate);
        let is_epoch_known = entry.epoch == gate.epoch || flaw == Some(Flaw::NoEpochInGate);
        if !is_view_known || !is_epoch_known {
            Answer::OtherView
        } else if entry.waits > 0 {
            Answer::Waits
        } else {
            Answer::Ok
        }
    }

    /// What `write.lua` does.
    pub(super) fn write(&mut self, client: usize, round: u8, age: Ticks) {
        let row = &mut self.rows[client];
        if row.is_none_or(|old| old.round < round) {
            *row = Some(Row { round, age, left: TTL });
        }
    }

    /// A tick has passed: rows that are over are gone.
    pub(super) fn tick(&mut self) {
        for row in &mut self.rows {
            let left = |row: Row| Some(Row { left: row.left.checked_sub(1)?, ..row });
            *row = row.and_then(left).filter(|row| row.left > 0);
            if let Some(row) = row {
                row.age += 1;
            }
        }
        if let Some(entry) = &mut self.entry {
            entry.waits = entry.waits.saturating_sub(1);
        }
    }

    /// It loses what it had.
    pub(super) fn lose(&mut self, loss: Loss, others: &[Server; SERVERS]) {
        match loss {
            Loss::Restarted | Loss::OldSnapshot | Loss::Kept => self.process.start += 1,
            Loss::Emptied | Loss::Follows(_) => {}
        }
        match loss {
            Loss::Restarted | Loss::Emptied => {
                self.entry = None;
                self.rows = [None; CLIENTS];
            }
            Loss::OldSnapshot => self.rows = [None; CLIENTS],
            Loss::Follows(other) => {
                self.entry = others[usize::from(other)].entry;
                self.rows = others[usize::from(other)].rows;
            }
            Loss::Kept => {}
        }
    }
}

/// The view that there is at first.
pub(super) const FIRST_VIEW: ViewId = ViewId { version: 1, maker: 0 };

/// The epochs in it.
pub(super) const FIRST_EPOCHS: [Epoch; PLACES] = [1, 2, 3];
