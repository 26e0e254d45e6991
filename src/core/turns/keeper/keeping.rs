//! Idle places that are kept, because the object is used again and again.
//!
//! A kept place is one that is held with no turn out. The next turn costs no operation of the
//! database; meanwhile others find the object taken. So it is kept only for about as long as it was
//! unused before, it is never renewed, and contenders that wait in the table end it.

use std::time::Duration;

use super::io::{KeeperOutput, KeptEnd};
use super::{Held, Keeper, LineUser, Place, mode};
use crate::core::bakery::{Mode, SeededBug};
use crate::core::turns::messages::Now;

/// A place is kept for this many times the mean time between two turns.
const GAPS: u32 = 2;

/// A place that is kept at all is kept for this long: so long goes by before the first look at the
/// table in any case.
const KEPT_MIN: Duration = FIRST_LOOK;

/// The first look for contenders in the table comes this long after the last turn. Each further one
/// comes when twice as much time has passed, so that a contender that waits there finds the place
/// taken for no longer than it was unused before.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// After a contender waited in the table, places of the object are not kept for this long, and for
/// twice as long each further time, up to the maximum.
const BAR_MIN: Duration = Duration::from_secs(1);
const BAR_MAX: Duration = Duration::from_secs(60);

/// How an object is used, in all rounds of this client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Usage {
    /// When the last turn ended, by boot time; `None` while one is out, and before the first one.
    ended: Option<Duration>,
    /// The mean time between the end of a turn and the next one, if there was a next one.
    mean_gap: Option<Duration>,
    /// When this says nothing any more.
    counts_until: Duration,
    bar: Option<Bar>,
}

/// Places of the object are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bar {
    length: Duration,
    until: Duration,
}

impl Usage {
    /// The usage of an object with so much time between two turns.
    #[cfg(any(test, instrumented))]
    pub(crate) fn with_mean_gap(mean_gap: Duration) -> Self {
        Usage { mean_gap: Some(mean_gap), ..Usage::default() }
    }

    /// Whether it says anything still.
    pub(crate) fn counts(&self, boot: Duration) -> bool {
        boot < self.counts_until || self.bar.is_some_and(|bar| boot < bar.until + bar.length)
    }

    /// A turn begins. The mean is of the last few: one long pause does not outweigh many short
    /// ones, and is soon forgotten.
    pub(super) fn turn_begins(&mut self, boot: Duration, keep_idle: Duration) {
        let Some(ended) = self.ended.take() else {
            return;
        };
        let gap = boot.saturating_sub(ended).min(keep_idle.saturating_mul(GAPS));
        self.mean_gap = Some(self.mean_gap.map_or(gap, |mean| mean.saturating_add(gap) / 2));
    }

    /// The last turn has ended.
    pub(super) fn turn_ended(&mut self, boot: Duration, keep_idle: Duration) {
        self.ended = Some(boot);
        self.counts_until = boot.saturating_add(keep_idle.saturating_mul(GAPS));
    }

    /// Contenders wait in the table that are in no line of the place.
    pub(super) fn outsiders_came(&mut self, boot: Duration) {
        let length = match self.bar {
            Some(bar) if boot < bar.until => return,
            Some(bar) if boot < bar.until + bar.length => (bar.length * 2).min(BAR_MAX),
            Some(_) | None => BAR_MIN,
        };
        self.bar = Some(Bar { length, until: boot + length });
    }

    /// How long a place is kept after a turn, if it is.
    fn keeps_for(&self, boot: Duration, keep_idle: Duration) -> Option<Duration> {
        let is_barred = self.bar.is_some_and(|bar| boot < bar.until);
        let gap = self.mean_gap.filter(|gap| *gap < keep_idle && !is_barred)?;
        Some(gap.saturating_mul(GAPS).max(KEPT_MIN).min(keep_idle))
    }
}

/// A place that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    /// Since when, by boot time.
    since: Duration,
    until: Duration,
    /// How long after its beginning contenders in the table are looked for next.
    look_after: Duration,
}

impl Kept {
    /// When contenders in the table are looked for next.
    fn next_look(&self) -> Duration {
        self.since + self.look_after
    }
}

impl Held {
    /// The place is no longer kept, if it was.
    pub(super) fn end_kept(&mut self, end: KeptEnd) -> Option<KeeperOutput> {
        self.kept.take().map(|_| KeeperOutput::KeptEnds(end))
    }

    /// How long more than half of the lease is left: after that the next turn would wait for its
    /// renewal in any case.
    fn time_before_half(&self, now: Now) -> Duration {
        self.deadline.saturating_sub(now.elapsed + self.terms.lease() / 2)
    }
}

impl Keeper {
    /// Whether idle places are kept. Otherwise it does not matter how the object is used.
    pub(super) fn may_keep(&self) -> bool {
        !self.keep_idle.is_zero()
    }

    /// How the object is used, for the next keeper.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether the place is kept idle.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(&self.place, Place::Held(held) if held.kept.is_some())
    }

    /// Nobody can have a turn: keeps the place for the next one, or releases it.
    pub(super) fn keep_or_release(&mut self, now: Now) {
        if let Some(end) = self.ends_kept(now) {
            self.end_kept(end);
            return self.release();
        }
        let keeps_for = self.usage.keeps_for(now.boot, self.keep_idle);
        let Place::Held(held) = &mut self.place else {
            return;
        };
        match (held.kept, keeps_for) {
            (Some(kept), _) if kept.next_look() <= now.boot => {
                if !held.is_looking {
                    held.kept = Some(Kept { look_after: kept.look_after * 2, ..kept });
                    self.look_for_outsiders(now);
                }
            }
            (Some(_), _) => {}
            (None, Some(keeps_for)) => {
                let until = now.boot.saturating_add(keeps_for.min(held.time_before_half(now)));
                held.kept = Some(Kept { until, since: now.boot, look_after: FIRST_LOOK });
                self.outputs.push_back(KeeperOutput::Keep);
            }
            (None, None) => self.release(),
        }
    }

    /// Why the place is kept no longer, or is not kept at all.
    fn ends_kept(&self, now: Now) -> Option<KeptEnd> {
        let Place::Held(held) = &self.place else {
            return Some(KeptEnd::Lost);
        };
        let is_old = held.time_before_half(now).is_zero();
        let is_over = held.kept.is_some_and(|kept| kept.until <= now.boot);
        let is_closing = self.is_closing && !SeededBug::KeptThroughShutdown.is_planted();
        let is_expiring = held.is_expiring && !SeededBug::KeptThroughRevocation.is_planted();
        let has_outsiders =
            held.outsiders_since.is_some() && !SeededBug::KeptBesideOutsiders.is_planted();
        let is_wanted = |user: LineUser| mode(user) != held.mode;
        if is_closing || self.is_in_doubt {
            Some(KeptEnd::Client)
        } else if is_expiring {
            Some(KeptEnd::Revoked)
        } else if has_outsiders {
            Some(KeptEnd::Outsiders)
        } else if self.line.first().is_some_and(is_wanted) {
            Some(KeptEnd::OtherMode)
        } else {
            let is_unused = is_over || is_old || held.renewing.is_some() || self.last_turn == 0;
            let is_usable = self.gives_turns && held.mode == Mode::Exclusive;
            (is_unused || !is_usable).then_some(KeptEnd::Unused)
        }
    }

    /// Gives up the place if it is kept.
    pub(super) fn give_up_kept(&mut self, end: KeptEnd) {
        if self.is_kept() {
            self.end_kept(end);
            self.release();
        }
    }

    /// The place is no longer kept, if it was.
    pub(super) fn end_kept(&mut self, end: KeptEnd) {
        if let Place::Held(held) = &mut self.place {
            self.outputs.extend(held.end_kept(end));
        }
    }

    /// When the place is kept no longer, or contenders are to be looked for.
    pub(super) fn kept_deadline(&self) -> Option<Duration> {
        let Place::Held(held) = &self.place else {
            return None;
        };
        let kept = held.kept?;
        Some(if held.is_looking { kept.until } else { kept.next_look().min(kept.until) })
    }
}
