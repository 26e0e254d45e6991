//! Three replicas. A write is acknowledged when a quorum has it, and a read is answered when a
//! quorum has answered, each at a moment of its own; of each row the newest answer counts.
//!
//! Three reductions keep the search small, and lose nothing:
//!
//! * A write reaches a replica just before a contender can tell: before a read of that replica, or
//!   before its acknowledgement. Earlier and later make no difference to any contender.
//! * What a quorum has of a row, or something newer, hides what is older: every read meets one of
//!   that quorum, so replicas that are behind catch up at once, unless a read under way has been
//!   answered by one that was behind as well; and with them what it was answered.
//! * Replicas that change places are the same replicas, so they are kept in order.

use std::cmp::Reverse;
use std::fmt;

use super::{
    Cell, ENTERING, EXPIRED, Effects, KINDS, REVOKED, SeenRow, Store, rows_asked, stamp_of_round,
};
use crate::core::bakery::Read;
use crate::scenario::Scenario;

const REPLICAS: usize = 3;

/// The rows on three replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replicas {
    contenders: usize,
    quorum: usize,
    catches_up: bool,
    replicas: [Replica; REPLICAS],
    under_way: Vec<Effects>,
    readings: Vec<Option<Reading>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Replica {
    /// Those whose reads it has answered.
    answered: u8,
    rows: Vec<Cell>,
}

/// A read under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reading {
    asked: Vec<usize>,
    /// What each replica writes before it answers.
    write: Option<Effects>,
    answers: usize,
    /// The newest of what was answered, of each row asked for.
    seen: Vec<Cell>,
}

/// How a request gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// These replicas get the write, which makes a quorum. Each replica is a bit.
    Reach(u8),
    /// This replica answers the read, after these writes under way have reached it.
    Answer { replica: u8, after: u16 },
}

/// Replicas have no names: they are kept in order.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Reach(_) => f.write_str("its write is acknowledged"),
            Way::Answer { after: 0, .. } => f.write_str("a replica answers its read"),
            Way::Answer { after, .. } => {
                write!(f, "a replica answers its read (late writes: {})", after.count_ones())
            }
        }
    }
}

impl Store for Replicas {
    type Way = Way;

    fn new(scenario: &Scenario) -> Self {
        let (contenders, quorum) = (scenario.requests.len(), scenario.quorum());
        let places = scenario.places();
        let rows = vec![Cell::default(); places * KINDS];
        let replica = Replica { answered: 0, rows };
        let replicas = [replica.clone(), replica.clone(), replica];
        let readings = vec![None; places];
        let catches_up = scenario.reduced;
        Replicas { contenders, quorum, catches_up, replicas, under_way: Vec::new(), readings }
    }

    fn send(&mut self, write: Effects) {
        self.under_way.push(write);
    }

    fn acknowledgements(&self, write: Effects) -> Vec<Way> {
        let lacking = |reached: u8| {
            let lacks = |(i, replica): (usize, &Replica)| {
                reached & (1 << i) == 0 && replica.is_changed_by(write)
            };
            self.replicas.iter().enumerate().filter(|&each| lacks(each)).count()
        };
        let had = REPLICAS - lacking(0);
        let missing = self.quorum.saturating_sub(had);
        let sets = (0..1_u8 << REPLICAS).filter(|set| set.count_ones() as usize == missing);
        // Of replicas that are alike the first ones get it.
        let first = |set: &u8| {
            let lies = |i: usize| set & (1 << i) != 0;
            let replicas = &self.replicas;
            !(0..REPLICAS)
                .any(|i| lies(i) && (0..i).any(|j| !lies(j) && replicas[j] == replicas[i]))
        };
        let sets = sets.filter(first);
        sets.filter(|set| REPLICAS - lacking(*set) == had + missing).map(Way::Reach).collect()
    }

    fn acknowledge(&mut self, write: Effects, way: Way) {
        let Way::Reach(set) = way else { unreachable!("a write is not answered as a read") };
        for i in (0..REPLICAS).filter(|i| set & (1 << i) != 0) {
            self.replicas[i].take(write);
        }
    }

    fn begin_read(&mut self, reader: usize, read: Read, write: Option<Effects>) {
        self.forget_read(reader);
        let asked = rows_asked(read, self.readings.len());
        let seen = vec![Cell::default(); asked.len()];
        self.readings[reader] = Some(Reading { asked, write, answers: 0, seen });
    }

    fn forget_read(&mut self, reader: usize) {
        self.readings[reader] = None;
        for replica in &mut self.replicas {
            replica.answered &= !(1 << reader);
        }
    }

    fn readings(&self, reader: usize) -> Vec<Way> {
        let Some(reading) = &self.readings[reader] else { return Vec::new() };
        let mut ways = Vec::new();
        for (i, replica) in self.replicas.iter().enumerate() {
            let known = self.replicas[..i].contains(replica);
            if known || replica.answered & (1 << reader) != 0 {
                continue;
            }
            let mut answers = Vec::new();
            for after in self.subsets_noticed(replica, &reading.asked) {
                let mut reached = replica.clone();
                self.reach(&mut reached, after);
                reading.write.into_iter().for_each(|write| reached.take(write));
                if !answers.contains(&reached) {
                    answers.push(reached);
                    let replica = u8::try_from(i).expect("there are few replicas");
                    ways.push(Way::Answer { replica, after });
                }
            }
        }
        ways
    }

    fn read_on(&mut self, reader: usize, way: Way) -> Option<Vec<SeenRow>> {
        let Way::Answer { replica, after } = way else {
            unreachable!("a read is not answered as a write")
        };
        let mut replica_reached = self.replicas[usize::from(replica)].clone();
        self.reach(&mut replica_reached, after);
        replica_reached.answered |= 1 << reader;
        let reading = self.readings[reader].as_mut().expect("a read was sent before its answer");
        reading.write.into_iter().for_each(|write| replica_reached.take(write));
        reading.answers += 1;
        for (seen, row) in reading.seen.iter_mut().zip(&reading.asked) {
            let cell = replica_reached.rows[*row];
            if cell.beats(*seen) {
                *seen = cell;
            }
        }
        let rows = (reading.answers == self.quorum).then(|| reading.rows());
        self.replicas[usize::from(replica)] = replica_reached;
        if rows.is_some() {
            self.forget_read(reader);
        }
        rows
    }

    fn expire(&mut self, contender: usize) {
        self.under_way.push(Effects::expiry(contender));
    }

    fn calm_down(&mut self) {
        for write in std::mem::take(&mut self.under_way) {
            for replica in &mut self.replicas {
                replica.take(write);
            }
        }
    }

    fn tidy(&mut self) {
        if self.catches_up {
            self.catch_up();
        }
        let replicas = &mut self.replicas;
        self.under_way.retain(|write| replicas.iter().any(|replica| replica.is_changed_by(*write)));
        self.under_way.sort_unstable();
        self.under_way.dedup();
        replicas.sort_unstable();
    }

    fn newest_stamps(&self, contender: usize, round: i64) -> Vec<i64> {
        let mut calm = self.clone();
        calm.calm_down();
        let mut stamps = Vec::new();
        for set in (0..1_usize << REPLICAS).filter(|set| set.count_ones() as usize == self.quorum) {
            for replicas in [&self.replicas, &calm.replicas] {
                let answers = (0..REPLICAS).filter(|i| set & (1 << i) != 0).map(|i| &replicas[i]);
                let cells = answers.map(|answer| answer.rows[contender * KINDS + ENTERING]);
                let newer = |seen, cell: Cell| if cell.beats(seen) { cell } else { seen };
                stamps.extend(stamp_of_round(cells.fold(Cell::default(), newer), round));
            }
        }
        stamps.sort_unstable();
        stamps.dedup();
        stamps
    }

    fn shows_rows(&self) -> bool {
        (0..self.contenders * KINDS).filter(|row| row % KINDS != REVOKED).any(|row| {
            let stored = self.replicas.iter().map(|replica| replica.rows[row]);
            let under_way = self.under_way.iter().filter(|write| write.contender == row / KINDS);
            let under_way = under_way.filter_map(|write| write.cells[row % KINDS]);
            let cells: Vec<_> = stored.chain(under_way).collect();
            let newest = cells.iter().filter(|cell| cell.content.is_some()).map(|cell| cell.stamp);
            let Some(newest) = newest.max() else { return false };
            let hidden = self.replicas.iter().filter(|replica| {
                replica.rows[row].content.is_none() && replica.rows[row].stamp >= newest
            });
            let expires = cells.iter().any(|cell| cell.stamp == EXPIRED);
            !expires && hidden.count() + self.quorum <= REPLICAS
        })
    }
}

impl Replicas {
    /// Lets replicas that are behind catch up where no contender can tell.
    fn catch_up(&mut self) {
        for row in 0..self.readings.len() * KINDS {
            let mut cells = self.replicas.each_ref().map(|replica| replica.rows[row]);
            cells.sort_unstable_by_key(|cell| Reverse(cell.order()));
            // Enough have it that every quorum meets one.
            let known = cells[REPLICAS - self.quorum];
            for i in 0..REPLICAS {
                let replica = &self.replicas[i];
                let awaited = self.readings.iter().enumerate().filter_map(|(reader, reading)| {
                    reading.as_ref().filter(|_| replica.answered & (1 << reader) == 0)
                });
                let tells = |reading: &Reading| reading.has_seen_less(row, known);
                if known.beats(replica.rows[row]) && !awaited.into_iter().any(tells) {
                    self.replicas[i].rows[row] = known;
                }
            }
            for (reader, reading) in self.readings.iter_mut().enumerate() {
                let unanswered = |replica: &&Replica| replica.answered & (1 << reader) == 0;
                let mut awaited = self.replicas.iter().filter(unanswered);
                if let Some(reading) = reading.as_mut().filter(|r| r.has_seen_less(row, known))
                    && awaited.all(|replica| !known.beats(replica.rows[row]))
                    && let Some(place) = reading.place(row)
                {
                    reading.seen[place] = known;
                }
            }
        }
    }

    /// Sets of writes under way that a read of these rows of a replica can notice. Each is a bit.
    fn subsets_noticed(
        &self,
        replica: &Replica,
        asked: &[usize],
    ) -> impl Iterator<Item = u16> + use<> {
        let noticed = self.under_way.iter().enumerate().filter(|(_, write)| {
            let rows = replica.changes_of(**write);
            rows.into_iter().flatten().any(|(row, _)| asked.contains(&row))
        });
        let noticed = noticed.fold(0_u16, |set, (i, _)| set | 1 << i);
        (0..=noticed).filter(move |set| set & !noticed == 0)
    }

    fn reach(&self, replica: &mut Replica, set: u16) {
        for (i, write) in self.under_way.iter().enumerate() {
            if set & (1 << i) != 0 {
                replica.take(*write);
            }
        }
    }
}

impl Replica {
    fn changes_of(&self, write: Effects) -> [Option<(usize, Cell)>; KINDS] {
        let mut kind = 0;
        write.cells.map(|cell| {
            let row = write.contender * KINDS + kind;
            kind += 1;
            cell.filter(|cell| cell.beats(self.rows[row])).map(|cell| (row, cell))
        })
    }

    fn is_changed_by(&self, write: Effects) -> bool {
        self.changes_of(write).iter().any(Option::is_some)
    }

    fn take(&mut self, write: Effects) {
        for (row, cell) in self.changes_of(write).into_iter().flatten() {
            self.rows[row] = cell;
        }
    }
}

impl Reading {
    /// Whether it was answered, and not with what a quorum knows by now.
    fn has_seen_less(&self, row: usize, known: Cell) -> bool {
        let seen = self.place(row).map(|place| self.seen[place]);
        self.answers > 0 && seen.is_some_and(|seen| known.beats(seen))
    }

    /// Where a row stands among those asked for.
    fn place(&self, row: usize) -> Option<usize> {
        self.asked.binary_search(&row).ok()
    }

    fn rows(&self) -> Vec<SeenRow> {
        let rows = self.asked.iter().zip(&self.seen);
        rows.filter_map(|(row, cell)| SeenRow::of(*row, *cell)).collect()
    }
}
