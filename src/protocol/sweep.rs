//! Sweeps: one delete that hides the rows of all clients that left or died.
//!
//! Their rows are deleted or expired, but nodes keep them for `gc_grace`, and send them to the
//! coordinator with every whole read. Below a *sweep*, a range delete, nodes drop them at once, and
//! forget them with the next flush.
//!
//! A sweep has a *horizon*, its write timestamp: it hides what was written up to then. It must not
//! hide a row that counts. The stamps of a contender's rows are not below its round, so a horizon
//! below the rounds of all contenders is safe. A client makes it so in three steps, each after the
//! acknowledgement of the one before:
//!
//! 1. **Mark.** Write the horizon into the object's mark, which only grows.
//! 2. **Read** the whole object. A row of a round up to the horizon ends the sweep.
//! 3. **Sweep.** Delete all rows that were written up to the horizon.
//!
//! A contender whose look shows a mark that is not below its own round begins a new one. So of a
//! contender with an earlier round, either the announcement was acknowledged before the read of
//! step 2 began, and that shows it; or its look begins after the mark was acknowledged, and shows
//! that. It does not matter how far the clocks of clients are apart, from which rounds and horizon
//! come, and a client may stop for any time between the steps.

use std::time::Duration;

use super::row::StoredRow;
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
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let latest = now.checked_sub(micros(2 * max_clock_skew + MARGIN))?;
    let rounds = rows.iter().map(|row| row.round.map(|round| round.saturating_sub(1)));
    // Of a row without a round nothing is known.
    let horizon = rounds.chain([Some(latest)]).min()??;
    let is_due = mark.is_none_or(|mark| horizon >= mark.saturating_add(micros(STEP)));
    is_due.then_some(horizon)
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

/// Whether a sweep up to the horizon hides no row that counts, by the rows and the mark of a whole
/// read that began after the mark was acknowledged. A mark that is not shown would stop no one.
pub(crate) fn is_clear(rows: &[StoredRow], mark: Option<i64>, horizon: i64) -> bool {
    let is_later = |row: &StoredRow| row.round.is_some_and(|round| round > horizon);
    let is_clear = mark >= Some(horizon) && rows.iter().all(is_later);
    SeededBug::SweepUnchecked.is_planted() || is_clear
}

#[cfg(test)]
mod tests {
    use super::super::row::{Claim, ContenderId, Mode};
    use super::*;

    const SKEW: Duration = Duration::from_secs(1);
    const NOW: i64 = 1_700_000_000_000_000;

    fn row(round: Option<i64>) -> StoredRow {
        let claim = Claim {
            contender: ContenderId { host: 1, client: 2, slot: 0 },
            round: 0,
            mode: Mode::Exclusive,
            ticket: None,
            owner: String::new(),
            held_since: None,
        };
        StoredRow { round, ..StoredRow::entering(&claim) }
    }

    #[test]
    fn a_horizon_is_below_every_round_and_below_clocks_that_are_behind() {
        let horizon = |rows: &[StoredRow]| horizon(rows, None, NOW, SKEW);
        assert_eq!(horizon(&[]), Some(NOW - 5_000_000));
        let rows = [row(Some(NOW)), row(Some(NOW - 7_000_000))];
        assert_eq!(horizon(&rows), Some(NOW - 7_000_001));
        assert_eq!(horizon(&rows[..1]), Some(NOW - 5_000_000));
        assert_eq!(horizon(&[row(None)]), None, "it may be of any round");
    }

    #[test]
    fn an_object_is_swept_from_time_to_time() {
        let step = 5_000_000;
        let seen = |mark| horizon(&[row(Some(NOW))], Some(mark), NOW + 2 * step, SKEW);
        assert_eq!(seen(NOW - 1 - step), Some(NOW - 1));
        for mark in [NOW - step, NOW, NOW + step, i64::MAX] {
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
    fn a_sweep_hides_no_row_of_a_later_round() {
        assert!(is_clear(&[], Some(NOW), NOW));
        assert!(is_clear(&[row(Some(NOW + 1))], Some(NOW + 1), NOW));
        for round in [Some(NOW), Some(NOW - 1), None] {
            assert!(!is_clear(&[row(Some(NOW + 1)), row(round)], Some(NOW), NOW), "{round:?}");
        }
        for mark in [None, Some(NOW - 1)] {
            assert!(!is_clear(&[], mark, NOW), "{mark:?} sends no contender back");
        }
    }
}
