//! A client that holds a lock or waits for it, as other clients see it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::core::bakery::{ContenderId, Mode, SeenContender, Snapshot, row_name};
use crate::owner::Owner;
use crate::store::TimedRow;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// By one alone.
    Exclusive,
    /// By all that share it, and by none else.
    Shared,
    /// By a limited number, and by none else.
    Limited {
        /// That number.
        max_holders: u32,
    },
}

impl From<Mode> for LockMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => LockMode::Exclusive,
            Mode::Shared => LockMode::Shared,
            // It is above zero, or its row can't be read.
            Mode::Limited(most) => LockMode::Limited { max_holders: most.unsigned_abs() },
        }
    }
}

/// What a contender does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContenderState {
    /// It holds the lock.
    Holding,
    /// It waits for the lock.
    Waiting,
}

/// A client that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContenderInfo {
    /// Its host name, process id and label, as the client wrote them.
    pub owner: Owner,
    /// The number of its host.
    pub host: i32,
    /// The id of the client.
    pub client: Uuid,
    /// The client's place for the lock.
    pub slot: i16,
    /// Its round, one attempt to acquire the lock: a number that only grows within a client. `None`
    /// if this version can't read its rows; then it blocks all others.
    pub round: Option<i64>,
    /// How it holds the lock, or wants to; `None` as for the round.
    pub mode: Option<LockMode>,
    /// Whether it holds the lock, as far as rows show. From its first renewal on, a holder's own
    /// rows say so; before that it follows from the order of the contenders, and may be wrong for
    /// the moment in which a client draws its ticket. `None` if this version can't read its rows,
    /// and of those [ahead](crate::LockError::TimedOut::ahead) of a caller.
    pub state: Option<ContenderState>,
    /// Its ticket; `None` while it chooses one, or if it holds without one.
    pub ticket: Option<i64>,
    /// Since when it holds the lock, by its own clock. `None` if it waits for the lock, or has held
    /// it for too short a time: a holder's rows show it from its first renewal on, which is due
    /// after a third of its TTL. It is `None` also of those
    /// ahead of a caller.
    pub held_since: Option<SystemTime>,
    /// When it wrote its rows last, by its own clock: when it announced itself, drew its ticket or
    /// renewed its lease. `None` as for the state.
    pub renewed_at: Option<SystemTime>,
    /// How long its rows live if it does not renew them, in whole seconds as the database reports
    /// it. A dead holder blocks others for that long. `None` as for the state.
    pub remaining: Option<Duration>,
    /// How long ago it should have renewed its rows, if it has not: by the clock of the client that
    /// looks, and only if that is more than by how much clocks may differ, and a second. Then it is
    /// dead or stopped, or does not reach the database; or it needs no renewal, because it holds
    /// for [one lease only](crate::LockRequest::auto_renew) or has released a lock that stays taken
    /// for a [minimum time](crate::LockRequest::min_hold). `None` if it renews in time, and as for
    /// the state.
    pub overdue: Option<Duration>,
}

impl ContenderInfo {
    /// When it began to acquire the lock, by its own clock; `None` if its rows can't be read.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        // A round is the write timestamp of its announcement.
        time_of(self.round?)
    }

    /// The contenders of an object in the order of the queue, seen at `now_micros` by a clock that
    /// may differ from others by `max_clock_skew`.
    pub(crate) fn all(rows: Vec<TimedRow>, now_micros: i64, max_clock_skew: Duration) -> Vec<Self> {
        let mut times = BTreeMap::<ContenderId, Times>::new();
        let rows = rows.into_iter().map(|TimedRow { row, stamp, ttl_seconds }| {
            if row.row_name != row_name::REVOKED {
                let times = times.entry(row.contender).or_default();
                times.newest = times.newest.max(stamp);
                times.remaining = times.remaining.into_iter().chain(ttl_seconds).min();
            }
            row
        });
        let snapshot = Snapshot::of(&rows.collect::<Vec<_>>());
        let timed = |seen: SeenContender| {
            let times = times.get(&seen.contender).copied().unwrap_or_default();
            times.told(seen.into(), now_micros, max_clock_skew)
        };
        snapshot.contenders().into_iter().map(timed).collect()
    }

    /// The contender as the protocol knows it.
    pub(crate) fn id(&self) -> ContenderId {
        ContenderId { host: self.host, client: self.client.as_u128(), slot: self.slot }
    }
}

/// The times of a contender's rows.
#[derive(Clone, Copy, Default)]
struct Times {
    /// The largest stamp, in µs.
    newest: Option<i64>,
    /// The shortest TTL, in seconds.
    remaining: Option<i32>,
}

impl Times {
    fn told(
        self,
        contender: ContenderInfo,
        now_micros: i64,
        max_clock_skew: Duration,
    ) -> ContenderInfo {
        let (Some(newest), Some(remaining)) = (self.newest, self.remaining) else {
            return contender;
        };
        let remaining = Duration::from_secs(u64::try_from(remaining).unwrap_or(0));
        let age = u64::try_from(now_micros.saturating_sub(newest)).unwrap_or(0);
        let age = Duration::from_micros(age);
        // Each renewal is due after a third of the TTL (design section 5).
        let overdue = age.saturating_sub((age + remaining) / 3);
        // TTLs are reported in whole seconds.
        let doubt = max_clock_skew + Duration::from_secs(1);
        ContenderInfo {
            renewed_at: time_of(newest),
            remaining: Some(remaining),
            overdue: (overdue > doubt).then_some(overdue),
            ..contender
        }
    }
}

impl From<SeenContender> for ContenderInfo {
    fn from(seen: SeenContender) -> Self {
        let SeenContender { contender, owner, round, mode, ticket, held_since, holds } = seen;
        let ContenderId { host, client, slot } = contender;
        let state = holds.map(|holds| match holds {
            true => ContenderState::Holding,
            false => ContenderState::Waiting,
        });
        let millis = held_since.and_then(|since| u64::try_from(since).ok());
        ContenderInfo {
            owner: Owner::from(owner),
            host,
            client: Uuid::from_u128(client),
            slot,
            round,
            mode: mode.map(LockMode::from),
            state,
            ticket,
            held_since: millis.and_then(|millis| since_epoch(Duration::from_millis(millis))),
            renewed_at: None,
            remaining: None,
            overdue: None,
        }
    }
}

/// The time of a write timestamp, which is in µs.
fn time_of(stamp: i64) -> Option<SystemTime> {
    since_epoch(Duration::from_micros(u64::try_from(stamp).ok()?))
}

fn since_epoch(time: Duration) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(time)
}
