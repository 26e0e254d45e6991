//! One sweep of an object: it hides the rows of clients that left or died.
//!
//! Each step is one try: a later read calls for another sweep. What was sent may be applied later,
//! which is harmless.

use std::collections::VecDeque;
use std::time::Duration;

use super::io::{Now, Output, Report};
use crate::core::bakery::{Change, Seen, Write, sweep};

/// Before a sweep begins, up to this time passes at random, and the object is read again. Of many
/// clients that met the same dead rows, the first one has swept it by then.
const SPREAD: Duration = Duration::from_secs(1);

/// A sweep under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sweep {
    /// It has yet to begin.
    Pausing {
        /// When.
        begins: Duration,
        /// How far the clocks of two nodes may differ.
        max_clock_skew: Duration,
    },
    /// The object is read for the horizon.
    Reading {
        /// How far the clocks of two nodes may differ.
        max_clock_skew: Duration,
    },
    /// The mark is being written.
    Marking(i64),
    /// The object is read for the contenders to spare.
    Sparing(i64),
    /// The rows are being deleted.
    Sweeping(i64),
}

impl Sweep {
    /// A sweep, if a whole read calls for one: if it met very many dead rows; and, from time to
    /// time, if it shows that the object was swept before.
    pub(super) fn called_for(now: Now, seen: &Seen, max_clock_skew: Duration) -> Option<Self> {
        let was_swept = seen.statics.mark.is_some();
        let by_chance = now.chance < sweep::SHARE_OF_READS;
        if !(seen.many_dead || was_swept && by_chance) {
            return None;
        }
        sweep::horizon(&seen.rows, seen.statics.mark, now.wall, max_clock_skew)?;
        let begins = now.elapsed + SPREAD.mul_f64(now.jitter);
        Some(Sweep::Pausing { begins, max_clock_skew })
    }

    /// When it continues by itself.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Sweep::Pausing { begins, .. } => Some(*begins),
            Sweep::Reading { .. } | Sweep::Marking(_) | Sweep::Sparing(_) | Sweep::Sweeping(_) => {
                None
            }
        }
    }

    pub(super) fn tick(self, now: Now, outputs: &mut VecDeque<Output>) -> Self {
        if let Sweep::Pausing { begins, max_clock_skew } = self
            && begins <= now.elapsed
        {
            outputs.push_back(Output::SweepRead);
            return Sweep::Reading { max_clock_skew };
        }
        self
    }

    /// Handles the answer to a read; what failed ends the sweep.
    pub(super) fn read(
        self,
        now: Now,
        seen: Option<Seen>,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Self> {
        let Seen { rows, statics, .. } = seen?;
        match self {
            Sweep::Reading { max_clock_skew } => {
                let horizon = sweep::horizon(&rows, statics.mark, now.wall, max_clock_skew)?;
                let write = Write { stamp: horizon, change: Change::Mark };
                outputs.push_back(Output::SweepWrite(write));
                Some(Sweep::Marking(horizon))
            }
            Sweep::Sparing(horizon) => {
                let spared = sweep::spared(&rows, statics.mark, horizon)?;
                let write = Write { stamp: horizon, change: Change::Sweep { spared } };
                outputs.push_back(Output::SweepWrite(write));
                Some(Sweep::Sweeping(horizon))
            }
            Sweep::Pausing { .. } | Sweep::Marking(_) | Sweep::Sweeping(_) => Some(self),
        }
    }

    /// Handles the answer to a write.
    pub(super) fn written(
        self,
        is_acknowledged: bool,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Self> {
        match self {
            _ if !is_acknowledged => None,
            Sweep::Marking(horizon) => {
                outputs.push_back(Output::SweepRead);
                Some(Sweep::Sparing(horizon))
            }
            Sweep::Sweeping(horizon) => {
                outputs.push_back(Output::Report(Report::Swept { horizon }));
                None
            }
            Sweep::Pausing { .. } | Sweep::Reading { .. } | Sweep::Sparing(_) => Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::bakery::Statics;

    const SKEW: Duration = Duration::from_secs(1);
    const WALL: i64 = 1_700_000_000_000_000;

    fn now(elapsed: u64) -> Now {
        let elapsed = Duration::from_millis(elapsed);
        Now { elapsed, boot: elapsed, wall: WALL, stamp: WALL, jitter: 0.5, chance: 0.5 }
    }

    fn seen(mark: Option<i64>, many_dead: bool) -> Seen {
        Seen { rows: Vec::new(), statics: Statics { mark, ..Statics::default() }, many_dead }
    }

    /// A sweep, and what it asks for.
    struct Script(Option<Sweep>, VecDeque<Output>);

    impl Script {
        fn begins() -> Self {
            let sweep = Sweep::called_for(now(0), &seen(None, true), SKEW);
            let mut script = Script(sweep, VecDeque::new());
            assert_eq!(script.0.expect("it is called for").deadline(), Some(now(500).elapsed));
            script.step(|sweep, outputs| Some(sweep.tick(now(499), outputs)));
            assert_eq!(script.1.pop_front(), None);
            script.step(|sweep, outputs| Some(sweep.tick(now(500), outputs)));
            script
        }

        fn step(&mut self, step: impl FnOnce(Sweep, &mut VecDeque<Output>) -> Option<Sweep>) {
            self.0 = self.0.and_then(|sweep| step(sweep, &mut self.1));
        }

        fn reads(&mut self, seen: Option<Seen>) -> &mut Self {
            assert_eq!(self.1.pop_front(), Some(Output::SweepRead));
            self.step(|sweep, outputs| sweep.read(now(600), seen, outputs));
            self
        }

        fn writes(&mut self, change: Change, is_acknowledged: bool) -> &mut Self {
            let write = Write { stamp: HORIZON, change };
            assert_eq!(self.1.pop_front(), Some(Output::SweepWrite(write)));
            self.step(|sweep, outputs| sweep.written(is_acknowledged, outputs));
            self
        }

        fn is_over(&self) -> bool {
            self.0.is_none() && self.1.is_empty()
        }
    }

    /// Below the clock by twice the skew and three seconds.
    const HORIZON: i64 = WALL - 5_000_000;

    #[test]
    fn mark_is_acknowledged_and_seen_before_rows_are_deleted() {
        let mut script = Script::begins();
        script.reads(Some(seen(None, true))).writes(Change::Mark, true);
        script.reads(Some(seen(Some(HORIZON), true)));
        script.writes(Change::Sweep { spared: Vec::new() }, true);
        let swept = Output::Report(Report::Swept { horizon: HORIZON });
        assert_eq!(script.1.pop_front(), Some(swept));
        assert!(script.is_over());
    }

    #[test]
    fn failed_step_ends_sweep() {
        assert!(Script::begins().reads(None).is_over());
        let swept_by_another = Some(seen(Some(HORIZON - 1), true));
        assert!(Script::begins().reads(swept_by_another).is_over());
        let marks = |is_acknowledged| {
            let mut script = Script::begins();
            script.reads(Some(seen(None, true))).writes(Change::Mark, is_acknowledged);
            script
        };
        assert!(marks(false).is_over());
        assert!(marks(true).reads(None).is_over());
        assert!(marks(true).reads(Some(seen(None, true))).is_over(), "its mark is not shown");
    }

    #[test]
    fn sweep_is_called_for_by_dead_rows_or_by_chance() {
        let called_for =
            |seen: &Seen, chance| Sweep::called_for(Now { chance, ..now(0) }, seen, SKEW).is_some();
        let old_mark = Some(HORIZON - 5_000_000);
        assert!(called_for(&seen(old_mark, true), 0.9));
        assert!(called_for(&seen(old_mark, false), 0.01));
        assert!(!called_for(&seen(old_mark, false), 0.1));
        assert!(!called_for(&seen(None, false), 0.0));
        assert!(!called_for(&seen(Some(HORIZON - 1), true), 0.0), "another one has swept it");
    }
}
