//! Sweeps: one delete that hides the rows of all clients that left or died.
//!
//! Their rows are deleted or expired, but nodes keep them for `gc_grace`, and send them to the
//! coordinator with every whole read. Below a *sweep*, a range delete, nodes drop them at once, and
//! forget them with the next flush.
//!
//! A sweep has a *horizon*, its write timestamp: it hides what was written up to then. It must not
//! hide a row that counts. The stamps of a contender's rows are not below its round, so rows of
//! later rounds than the horizon are safe, and contenders of earlier ones are *spared*: the ranges
//! leave out their keys. A client does that in three steps, each after the acknowledgement of the
//! one before:
//!
//! 1. **Mark.** Write the horizon into the object's mark, which only grows.
//! 2. **Read** the whole object. Contenders of rounds up to the horizon are spared.
//! 3. **Sweep.** Delete all other rows that were written up to the horizon.
//!
//! A contender whose look shows a mark that is not below its own round begins a new one. Of a
//! contender with an earlier round, either the announcement was acknowledged before the read of
//! step 2 began, and that read shows it; or its look begins after the mark was acknowledged, and
//! shows the mark. It does not matter how far the clocks of clients are apart, from which rounds
//! and horizon come, and a client may stop for any time between the steps.

use std::collections::BTreeMap;
use std::time::Duration;

use super::row::{ContenderId, StoredRow};
use super::seeded_bug::SeededBug;

/// What was written in this time is left alone, apart from what clocks may differ by: the
/// announcement of a round may be repeated for a while until it is acknowledged.
const MARGIN: Duration = Duration::from_secs(3);

/// How much a horizon must be above the last mark. Clients that read the same mark may each sweep.
const STEP: Duration = Duration::from_secs(5);

/// Of the whole reads of an object that was swept before, this share begins a sweep though no node
/// warns: where very many clients left or died, others do, and fewer than a node warns of slow
/// reads down as well. A sweep has three operations: one more in about twenty acquisitions.
pub(crate) const SHARE_OF_READS: f64 = 1.0 / 64.0;

/// The maximum number of contenders that a sweep spares, those with the earliest rounds. Each adds
/// a range delete, and few contenders hold or wait for long.
const SPARED_MAX: usize = 16;

/// The largest mark above which a contender begins a round. No clock shows as much, in µs, so no
/// client ever writes a larger one: it was written by hand. Stamps above it would soon run out.
pub(crate) const MARK_MAX: i64 = i64::MAX / 2;

/// The horizon of a sweep, in µs, by the rows and the mark of a whole read; `None` if a sweep is of
/// no use yet.
///
/// `now` is the client's time, as far as the nodes' clocks confirm it: a mark has no TTL, and one
/// that is far ahead sends every contender back to a new round. The clock of another client may be
/// behind by twice `max_clock_skew`; the horizon stays below that, so that it sends back only
/// contenders whose first read is answered more than [`MARGIN`] after their announcement.
pub(crate) fn horizon(
    rows: &[StoredRow],
    mark: Option<i64>,
    now: i64,
    max_clock_skew: Duration,
) -> Option<i64> {
    let latest = now.checked_sub(micros(2 * max_clock_skew + MARGIN))?;
    let (mut spared, mut bounds) = (Vec::new(), Vec::new());
    for (contender, round) in rounds(rows) {
        if can_be_spared(contender) { spared.push(round) } else { bounds.push(round) }
    }
    spared.sort_unstable();
    bounds.extend(spared.into_iter().skip(SPARED_MAX));
    // Of a row without a round nothing is known.
    let bounds = bounds.into_iter().map(|round| round.map(|round| round.saturating_sub(1)));
    let horizon = bounds.chain([Some(latest)]).min()??;
    let is_due = mark.is_none_or(|mark| horizon >= mark.saturating_add(micros(STEP)));
    is_due.then_some(horizon)
}

/// By how much a contender raises its stamps that meets this mark, so that its next round is above
/// it: stamps grow by themselves. A look that took longer than sweeps wait for would meet the mark
/// of the next sweep as well, so that round is above the clock by as much as the look took.
pub(super) fn raise_above(mark: i64, round: i64, now: i64) -> i64 {
    let ahead = mark.saturating_sub(now).max(0);
    let looked_for = now.saturating_sub(round);
    let slow = if looked_for > micros(MARGIN) { looked_for } else { 0 };
    ahead.saturating_add(slow)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The earliest round of each contender; `None` if a row of it has none.
fn rounds(rows: &[StoredRow]) -> BTreeMap<ContenderId, Option<i64>> {
    let mut rounds = BTreeMap::new();
    for row in rows {
        let round = rounds.entry(row.contender).or_insert(row.round);
        *round = row.round.min(*round);
    }
    rounds
}

/// Whether the database has the key of this contender at its place in the order of `ContenderId`.
/// It orders uuids by their versions first (`UUIDType.java`), and those of clients have version 4.
fn can_be_spared(contender: ContenderId) -> bool {
    contender.client >> 76 & 0xF == 4
}

/// The mark that may replace one with this value and write stamp: one above the stamp. `None` if
/// none is needed, because a client wrote it, of which the value is the stamp; or none is possible.
///
/// It is a mark like all others, and needs no other step. A sweep up to some horizon relies on what
/// reads show once its own mark is acknowledged: that, or a mark with a higher stamp. The new one
/// is as high as its stamp.
pub(crate) fn repaired(value: i64, stamp: i64) -> Option<i64> {
    (value > stamp && stamp < MARK_MAX).then(|| stamp + 1)
}

/// How far a mark is ahead of what any client's clock may show, if it is: then some client's clock
/// was wrong when it swept the object.
pub(crate) fn ahead(mark: i64, now: i64, max_clock_skew: Duration) -> Option<Duration> {
    let ahead = u64::try_from(mark.saturating_sub(now)).ok().map(Duration::from_micros)?;
    (ahead > 2 * max_clock_skew).then_some(ahead)
}

/// The contenders that a sweep up to the horizon must spare, by the rows and the mark of a whole
/// read that began after the mark was acknowledged. `None` if it would hide a row that counts all
/// the same, or may: a mark that is not shown would stop no one.
pub(crate) fn spared(
    rows: &[StoredRow],
    mark: Option<i64>,
    horizon: i64,
) -> Option<Vec<ContenderId>> {
    if SeededBug::SweepUnchecked.is_planted() {
        return Some(Vec::new());
    }
    let is_earlier = |round: &Option<i64>| round.is_none_or(|round| round <= horizon);
    let rounds = rounds(rows).into_iter();
    let spared: Vec<_> =
        rounds.filter(|(_, round)| is_earlier(round)).map(|(contender, _)| contender).collect();
    let are_spared = spared.len() <= SPARED_MAX && spared.iter().all(|id| can_be_spared(*id));
    (mark >= Some(horizon) && are_spared).then_some(spared)
}

#[cfg(test)]
mod tests {
    use super::super::row::{Claim, Mode, row_name};
    use super::*;

    const SKEW: Duration = Duration::from_secs(1);
    const NOW: i64 = 1_700_000_000_000_000;

    /// The key of a contender, as clients choose theirs.
    fn contender(host: i32) -> ContenderId {
        ContenderId { host, client: 4 << 76, slot: 0 }
    }

    fn row(host: i32, round: Option<i64>) -> StoredRow {
        let claim = Claim {
            contender: contender(host),
            round: 0,
            mode: Mode::Exclusive,
            ticket: None,
            owner: "".into(),
            held_since: None,
        };
        StoredRow { round, ..StoredRow::entering(&claim) }
    }

    #[test]
    fn horizon_is_below_slow_clocks_and_unspared_rounds() {
        let horizon = |rows: &[StoredRow]| horizon(rows, None, NOW, SKEW);
        assert_eq!(horizon(&[]), Some(NOW - 5_000_000));
        let mut rows: Vec<_> = (1..=16).map(|host| row(host, Some(NOW - 9_000_000))).collect();
        assert_eq!(horizon(&rows), Some(NOW - 5_000_000), "they are spared");
        rows.push(row(17, Some(NOW - 7_000_000)));
        rows.push(row(18, Some(NOW - 6_000_000)));
        assert_eq!(horizon(&rows), Some(NOW - 7_000_001));
        let unknown = row(19, None);
        assert_eq!(horizon(std::slice::from_ref(&unknown)), Some(NOW - 5_000_000), "it is spared");
        let client = u128::MAX;
        let other_order = |round| StoredRow {
            contender: ContenderId { client, ..contender(1) },
            ..row(1, round)
        };
        assert_eq!(horizon(&[other_order(Some(NOW - 8_000_000))]), Some(NOW - 8_000_001));
        assert_eq!(horizon(&[other_order(None)]), None, "it may be of any round");
    }

    #[test]
    fn contenders_of_rounds_up_to_the_horizon_are_spared() {
        let revoked = |row: StoredRow| StoredRow { row_name: row_name::REVOKED.to_owned(), ..row };
        let rows = [row(3, Some(NOW)), row(1, Some(NOW + 1)), revoked(row(1, Some(NOW - 1)))];
        let spared = |rows: &[StoredRow], mark| spared(rows, Some(mark), NOW);
        assert_eq!(spared(&rows, NOW), Some(vec![contender(1), contender(3)]));
        assert_eq!(spared(&rows[1..2], NOW + 9), Some(vec![]), "it is of a later round");
        assert_eq!(spared(&[row(2, None)], NOW), Some(vec![contender(2)]));
        assert_eq!(spared(&rows, NOW - 1), None, "the mark is not shown");
        assert_eq!(super::spared(&[], None, NOW), None, "the mark is not shown");
        let many: Vec<_> = (1..=17).map(|host| row(host, Some(NOW))).collect();
        assert_eq!(spared(&many, NOW), None, "they are too many");
        let contender = ContenderId { client: u128::MAX, ..contender(1) };
        assert_eq!(spared(&[StoredRow { contender, ..row(1, Some(NOW)) }], NOW), None);
    }

    #[test]
    fn object_is_swept_from_time_to_time() {
        let step = 5_000_000;
        let seen = |mark| horizon(&[row(1, Some(NOW))], Some(mark), NOW + 2 * step, SKEW);
        assert_eq!(seen(NOW), Some(NOW + step));
        for mark in [NOW + 1, NOW + step, i64::MAX] {
            assert_eq!(seen(mark), None, "{mark}");
        }
    }

    #[test]
    fn mark_beyond_what_clocks_may_show_is_ahead() {
        let ahead = |mark| ahead(mark, NOW, SKEW);
        for mark in [i64::MIN, NOW, NOW + 2_000_000] {
            assert_eq!(ahead(mark), None, "{mark:?}");
        }
        assert_eq!(ahead(NOW + 2_000_001), Some(Duration::from_micros(2_000_001)));
        assert!(ahead(i64::MAX).is_some());
    }

    #[test]
    fn only_mark_above_its_stamp_is_repaired() {
        let cases = [
            ((NOW, NOW), None),
            ((NOW - 1, NOW), None),
            ((MARK_MAX, MARK_MAX), None),
            ((i64::MAX, i64::MAX), None),
            ((i64::MAX, MARK_MAX), None),
            ((NOW + 1, NOW), Some(NOW + 1)),
            ((i64::MAX, NOW), Some(NOW + 1)),
            ((i64::MAX, MARK_MAX - 1), Some(MARK_MAX)),
        ];
        for ((value, stamp), expected) in cases {
            assert_eq!(repaired(value, stamp), expected, "{value} at {stamp}");
        }
    }

    // Goal: from the acknowledgement of a client's mark on, reads show one that is not below it,
    // whatever is written by hand and repaired.
    // Method: all orders of four writes of the mark, and each state in between.
    #[test]
    fn repaired_mark_protects_each_sweep() {
        let stamps = [NOW - 7, NOW, NOW + 9];
        for by_hand in stamps {
            let new = repaired(i64::MAX, by_hand).expect("it is in reach");
            let writes = [(NOW - 6, NOW - 6), (by_hand, i64::MAX), (NOW + 8, NOW + 8), (new, new)];
            for applied in 1_u8..16 {
                let is_applied = |&(index, _): &(usize, _)| applied & (1 << index) != 0;
                let there = writes.iter().enumerate().filter(is_applied).map(|(_, write)| *write);
                let there: Vec<_> = there.collect();
                let (_, shown) = *there.iter().max().expect("one is there");
                let swept = there.iter().filter(|(stamp, value)| stamp == value);
                assert!(swept.clone().all(|(horizon, _)| shown >= *horizon), "{there:?}");
            }
        }
    }

    #[test]
    fn slow_look_is_raised_above_the_marks_that_follow() {
        let second = 1_000_000;
        let raise = |mark, round| raise_above(mark, round, NOW);
        assert_eq!(raise(NOW - second, NOW - second), 0, "the next stamp is above it");
        assert_eq!(raise(NOW + second, NOW - second), second);
        assert_eq!(raise(NOW - 5 * second, NOW - 9 * second), 9 * second);
        assert_eq!(raise(NOW + 5 * second, NOW - 9 * second), 14 * second);
        assert_eq!(raise(i64::MAX, i64::MIN), i64::MAX);
    }
}
