//! A port of `QCassandraLock` in its last version, of 2016, with its mistakes.
//!
//! Left out is what has no part in the races: the row `hosts`, so host numbers are given; names;
//! and errors of the database. A destructor is an [`unlock`](Party::unlock) here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::table::{Connection, Level, Table};
use super::{CALL, Party, Terms, World, s};

const ENTERING: &str = "entering::users::snap";
const TICKETS: &str = "tickets::users::snap";

/// How long an `entering::` cell lives beyond the wait.
const ENTERING_MARGIN: Duration = s(5);

const POLL: Duration = Duration::from_millis(100);

/// It reads the first page of a row: 100 columns beyond a count that is always 0.
const PAGE: usize = 100;

/// Ticket, host and process id, four bytes of each.
const KEY_BYTES: usize = 12;

/// A cluster, and processes that lock with [`QCassandraLock`].
pub(crate) struct Original {
    pub(crate) table: Arc<Table>,
    level: Level,
    wall_clock: Arc<WallClock>,
    processes: u32,
}

impl Original {
    /// As [`World::new`], with a level that the constructor of the lock is given.
    pub(crate) fn with_level(level: Level) -> Self {
        Original {
            table: Arc::new(Table::new(CALL)),
            level,
            wall_clock: Arc::new(WallClock::new()),
            processes: 0,
        }
    }

    fn process_of(&mut self, host: u32, pid: u32) -> QCassandraLock {
        // Each client is near to the next replica.
        let nearest = self.processes as usize;
        self.processes += 1;
        QCassandraLock {
            connection: Connection { table: Arc::clone(&self.table), level: self.level, nearest },
            wall_clock: Arc::clone(&self.wall_clock),
            host,
            pid,
            ticket_id: Vec::new(),
            locked: false,
        }
    }
}

impl World for Original {
    type Party = QCassandraLock;

    fn new() -> Self {
        Self::with_level(Level::Quorum)
    }

    async fn process(&mut self) -> QCassandraLock {
        let host = self.processes + 1;
        self.process_of(host, 1_000)
    }

    async fn namesake(&mut self, other: &QCassandraLock) -> QCassandraLock {
        self.process_of(other.host, other.pid)
    }

    fn delay_calls(&self, delay: Duration) {
        self.table.delay_calls(delay);
    }

    fn cut_off(&self) {
        // A holder of the old lock asks nothing of the database, so nothing can fail.
    }

    fn set_clocks_back(&self, by: Duration) {
        self.wall_clock.set_back(by);
    }

    fn rows(&self) -> usize {
        self.table.live_cells()
    }
}

/// The lock object. Its clone is what a fork makes of it.
#[derive(Clone)]
pub(crate) struct QCassandraLock {
    connection: Connection,
    wall_clock: Arc<WallClock>,
    host: u32,
    pid: u32,
    ticket_id: Vec<u8>,
    locked: bool,
}

impl Party for QCassandraLock {
    fn thread(&self) -> Self {
        QCassandraLock { ticket_id: Vec::new(), locked: false, ..self.clone() }
    }

    async fn lock(&mut self, terms: Terms) -> bool {
        self.unlock().await;
        let ticket = self.draw(terms).await;
        // What came before does not count as waiting.
        let deadline = Instant::now() + terms.wait;
        self.locked = self.wait(&ticket, deadline).await;
        if !self.locked {
            self.delete(TICKETS, &self.ticket_id).await;
        }
        self.locked
    }

    async fn unlock(&mut self) {
        // After a failed try the ticket stays in the object.
        if self.locked {
            self.delete(TICKETS, &self.ticket_id).await;
            self.locked = false;
            self.ticket_id.clear();
        }
    }

    fn is_inside(&self) -> bool {
        self.locked
    }
}

impl QCassandraLock {
    /// Goes through the doorway, and returns ticket, host and process id.
    async fn draw(&mut self, terms: Terms) -> Vec<u8> {
        let me = [self.host.to_be_bytes(), self.pid.to_be_bytes()].concat();
        self.insert(ENTERING, &me, terms.wait + ENTERING_MARGIN).await;
        let tickets = self.connection.slice(TICKETS, None, PAGE).await;
        let largest = tickets.iter().map(|key| ticket_number(key)).max().unwrap_or(0);
        let ticket = [&(largest + 1).to_be_bytes(), me.as_slice()].concat();
        // It is appended to whatever is there.
        self.ticket_id.extend(&ticket);
        self.insert(TICKETS, &self.ticket_id, terms.ttl).await;
        self.delete(ENTERING, &me).await;
        ticket
    }

    /// Waits for the contenders that are choosing, then for the smaller tickets. Does not look at
    /// its own.
    async fn wait(&self, ticket: &[u8], deadline: Instant) -> bool {
        for choosing in self.connection.slice(ENTERING, None, PAGE).await {
            if !self.gone(ENTERING, &choosing, deadline).await {
                return false;
            }
        }
        for key in self.connection.slice(TICKETS, Some(&self.ticket_id), PAGE).await {
            let is_before = key[..KEY_BYTES] < *ticket;
            if is_before && !self.gone(TICKETS, &key, deadline).await {
                return false;
            }
        }
        true
    }

    async fn gone(&self, row: &'static str, column: &[u8], deadline: Instant) -> bool {
        while self.connection.exists(row, column).await {
            sleep(POLL).await;
            if Instant::now() > deadline {
                return false;
            }
        }
        true
    }

    async fn insert(&self, row: &'static str, column: &[u8], ttl: Duration) {
        self.connection.insert(row, column, self.wall_clock.micros(), ttl).await;
    }

    async fn delete(&self, row: &'static str, column: &[u8]) {
        self.connection.delete(row, column, self.wall_clock.micros()).await;
    }
}

fn ticket_number(key: &[u8]) -> u32 {
    let number = key.first_chunk().expect("a key begins with its ticket");
    u32::from_be_bytes(*number)
}

/// The wall clock by which clients stamp what they write, in µs.
struct WallClock {
    began: Instant,
    behind: AtomicI64,
}

impl WallClock {
    fn new() -> Self {
        WallClock { began: Instant::now(), behind: AtomicI64::new(0) }
    }

    fn set_back(&self, by: Duration) {
        self.behind.fetch_add(micros(by), Ordering::Relaxed);
    }

    fn micros(&self) -> i64 {
        micros(self.began.elapsed()) - self.behind.load(Ordering::Relaxed)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a test does not run for a thousand years")
}
