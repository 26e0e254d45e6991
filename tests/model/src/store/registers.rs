//! Each row is a register of its own, and a regular one, which is all that the protocol needs
//! (design section 4): a read shows of each row what was there when it began, or what any write
//! brought that was under way since, so it may show one row as it was before another one, old
//! values after new ones, and of one write the one half without the other.
//!
//! It is weaker than replicas and quorums, and needs fewer states: a read has no stages, it only
//! gathers what it may answer.

use std::fmt;

use super::{
    Cell, Content, ENTERING, EXPIRED, Effects, KINDS, REVOKED, SeenRow, Store, rows_asked,
    stamp_of_round,
};
use crate::core::bakery::Read;
use crate::scenario::Scenario;

/// The rows as registers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Registers {
    contenders: usize,
    rows: Vec<Register>,
    readings: Vec<Option<Reading>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Register {
    acknowledged: Cell,
    /// Writes above that one that may be seen, and may be not.
    under_way: Vec<Cell>,
}

/// A read under way: of each row asked for all that it may show.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reading {
    asked: Vec<usize>,
    possible: Vec<Vec<Option<Content>>>,
}

/// How a request gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The write is acknowledged.
    Acknowledged,
    /// The read shows one of the possible contents of each row, chosen by a number.
    Choice(u32),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Acknowledged => f.write_str("its write is acknowledged"),
            Way::Choice(choice) => write!(f, "its read is answered in way {choice}"),
        }
    }
}

impl Store for Registers {
    type Way = Way;

    fn new(scenario: &Scenario) -> Self {
        let (contenders, places) = (scenario.requests.len(), scenario.places());
        let rows = vec![Register::default(); places * KINDS];
        Registers { contenders, rows, readings: vec![None; places] }
    }

    fn send(&mut self, write: Effects) {
        for (row, cell) in cells_of(write) {
            let register = &mut self.rows[row];
            if cell.beats(register.acknowledged) && !register.under_way.contains(&cell) {
                register.under_way.push(cell);
                for reading in self.readings.iter_mut().flatten() {
                    reading.may_show(row, cell.content);
                }
            }
        }
    }

    fn acknowledgements(&self, _write: Effects) -> Vec<Way> {
        vec![Way::Acknowledged]
    }

    fn acknowledge(&mut self, write: Effects, _way: Way) {
        for (row, cell) in cells_of(write) {
            let register = &mut self.rows[row];
            if cell.beats(register.acknowledged) {
                register.acknowledged = cell;
            }
        }
    }

    fn begin_read(&mut self, reader: usize, read: Read, write: Option<Effects>) {
        assert!(write.is_none(), "a register is no replica, which could do both as a unit");
        let asked = rows_asked(read, self.readings.len());
        let mut reading = Reading { possible: vec![Vec::new(); asked.len()], asked };
        for (row, register) in self.rows.iter().enumerate() {
            for cell in register.under_way.iter().chain([&register.acknowledged]) {
                reading.may_show(row, cell.content);
            }
        }
        self.readings[reader] = Some(reading);
    }

    fn forget_read(&mut self, reader: usize) {
        self.readings[reader] = None;
    }

    fn readings(&self, reader: usize) -> Vec<Way> {
        let Some(reading) = &self.readings[reader] else { return Vec::new() };
        let choices = reading.possible.iter().map(Vec::len).product::<usize>();
        let choices = u32::try_from(choices).expect("a model has few rows");
        (0..choices).map(Way::Choice).collect()
    }

    fn read_on(&mut self, reader: usize, way: Way) -> Option<Vec<SeenRow>> {
        let Way::Choice(choice) = way else { unreachable!("a read is not answered as a write") };
        let reading = self.readings[reader].take().expect("a read was sent before its answer");
        let mut choice = usize::try_from(choice).expect("it was made of a small number");
        let rows = reading.asked.into_iter().zip(reading.possible).filter_map(|(row, possible)| {
            let content = possible[choice % possible.len()];
            choice /= possible.len();
            Some(SeenRow { contender: row / KINDS, kind: row % KINDS, content: content? })
        });
        Some(rows.collect())
    }

    fn expire(&mut self, contender: usize) {
        self.send(Effects::expiry(contender));
    }

    fn calm_down(&mut self) {
        for register in &mut self.rows {
            for cell in std::mem::take(&mut register.under_way) {
                if cell.beats(register.acknowledged) {
                    register.acknowledged = cell;
                }
            }
        }
    }

    fn tidy(&mut self) {
        for register in &mut self.rows {
            let acknowledged = register.acknowledged;
            register.under_way.retain(|cell| cell.beats(acknowledged));
            register.under_way.sort_unstable();
        }
        for possible in self.readings.iter_mut().flatten().flat_map(|r| &mut r.possible) {
            possible.sort_unstable();
        }
    }

    fn newest_stamps(&self, contender: usize, round: i64) -> Vec<i64> {
        let register = &self.rows[contender * KINDS + ENTERING];
        let seen = register.under_way.iter().chain([&register.acknowledged]);
        seen.filter_map(|cell| stamp_of_round(*cell, round)).collect()
    }

    fn shows_rows(&self) -> bool {
        let rows = self.rows.iter().take(self.contenders * KINDS).enumerate();
        let rows = rows.filter(|(row, _)| row % KINDS != REVOKED);
        rows.map(|(_, register)| register).any(|register| {
            let expires = register.under_way.iter().any(|cell| cell.stamp == EXPIRED);
            let mut cells = register.under_way.iter().chain([&register.acknowledged]);
            !expires && cells.any(|cell| cell.content.is_some())
        })
    }
}

impl Reading {
    fn may_show(&mut self, row: usize, content: Option<Content>) {
        if let Ok(place) = self.asked.binary_search(&row)
            && !self.possible[place].contains(&content)
        {
            self.possible[place].push(content);
        }
    }
}

/// The cells of a write, with the numbers of their rows.
fn cells_of(write: Effects) -> impl Iterator<Item = (usize, Cell)> {
    let first = write.contender * KINDS;
    let cells = write.cells.into_iter().enumerate();
    cells.filter_map(move |(kind, cell)| Some((first + kind, cell?)))
}
