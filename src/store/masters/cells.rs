//! What servers show of one hash, and what it comes to.
//!
//! Each server decides by its own clock whether its copy of a cell lives: the expiry was counted
//! from the arrival of the write there. Clocks of servers need not agree for a row to count; they
//! must not step.

use std::collections::BTreeMap;

use super::codec::{self, LAST_RELEASE, MARK, SWEEPS};
use crate::core::bakery::{Seen, Statics, StoredRow};
use crate::store::{DatabaseError, StoredMark, TimedRow};

/// Whether a cell was written or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It was written.
    Lives,
    /// It was deleted.
    Deleted,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// The write timestamp, in µs.
    pub(super) stamp: i64,
    /// Whether it was deleted.
    pub(super) kind: Kind,
    /// When it ends by the clock of its server, in ms since the Unix epoch.
    pub(super) ends_millis: i64,
    /// What was written.
    pub(super) content: String,
}

/// The end of cells that have none, as in the scripts.
const FOREVER_MILLIS: i64 = 999_999_999_999_999;

impl Cell {
    /// The order of writes: the higher stamp wins, then a delete, then the larger content. It is
    /// that of `write.lua`.
    fn rank(&self) -> (i64, Kind, &str) {
        (self.stamp, self.kind, &self.content)
    }
}

/// One server's copy of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copy {
    /// The server's clock, in ms since the Unix epoch.
    pub(super) now_millis: i64,
    /// Fields and values.
    pub(super) fields: Vec<(String, String)>,
}

/// The newest cell of a field, and how long it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Newest {
    cell: Cell,
    /// For how many ms it lives, by the server with the longest-lived copy.
    left_millis: i64,
}

/// What a majority of servers, or one of them, shows of a hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Merged {
    cells: BTreeMap<String, Newest>,
    sweeps: Vec<Sweep>,
}

impl Merged {
    /// Merges copies.
    ///
    /// # Errors
    ///
    /// Permanent: a value can't be read, so another program wrote it.
    pub(super) fn of(copies: &[Copy]) -> Result<Self, DatabaseError> {
        let mut merged = Merged::default();
        for copy in copies {
            for (field, value) in &copy.fields {
                if field == SWEEPS {
                    merged.sweeps.extend(sweeps(value).ok_or_else(|| unreadable(field, value))?);
                } else if field != "prune" {
                    let cell = codec::cell(value).ok_or_else(|| unreadable(field, value))?;
                    merged.take(field, cell, copy.now_millis);
                }
            }
        }
        Ok(merged)
    }

    fn take(&mut self, field: &str, cell: Cell, now_millis: i64) {
        let left_millis = match cell.kind {
            Kind::Lives => cell.ends_millis.saturating_sub(now_millis),
            Kind::Deleted => 0,
        };
        match self.cells.get_mut(field) {
            Some(newest) if newest.cell.rank() > cell.rank() => {}
            Some(newest) if newest.cell.rank() == cell.rank() => {
                if left_millis > newest.left_millis {
                    *newest = Newest { cell, left_millis };
                }
            }
            Some(newest) => *newest = Newest { cell, left_millis },
            None => drop(self.cells.insert(field.to_owned(), Newest { cell, left_millis })),
        }
    }

    /// The cell of a field, if it lives.
    pub(super) fn cell(&self, field: &str) -> Option<&Cell> {
        self.cells.get(field).filter(|newest| newest.left_millis > 0).map(|newest| &newest.cell)
    }

    /// All fields that live.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Cell)> {
        let live = self.cells.iter().filter(|(_, newest)| newest.left_millis > 0);
        live.map(|(field, newest)| (field.as_str(), &newest.cell))
    }

    /// The rows that live, with their times.
    ///
    /// # Errors
    ///
    /// Permanent: a row can't be read, so another program wrote it.
    pub(super) fn rows(&self) -> Result<Vec<TimedRow>, DatabaseError> {
        let mut rows = Vec::new();
        for (field, Newest { cell, left_millis }) in &self.cells {
            if !codec::is_row(field) || *left_millis <= 0 || self.hides(field, cell.stamp) {
                continue;
            }
            let row =
                codec::named(field).and_then(|(name, id)| codec::row(name, id, &cell.content));
            let row = row.ok_or_else(|| unreadable(field, &cell.content))?;
            let is_mortal = cell.ends_millis < FOREVER_MILLIS;
            let ttl_seconds = i32::try_from(left_millis / 1000).ok().filter(|_| is_mortal);
            rows.push(TimedRow { row, stamp: Some(cell.stamp), ttl_seconds });
        }
        Ok(rows)
    }

    /// The same without times, and the rest of what contenders look at.
    ///
    /// # Errors
    ///
    /// As for [`rows`](Self::rows).
    pub(super) fn seen(&self) -> Result<Seen, DatabaseError> {
        let rows: Vec<StoredRow> = self.rows()?.into_iter().map(|timed| timed.row).collect();
        let last_release = self.cell(LAST_RELEASE).and_then(codec::last_release);
        let mark = self.mark()?.map(|mark| mark.value);
        // Servers forget dead cells by themselves, so that nothing needs to be swept.
        Ok(Seen { rows, statics: Statics { last_release, mark }, many_dead: false })
    }

    /// The mark.
    ///
    /// # Errors
    ///
    /// As for [`rows`](Self::rows).
    pub(super) fn mark(&self) -> Result<Option<StoredMark>, DatabaseError> {
        let read = |cell: &Cell| {
            let value = codec::mark_value(&cell.content);
            let value = value.ok_or_else(|| unreadable(MARK, &cell.content))?;
            Ok(StoredMark { stamp: cell.stamp, value })
        };
        self.cell(MARK).map(read).transpose()
    }

    fn hides(&self, field: &str, stamp: i64) -> bool {
        self.sweeps.iter().any(|sweep| sweep.hides(field, stamp))
    }
}

/// A sweep of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sweep {
    horizon: i64,
    /// The contenders whose rows it leaves.
    spared: Vec<String>,
}

impl Sweep {
    fn hides(&self, field: &str, stamp: i64) -> bool {
        let contender = field.strip_prefix("e/");
        let is_spared = |contender: &str| self.spared.iter().any(|spared| spared == contender);
        stamp <= self.horizon && contender.is_some_and(|contender| !is_spared(contender))
    }
}

/// Reads the sweeps of an object, as `sweep.lua` writes them.
fn sweeps(value: &str) -> Option<Vec<Sweep>> {
    let sweep = |text: &str| {
        let mut parts = text.split(' ');
        let horizon = codec::mark_value(parts.next()?)?;
        let spared = parts.nth(1)?.split(',').filter(|spared| !spared.is_empty());
        Some(Sweep { horizon, spared: spared.map(str::to_owned).collect() })
    };
    value.split_terminator(';').map(sweep).collect()
}

fn unreadable(field: &str, value: &str) -> DatabaseError {
    let value: String = value.chars().take(100).collect();
    DatabaseError::permanent(format!(
        "the field {field:?} has the value {value:?}, which bakery-lock has not written: delete it"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::collection;
    use proptest::prelude::*;

    use super::*;
    use crate::core::bakery::{Claim, ContenderId, Mode, row_name};

    const NOW: i64 = 1_700_000_000_000;
    const ME: ContenderId = ContenderId { host: 1, client: 2, slot: 0 };

    fn value(stamp: i64, kind: char, ends: i64, content: &str) -> String {
        format!("{}{kind}{ends:015}{content}", codec::digits(stamp))
    }

    fn content(round: i64) -> String {
        let claim = Claim {
            contender: ME,
            round,
            mode: Mode::Exclusive,
            ticket: None,
            owner: "me".into(),
            held_since: None,
        };
        codec::row_content(&StoredRow::entering(&claim))
    }

    fn entering() -> String {
        codec::field(row_name::ENTERING, ME)
    }

    fn copy(fields: &[(String, String)]) -> Copy {
        Copy { now_millis: NOW, fields: fields.to_vec() }
    }

    fn rounds(copies: &[Copy]) -> Vec<Option<i64>> {
        let merged = Merged::of(copies).expect("it is readable");
        let rows = merged.rows().expect("they are readable");
        rows.iter().map(|timed| timed.row.round).collect()
    }

    // Goal: a row that one server still has is not seen where another one knows of its end.
    #[test]
    fn dead_cells_hide_older_ones_of_other_servers() {
        let old = copy(&[(entering(), value(5, 'L', NOW + 9_000, &content(5)))]);
        let deleted = copy(&[(entering(), value(5, 'D', NOW, ""))]);
        let expired = copy(&[(entering(), value(6, 'L', NOW, &content(6)))]);
        assert_eq!(rounds(std::slice::from_ref(&old)), [Some(5)]);
        for dead in [deleted, expired] {
            for copies in [[old.clone(), dead.clone()], [dead, old.clone()]] {
                assert_eq!(rounds(&copies), [], "{copies:?}");
            }
        }
    }

    // Goal: a server whose clock is hours off changes nothing, as it judges only itself.
    #[test]
    fn each_server_judges_by_its_own_clock() {
        let hour = 3_600_000;
        for offset in [-hour, 0, hour] {
            let now_millis = NOW + offset;
            let fields = vec![(entering(), value(5, 'L', now_millis + 1, &content(5)))];
            let other = Copy { now_millis, fields };
            let copies = [copy(&[(entering(), value(5, 'L', NOW, &content(5)))]), other];
            assert_eq!(rounds(&copies), [Some(5)]);
        }
    }

    #[test]
    fn sweep_of_one_server_hides_rows_of_another() {
        let other = ContenderId { host: 7, ..ME };
        let row = |id| (codec::field(row_name::ENTERING, id), value(5, 'L', NOW + 1, &content(5)));
        let rows = copy(&[row(ME), row(other)]);
        let sweep = |horizon, spared: &str| {
            let value = format!("{} {NOW} {spared};", codec::digits(horizon));
            copy(&[(SWEEPS.to_owned(), value)])
        };
        assert_eq!(rounds(&[rows.clone(), sweep(4, "")]).len(), 2);
        assert_eq!(rounds(&[rows.clone(), sweep(5, "")]).len(), 0);
        assert_eq!(rounds(&[rows, sweep(5, &other.to_string())]).len(), 1);
    }

    #[test]
    fn foreign_values_are_refused_in_words() {
        let foreign = ["x", "e/1/2/3"];
        for (field, value) in foreign.map(|field| (field.to_owned(), "hello".to_owned())) {
            let error = Merged::of(&[copy(&[(field.clone(), value)])]).expect_err("it is foreign");
            let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
            assert!(error.is_permanent() && cause.contains(&format!("{field:?}")), "{cause}");
        }
        let odd = copy(&[("e/here".to_owned(), value(1, 'L', NOW + 1, "x"))]);
        assert!(Merged::of(&[odd]).expect("its value is one").rows().is_err());
    }

    proptest! {
        // Whatever the order in which servers answer, all clients come to the same.
        #[test]
        fn order_of_answers_does_not_matter(
            cells in collection::vec((0_i64..4, any::<bool>(), -2_i64..3, 0_i64..3), 1..6),
        ) {
            let copies: Vec<_> = cells.iter().map(|&(stamp, lives, left, round)| {
                let kind = if lives { 'L' } else { 'D' };
                copy(&[(entering(), value(stamp, kind, NOW + left, &content(round)))])
            }).collect();
            let mut reversed = copies.clone();
            reversed.reverse();
            prop_assert_eq!(rounds(&copies), rounds(&reversed));
            // What a majority saw is what a larger one sees, unless that has something newer.
            let highest = cells.iter().map(|&(stamp, lives, ..)| (stamp, !lives)).max();
            let winners = cells.iter().filter(|it| Some((it.0, !it.1)) == highest);
            let round = winners.clone().map(|it| it.3).max();
            let lives = winners.filter(|it| Some(it.3) == round).any(|it| it.1 && it.2 > 0);
            let expected: Vec<_> = round.filter(|_| lives).map(Some).into_iter().collect();
            prop_assert_eq!(rounds(&copies), expected);
        }
    }
}
