//! A table in memory that treats its cells as Cassandra does: three replicas, levels that ask some
//! of them, TTLs in whole seconds of the nodes' clock, tombstones, and the timestamps of clients,
//! of which the largest one wins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep};

const REPLICAS: usize = 3;

/// How many replicas a call asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    One,
    Quorum,
}

impl Level {
    fn replicas(self) -> usize {
        match self {
            Level::One => 1,
            Level::Quorum => REPLICAS / 2 + 1,
        }
    }
}

/// The table.
pub(crate) struct Table {
    began: Instant,
    state: Mutex<State>,
}

struct State {
    replicas: [Replica; REPLICAS],
    delay: Duration,
}

type Replica = BTreeMap<Key, Cell>;

/// Row key and column key.
type Key = (&'static str, Vec<u8>);

/// What was written last to a key.
#[derive(Clone, Copy)]
struct Cell {
    stamp: i64,
    written: Written,
}

/// Of two with one stamp the larger one wins: the tombstone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Until(Duration),
    Tombstone,
}

impl Table {
    pub(crate) fn new(delay: Duration) -> Self {
        let state = State { replicas: Default::default(), delay };
        Table { began: Instant::now(), state: Mutex::new(state) }
    }

    /// Lets a call take `delay`; it is applied after half of it.
    pub(crate) fn delay_calls(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// A replica comes back with an empty disk.
    pub(crate) fn empty_replica(&self, replica: usize) {
        self.state().replicas[replica].clear();
    }

    /// How many cells a read of a quorum would show now.
    pub(crate) fn live_cells(&self) -> usize {
        let now = self.began.elapsed();
        let cells = self.state().merged(0..Level::Quorum.replicas());
        cells.values().filter(|cell| cell.is_live(now)).count()
    }

    async fn call<T>(&self, call: impl FnOnce(&mut State, Duration) -> T) -> T {
        self.half_a_call().await;
        let answer = call(&mut self.state(), self.began.elapsed());
        self.half_a_call().await;
        answer
    }

    async fn half_a_call(&self) {
        let delay = self.state().delay;
        sleep(delay / 2).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the mutex is not poisoned")
    }
}

impl State {
    fn merged(&self, asked: impl Iterator<Item = usize>) -> Replica {
        let mut merged = Replica::new();
        for replica in asked {
            for (key, cell) in &self.replicas[replica] {
                apply(&mut merged, key, *cell);
            }
        }
        merged
    }
}

impl Cell {
    fn is_live(self, now: Duration) -> bool {
        match self.written {
            Written::Until(end) => now < end,
            Written::Tombstone => false,
        }
    }
}

fn apply(replica: &mut Replica, key: &Key, cell: Cell) {
    let newest = replica.get(key).map(|newest| (newest.stamp, newest.written));
    if newest < Some((cell.stamp, cell.written)) {
        replica.insert(key.clone(), cell);
    }
}

/// How a client reaches the table: it asks the replicas that are nearest to it. The others get its
/// writes later, which is after all that happens in a test.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) table: Arc<Table>,
    pub(crate) level: Level,
    /// The replica that is asked first.
    pub(crate) nearest: usize,
}

impl Connection {
    pub(crate) async fn insert(&self, row: &'static str, column: &[u8], stamp: i64, ttl: Duration) {
        let write = |now: Duration| Written::Until(Duration::from_secs(now.as_secs()) + ttl);
        self.write(row, column, stamp, write).await;
    }

    pub(crate) async fn delete(&self, row: &'static str, column: &[u8], stamp: i64) {
        self.write(row, column, stamp, |_| Written::Tombstone).await;
    }

    async fn write(
        &self,
        row: &'static str,
        column: &[u8],
        stamp: i64,
        write: impl FnOnce(Duration) -> Written,
    ) {
        let key = (row, column.to_vec());
        let apply_all = |state: &mut State, now| {
            let cell = Cell { stamp, written: write(now) };
            for replica in self.asked() {
                apply(&mut state.replicas[replica], &key, cell);
            }
        };
        self.table.call(apply_all).await;
    }

    /// Whether a cell is there.
    pub(crate) async fn exists(&self, row: &'static str, column: &[u8]) -> bool {
        let key = (row, column.to_vec());
        let look = |state: &mut State, now| {
            let copies = self.asked().filter_map(|replica| state.replicas[replica].get(&key));
            let newest = copies.max_by_key(|cell| (cell.stamp, cell.written));
            newest.is_some_and(|cell| cell.is_live(now))
        };
        self.table.call(look).await
    }

    /// The first `limit` columns of a row, those below `end` if there is one.
    pub(crate) async fn slice(
        &self,
        row: &'static str,
        end: Option<&[u8]>,
        limit: usize,
    ) -> Vec<Vec<u8>> {
        let look = |state: &mut State, now| {
            let cells = state.merged(self.asked()).into_iter();
            let live = cells.filter(|((of, _), cell)| *of == row && cell.is_live(now));
            let columns = live.map(|((_, column), _)| column);
            let asked_for = columns.filter(|column| end.is_none_or(|end| column.as_slice() < end));
            asked_for.take(limit).collect()
        };
        self.table.call(look).await
    }

    fn asked(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.nearest;
        (first..first + self.level.replicas()).map(|replica| replica % REPLICAS)
    }
}
