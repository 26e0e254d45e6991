//! What of an object counts later, when it is used again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::io::Now;
use super::slot::Remembered;
use crate::core::turns::Usage;

/// What of an object counts later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The keeper that served the client last.
    pub(super) remembered: Option<Remembered>,
    /// How its places of this client were used.
    pub(super) usage: Usage,
    /// How far the stamps of contenders are raised, by their slots: without that, the deletes of a
    /// contender would hide what the next one with its key writes.
    raised: BTreeMap<i16, Raise>,
    /// Until when rows of a failed task may be there.
    pub(super) orphaned_until: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raise {
    by: i64,
    /// The contender has written nothing with a stamp above this.
    up_to: i64,
}

impl Memory {
    /// The memory of an object that is used again and again, with so much time between two turns.
    #[cfg(any(test, instrumented))]
    pub(crate) fn of_use(mean_gap: Duration) -> Self {
        Memory { usage: Usage::with_mean_gap(mean_gap), ..Memory::default() }
    }

    /// By how much the stamps of a contender are raised, unless the client's own stamps are above
    /// all that the contender has written.
    pub(super) fn raised_by(&self, now: Now, slot: i16) -> i64 {
        let raise = self.raised.get(&slot).filter(|raise| raise.up_to >= now.stamp);
        raise.map_or(0, |raise| raise.by)
    }

    /// Notes by how much the stamps of a contender were raised, up to now.
    pub(super) fn note_raised(&mut self, now: Now, slot: i16, by: i64) {
        if by > 0 {
            self.raised.insert(slot, Raise { by, up_to: now.stamp.saturating_add(by) });
        }
    }

    /// Whether rows of a failed task may be there. A guest may have its turn of them, and the
    /// contender with their key would not wait for them.
    pub(super) fn is_orphaned(&self, now: Now) -> bool {
        self.orphaned_until.is_some_and(|until| now.elapsed < until)
    }

    /// Whether the next use of the object needs it: without, two could hold, or rows be hidden.
    pub(crate) fn is_needed(&self, now: Now) -> bool {
        self.is_orphaned(now) || self.raised.values().any(|raise| raise.up_to >= now.stamp)
    }

    /// Whether it is of any use.
    pub(crate) fn is_of_use(&self, now: Now) -> bool {
        self.is_needed(now)
            || self.remembered.is_some_and(|it| it.is_recent(now))
            || self.usage.counts(now.boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(elapsed: u64, stamp: i64) -> Now {
        let elapsed = Duration::from_secs(elapsed);
        Now { elapsed, boot: elapsed, wall: stamp, stamp, jitter: 0.5, chance: 0.5 }
    }

    #[test]
    fn raise_is_forgotten_once_own_stamps_have_reached_it() {
        let mut memory = Memory::default();
        memory.note_raised(now(0, 5), 0, 100);
        assert_eq!([0, 1].map(|slot| memory.raised_by(now(0, 6), slot)), [100, 0]);
        assert_eq!(memory.raised_by(now(0, 105), 0), 100);
        assert!(memory.is_needed(now(0, 105)));
        assert_eq!(memory.raised_by(now(0, 106), 0), 0);
        assert!(!memory.is_of_use(now(0, 106)));
    }

    #[test]
    fn recent_keeper_is_worth_remembering() {
        let remembered = Some(Remembered { keeper: 7, answered: Duration::from_secs(4) });
        let memory = Memory { remembered, ..Memory::default() };
        assert!(memory.is_of_use(now(4, 0)) && !memory.is_of_use(now(5, 0)));
    }

    #[test]
    fn memory_counts_while_rows_of_a_failed_task_may_be_there() {
        let memory = Memory { orphaned_until: Some(Duration::from_secs(60)), ..Memory::default() };
        assert!(memory.is_needed(now(59, 0)) && memory.is_orphaned(now(59, 0)));
        assert!(!memory.is_of_use(now(60, 0)));
    }
}
