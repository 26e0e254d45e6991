//! How long a waiting contender pauses before it asks again.
//!
//! Most likely long enough for the contenders between the one to ask and itself to have their
//! turns. How long a turn takes is estimated from how the queue moves.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::admission::Standing;
use super::super::row::ContenderId;
use super::super::seeded_bug::SeededBug;
use super::{Queue, Succession, middle};

/// Until the queue is seen to move, a handoff is assumed to take about half as long as the doorway.
const HANDOFFS_PER_DOORWAY: u32 = 2;
/// The minimum, however fast the queue was seen to move.
const HANDOFF_MIN: Duration = Duration::from_millis(1);
/// Anything longer than a doorway was no handoff, but a holder that stayed long; those after it may
/// be quick. Bounded, because a doorway may measure as almost nothing, or stall.
const HANDOFF_MAX: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_millis(100);
/// The same for what releases report: at most this many doorways, because it has an operation
/// more than a doorway; and others measured it, so a stalled doorway alone lengthens nothing.
const DOORWAYS_PER_TOLD_HANDOFF: u32 = 2;
const TOLD_HANDOFF_MAX: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_millis(500);
/// The part to pause of the time that the contenders between will take. It must stay well below the
/// whole: waiters that look late make handoffs slow, and others pace themselves by these.
const PAUSE_PER_HANDOFF: f64 = 0.7;
/// The same where releases report how many are ahead and how long handoffs take. With more, waiters
/// that look late would make the handoffs slow by which all others pace themselves.
const PAUSE_PER_TOLD_HANDOFF: f64 = 0.8;
/// How many handoffs fewer are counted on, times the root of their number: each takes its own time.
const UNCERTAINTY: f64 = 0.5;
/// How often the next in line looks while a handoff lasts: that makes it a sixteenth longer.
const LOOKS_PER_HANDOFF: u32 = 8;
/// A holder that has stayed long will probably stay longer, so look less often; that lengthens the
/// wait by at most one part in this many.
const PAUSE_PER_STAY: u32 = 16;
/// A waiter looks at least this often, however many are ahead and however long they stay.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Where releases report how far the queue has come, a waiter far back may pause for longer: for
/// one part in this many of what it must still wait.
const PAUSES_PER_WAIT: u32 = 4;
/// But not for longer than this: all ahead of it may leave at once, when a process with many
/// clients dies, or callers give up, which no release reports.
const TOLD_PAUSE_MAX: Duration = Duration::from_secs(3);
/// A caller that soon gives up looks again when half of the time that is left to it has passed, or
/// it would miss a lock that became free meanwhile; and no more often than this.
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// A round trip may measure as almost nothing; never spin.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl Queue {
    /// How long to pause before the first question. All blockers were present a moment ago.
    pub(crate) fn first_pause(&self, now: Duration, jitter: f64) -> Duration {
        if self.is_hurried(now) {
            Duration::ZERO
        } else if let Some(handoff) = self.told_handoff() {
            slightly_jittered(self.until_next(handoff, Duration::ZERO), jitter)
        } else {
            jittered(self.between(), jitter)
        }
    }

    /// How long to pause if the asked blocker is still there.
    pub(crate) fn pause(&self, now: Duration, round_trip: Duration, jitter: f64) -> Duration {
        if self.is_hurried(now) {
            return jittered(round_trip.max(PAUSE_MIN), jitter);
        }
        let stayed = self.stays.map_or(Duration::ZERO, |(_, since)| now - since);
        let least = round_trip.max(stayed / PAUSE_PER_STAY).max(PAUSE_MIN);
        if let Some(handoff) = self.told_handoff() {
            slightly_jittered(self.until_next(handoff, least), jitter)
        } else {
            jittered(self.between().max(least), jitter)
        }
    }

    /// How long a handoff takes, if releases report; not more than one can take.
    fn told_handoff(&self) -> Option<Duration> {
        let last = self.progress.last_release().filter(|_| self.progress.is_told())?;
        Some(last.handoff.clamp(HANDOFF_MIN, self.handoff.told_at_most))
    }

    /// How long to pause where releases report how many are ahead.
    fn until_next(&self, handoff: Duration, least: Duration) -> Duration {
        // The last one may leave at any moment.
        let others = count(self.rest().len().saturating_sub(1));
        let most = (handoff * others / PAUSES_PER_WAIT).max(PAUSE_MAX);
        let most =
            if SeededBug::PauseUnbounded.is_planted() { most } else { most.min(TOLD_PAUSE_MAX) };
        let others = f64::from(others);
        let surely = (others - UNCERTAINTY * others.sqrt()) * PAUSE_PER_TOLD_HANDOFF;
        let pause = handoff.mul_f64(surely.max(0.0));
        pause.max(least).max(handoff / LOOKS_PER_HANDOFF).min(most)
    }

    /// The part to pause of the time that the contenders between the one to ask and us will take.
    /// The last one before us may leave at any moment, so it does not count.
    fn between(&self) -> Duration {
        let between = if self.asked().is_some() {
            let rest = self.rest();
            rest.len().saturating_sub(middle(&rest) + 1)
        } else {
            self.may_remain().saturating_sub(self.company() + 1)
        };
        (self.handoff.takes * count(between)).mul_f64(PAUSE_PER_HANDOFF)
    }

    /// Whether the blocker to ask may just be choosing, which ends soon, or one of all.
    fn is_hurried(&self, now: Duration) -> bool {
        let is_choosing = |standing| matches!(standing, Standing::Choosing { .. });
        let may_be_choosing = match self.asked() {
            Some(asked) => self.blockers.standing(asked).is_some_and(is_choosing),
            None => self.blockers.iter().any(|(_, standing)| is_choosing(standing)),
        };
        may_be_choosing && now < self.choosing_until
    }

    /// Estimates how long a handoff takes. A blocker that is gone shows how many have left at least
    /// since the beginning; one that is present shows how many have left at most, unless others may
    /// come and go meanwhile.
    pub(super) fn time_handoffs(&mut self, asked: ContenderId, gone: bool, now: Duration) {
        let left = self.left();
        if gone {
            self.handoff.left_at_least(left, now);
        } else if self.company() == 0 {
            let before = self.remaining().iter().position(|place| place.contender == asked);
            self.handoff.left_at_most(left + before.unwrap_or(0), now);
        }
    }

    /// Estimates the same by a read of all blockers, which shows exactly how many have left.
    pub(super) fn count_handoffs(&mut self, any_gone: bool, now: Duration) {
        let left = self.left();
        if any_gone {
            self.handoff.left_at_least(left, now);
        } else {
            self.handoff.left_at_most(left, now);
        }
    }

    /// How this contender is let in now.
    pub(crate) fn succession(&self, now: Duration) -> Succession {
        let mean = (now - self.handoff.since) / count(self.handoff.length.max(1));
        Succession { began: self.left.unwrap_or(now - mean), before: self.progress.last_release() }
    }

    /// How many have left since the beginning, at least.
    fn left(&self) -> usize {
        self.handoff.length.saturating_sub(self.may_remain())
    }
}

/// How long a handoff takes, estimated from the queue.
#[derive(Clone, Debug)]
pub(super) struct Handoff {
    since: Duration,
    /// How many contenders were ahead then.
    length: usize,
    takes: Duration,
    takes_at_most: Duration,
    /// The same for what releases report.
    told_at_most: Duration,
}

impl Handoff {
    /// The estimate before any contender was seen to leave.
    pub(super) fn expected(now: Duration, length: usize, doorway: Duration) -> Self {
        let takes_at_most = doorway.clamp(*HANDOFF_MAX.start(), *HANDOFF_MAX.end());
        let takes = (doorway / HANDOFFS_PER_DOORWAY).clamp(HANDOFF_MIN, takes_at_most);
        let told_at_most = doorway * DOORWAYS_PER_TOLD_HANDOFF;
        let told_at_most = told_at_most.clamp(*TOLD_HANDOFF_MAX.start(), *TOLD_HANDOFF_MAX.end());
        Handoff { since: now, length, takes, takes_at_most, told_at_most }
    }

    /// At least `left` contenders have left.
    fn left_at_least(&mut self, left: usize, now: Duration) {
        self.take((now - self.since) / count(left.max(1)));
    }

    /// At most `left` contenders have left.
    fn left_at_most(&mut self, left: usize, now: Duration) {
        self.take(self.takes.max((now - self.since) / count(left + 1)));
    }

    fn take(&mut self, takes: Duration) {
        self.takes = takes.clamp(HANDOFF_MIN, self.takes_at_most);
    }
}

/// The pause of a waiter whose caller gives up at this time. A time that has passed is that of a
/// caller that has left its place to another one.
pub(in super::super) fn within_patience(
    pause: Duration,
    now: Duration,
    gives_up: Option<Duration>,
) -> Duration {
    let is_bounded = !SeededBug::PauseUnbounded.is_planted();
    match gives_up.map(|gives_up| gives_up.saturating_sub(now)) {
        Some(left) if !left.is_zero() && is_bounded => pause.min((left / 2).max(LAST_PAUSE)),
        Some(_) | None => pause,
    }
}

/// The jitter, in 0..1, keeps waiters from all asking at once.
fn jittered(pause: Duration, jitter: f64) -> Duration {
    pause.min(PAUSE_MAX).mul_f64(0.75 + jitter / 2.0)
}

/// Waiters that know how many are ahead look at different times by themselves.
fn slightly_jittered(pause: Duration, jitter: f64) -> Duration {
    pause.mul_f64(0.9 + jitter / 5.0)
}

/// A number of contenders, to divide times by.
fn count(contenders: usize) -> u32 {
    u32::try_from(contenders).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::super::admission::Snapshot;
    use super::super::super::row::Mode;
    use super::super::tests::{
        ME, id, limited, queue, queue_after, released_by, rows, rows_of, tickets,
    };
    use super::*;

    #[test]
    fn pauses_grow_with_the_number_ahead() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let first = |claims: &[_], now| queue(claims).first_pause(now, 0.5);
        assert_eq!((first(&tickets(1), ms(0)), first(&tickets(8), ms(0))), (ms(0), us(10_500)));
        assert_eq!(first(&[(1, None), (2, None)], ms(39)), ms(0));
        let pause = |claims: &[_], now| queue(claims).pause(now, ms(2), 0.5);
        assert_eq!(pause(&tickets(1), ms(0)), ms(2), "the last one about a round trip");
        assert_eq!(pause(&tickets(8), ms(0)), us(10_500), "for the three between 0.7 handoffs");
        let after = |doorway| queue_after(doorway, &tickets(8)).pause(ms(0), ms(2), 0.5);
        assert_eq!((after(ms(0)), after(ms(900))), (us(2_100), ms(210)), "within bounds");
        assert_eq!(pause(&tickets(2000), ms(0)), ms(1000));
        assert_eq!(pause(&[(1, None), (2, None)], ms(39)), ms(2), "choosing: fast at first");
        assert_eq!(pause(&[(1, None), (2, None)], ms(40)), us(3_500), "then like any holder");
        let jittered = |jitter| queue(&tickets(8)).pause(ms(0), ms(2), jitter);
        assert_eq!((jittered(0.0), jittered(1.0)), (us(7_875), us(13_125)));
    }

    #[test]
    fn pauses_follow_the_handoffs_that_were_seen() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let snapshot = Snapshot::of(&rows(&tickets(8)));
        let mut queue = queue_after(ms(20), &tickets(8));
        let pause = |queue: &Queue, now| queue.pause(now, ms(1), 0.5);
        assert!(queue.answered(id(5), &Snapshot::default(), ms(40)));
        assert!(!queue.answered(id(7), &snapshot, ms(41)));
        assert_eq!(pause(&queue, ms(41)), us(5_600), "five left within 40 ms");
        assert!(!queue.answered(id(7), &snapshot, ms(84)));
        assert_eq!(pause(&queue, ms(84)), us(8_400), "six at most left within 84 ms");
        assert!(!queue.answered(id(7), &snapshot, ms(300)));
        assert_eq!(pause(&queue, ms(300)), us(16_187) + Duration::from_nanos(500), "it stays");

        let mut stalled = queue_after(ms(20), &tickets(8));
        assert!(!stalled.answered(id(5), &snapshot, ms(9_000)));
        assert_eq!(pause(&stalled, ms(9_000)), ms(42), "no handoff takes longer than a doorway");
        let mut quick = queue_after(ms(20), &tickets(8));
        assert!(quick.answered(id(5), &Snapshot::default(), ms(1)));
        assert_eq!(pause(&quick, ms(1)), ms(1));
    }

    #[test]
    fn pauses_follow_what_releases_tell() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let known = |host: u8| ContenderId { client: host.into(), ..id(host.into()) };
        let snapshot = |left, handoff| released_by(&tickets(10), left, handoff);
        let first = |handoff| {
            Queue::new(ME, Mode::Exclusive, &snapshot(99, handoff), ms(0), ms(20))
                .first_pause(ms(0), 0.5)
        };
        assert_eq!(first(ms(4)), ms(24), "four fifths of 7.5 handoffs of nine");
        assert_eq!(first(ms(400)), first(ms(40)), "no handoff takes longer than two doorways");
        let far_back = |waiters| {
            let snapshot = released_by(&tickets(waiters), 99, ms(30));
            Queue::new(ME, Mode::Exclusive, &snapshot, ms(0), ms(20)).first_pause(ms(0), 0.5)
        };
        assert_eq!(far_back(101), ms(1000), "a second, or a quarter of the wait");
        assert_eq!(far_back(301), ms(2250), "a quarter of three hundred handoffs");
        assert_eq!(far_back(1001), ms(3000));
        let mut queue = Queue::new(ME, Mode::Exclusive, &snapshot(99, ms(4)), ms(0), ms(20));
        let mut pause = |left, handoff, now| {
            assert!(!queue.answered(known(10), &snapshot(left, handoff), now));
            queue.pause(now, ms(2), 0.5)
        };
        assert_eq!(
            pause(5, ms(4), ms(20)),
            us(9_600),
            "of three of the four ahead of the last one"
        );
        assert_eq!(pause(9, ms(4), ms(30)), ms(2), "the last one about a round trip");
        assert_eq!(pause(9, ms(18), ms(31)), us(2_250), "or an eighth of a handoff");
        assert_eq!(pause(9, ms(4), ms(2_030)), ms(125), "it stays");
        assert_eq!(pause(5, ms(4), ms(2_030)), ms(125), "an older release tells nothing new");
    }

    #[test]
    fn caller_that_soon_gives_up_looks_more_often() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let pause = |left| within_patience(s(3), s(100), Some(s(100) + left));
        assert_eq!(pause(s(300)), s(3));
        assert_eq!(pause(s(5)), ms(2_500));
        assert_eq!(pause(ms(600)), ms(300));
        assert_eq!(pause(ms(100)), ms(250));
        assert_eq!(within_patience(ms(2), s(100), Some(s(101))), ms(2));
        for gives_up in [None, Some(s(99)), Some(s(100))] {
            assert_eq!(within_patience(s(3), s(100), gives_up), s(3), "{gives_up:?}");
        }
    }

    #[test]
    fn limited_waiter_looks_when_the_first_may_have_left() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let first = |length| limited(3, &tickets(length)).first_pause(ms(0), 0.5);
        assert_eq!((first(3), first(4), first(11)), (ms(0), us(3_500), us(10_500)));
        let mut queue = limited(3, &tickets(4));
        let rows = |claims: &[_]| rows_of(Mode::Limited(3), claims);
        assert!(!queue.confirmed(&Snapshot::of(&rows(&tickets(4))), ms(8)));
        assert_eq!(queue.pause(ms(8), ms(2), 0.5), us(5_600), "none left within 8 ms");
        assert!(queue.confirmed(&Snapshot::of(&rows(&tickets(3))), ms(9)));
        assert_eq!(queue.pause(ms(9), ms(2), 0.5), ms(2), "the next one that leaves makes room");
        assert!(!queue.confirmed(&Snapshot::of(&rows(&tickets(3))), ms(12)));
        assert!(!queue.confirmed(&Snapshot::of(&rows(&tickets(3))), ms(3_212)));
        assert_eq!(queue.pause(ms(3_212), ms(2), 0.5), ms(200), "those inside stay long");
    }

    #[test]
    fn limited_waiter_counts_those_that_may_still_be_inside() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let mut queue = limited(3, &tickets(11));
        assert!(queue.answered(id(6), &Snapshot::default(), ms(8)));
        assert_eq!(queue.pause(ms(8), ms(1), 0.5), us(1_400), "four have left within 8 ms");
    }

    #[test]
    fn read_of_all_blockers_times_handoffs() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let mut queue = queue_after(ms(20), &tickets(8));
        let rest = Snapshot::of(&rows(&tickets(4)));
        assert!(queue.confirmed(&rest, ms(60)));
        assert_eq!(queue.pause(ms(60), ms(1), 0.5), us(10_500), "four left within 60 ms");
        assert!(!queue.confirmed(&rest, ms(85)));
        assert_eq!(queue.pause(ms(85), ms(1), 0.5), us(11_900), "four at most within 85 ms");
    }

    #[test]
    fn release_reports_its_own_handoff_or_the_mean() {
        let ms = Duration::from_millis;
        let snapshot = Snapshot::of(&rows(&tickets(8)));
        let mut queue = Queue::new(ME, Mode::Exclusive, &snapshot, ms(100), ms(20));
        assert_eq!(queue.succession(ms(180)).handoff(ms(180)), ms(10), "the mean");
        queue.found_gone(ms(175), ms(3));
        assert_eq!(queue.succession(ms(180)).handoff(ms(182)), ms(13), "two questions and more");
        let alone = Queue::new(ME, Mode::Exclusive, &Snapshot::default(), ms(100), ms(20));
        assert_eq!(alone.succession(ms(180)).handoff(ms(180)), ms(80));
    }

    #[test]
    fn handoffs_are_timed_from_when_the_line_began() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        for began in [ms(0), ms(86_400_000)] {
            let snapshot = Snapshot::of(&rows(&tickets(8)));
            let mut queue = Queue::new(ME, Mode::Exclusive, &snapshot, began, ms(20));
            let now = began + ms(40);
            assert!(queue.answered(id(5), &Snapshot::default(), now));
            assert_eq!(queue.pause(now, ms(1), 0.5), us(5_600), "five left within 40 ms");
        }
    }

    #[test]
    fn pauses_grow_with_the_time_that_a_blocker_stays() {
        let s = Duration::from_secs;
        let snapshot = Snapshot::of(&rows(&tickets(2)));
        let mut queue = queue(&tickets(2));
        let pause = |queue: &Queue, now| queue.pause(now, Duration::from_millis(2), 0.5);
        assert!(!queue.answered(id(2), &snapshot, s(10)));
        assert_eq!(pause(&queue, s(10)), Duration::from_millis(2));
        assert!(!queue.answered(id(2), &snapshot, s(14)));
        assert_eq!(pause(&queue, s(14)), Duration::from_millis(250));
        assert!(!queue.answered(id(2), &snapshot, s(74)));
        assert_eq!(pause(&queue, s(74)), s(1));
        assert!(!queue.answered(id(1), &snapshot, s(74)));
        assert_eq!(pause(&queue, s(74)), Duration::from_millis(2), "another one");
        assert!(queue.answered(id(1), &Snapshot::default(), s(74)));
        assert_eq!(pause(&queue, s(90)), Duration::from_millis(2), "it is gone");
    }
}
