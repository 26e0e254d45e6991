//! Which blocker a waiting contender asks next (design section 7); [`backoff`] says when.
//!
//! Whole reads are costly and one-row reads cheap, so while many are ahead, a contender asks single
//! blockers whether they are still there. That only selects which blocker to ask: blockers leave by
//! a look at themselves or by a whole read. Once few are ahead, one read asks for all of them and
//! for the contender's own rows, and lets it in like a whole one.
//!
//! A limited contender is let in while a few others hold, and any of those may be the next to
//! leave. Once that few are ahead it reads whole; before, it asks those that must come and go.

mod backoff;
#[cfg(instrumented)]
mod fingerprint;
mod progress;

use std::time::Duration;

use self::backoff::Handoff;
pub(super) use self::backoff::within_patience;
use self::progress::Progress;
pub(super) use self::progress::Succession;
use super::admission::{Blockers, QueuePosition, Snapshot, Standing};
use super::io::{FRONT_MAX, Read};
use super::row::{ContenderId, Mode};
use super::seeded_bug::SeededBug;

/// A choosing contender is expected to choose for this many of the waiter's own doorway times.
const CHOOSING_DOORWAYS: u32 = 4;
/// A doorway on an idle cluster is so short that an ordinary hiccup outlasts four of them.
const CHOOSING_MIN: Duration = Duration::from_millis(20);
/// A try should end soon, however slow the database is; giving up early is always safe.
const CHOOSING_MAX: Duration = Duration::from_millis(100);

/// Behind more than this many, a waiter asks for one contender at a time to the end. With 31 ahead,
/// asking for the last few at once made handoffs 1.1 times as many, with 127 ahead 0.9 times.
const LONG_LINE: usize = 64;

/// After this many futile questions a limited contender reads whole: one that holds for long says
/// nothing about those behind it.
const FUTILE_MAX: usize = 3;

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// Is this contender still there? Its `entering::` row shows it.
    Present(ContenderId),
    /// Have the few that are ahead left? Their `entering::` rows show it.
    Front,
    /// Have all contenders ahead left? A whole read shows it.
    All,
}

/// The blockers ahead of a waiting contender, in the order in which they will be let in.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    mine: QueuePosition,
    mode: Mode,
    /// How many blockers are few enough to ask for all of them at once.
    front_max: usize,
    blockers: Blockers,
    /// Blockers up to this place are presumed gone, because the one there is.
    presumed_gone: Option<QueuePosition>,
    /// The number of questions that found no contender gone, since the last one that did or the
    /// last whole read.
    futile: usize,
    /// The contender that the last question found present, and when it was first found so.
    stays: Option<(ContenderId, Duration)>,
    /// When the contender left that a question found gone last.
    left: Option<Duration>,
    /// How long a choosing contender is expected to choose, from the last move seen.
    choosing: Duration,
    choosing_until: Duration,
    handoff: Handoff,
    progress: Progress,
}

impl Queue {
    /// The queue ahead of `mine`, fixed by the first read after drawing; `doorway` is how long the
    /// doorway took.
    pub(crate) fn new(
        mine: QueuePosition,
        mode: Mode,
        snapshot: &Snapshot,
        now: Duration,
        doorway: Duration,
    ) -> Self {
        let blockers = snapshot.blockers_of(mine, mode);
        let progress = Progress::new(&blockers, snapshot.last_release());
        let choosing = (doorway * CHOOSING_DOORWAYS).clamp(CHOOSING_MIN, CHOOSING_MAX);
        let length = blockers.iter().count();
        let handoff = Handoff::expected(now, length, doorway);
        Queue {
            mine,
            mode,
            front_max: if length > LONG_LINE { 0 } else { FRONT_MAX },
            blockers,
            presumed_gone: None,
            futile: 0,
            stays: None,
            left: None,
            choosing,
            choosing_until: now + choosing,
            handoff,
            progress,
        }
    }

    /// The queue, which asks for no more than this many blockers at once.
    pub(crate) fn with_front_max(self, front_max: usize) -> Self {
        Queue { front_max: self.front_max.min(front_max), ..self }
    }

    /// The remaining blockers.
    pub(crate) fn blockers(&self) -> &Blockers {
        &self.blockers
    }

    /// Whether the remaining blockers let us in.
    pub(crate) fn admits(&self) -> bool {
        let stands_for_all = SeededBug::MiddleStandsForAll.is_planted() && self.rest().is_empty();
        self.blockers.admit(self.mode) || stands_for_all
    }

    /// Whether the remaining blockers with a ticket, which hold the object or will before us, keep
    /// us out by themselves.
    pub(crate) fn is_taken(&self) -> bool {
        !self.blockers.queue_admits(self.mode)
    }

    /// Until when a choosing contender may be expected to be choosing, not holding. While
    /// contenders move, those that have not moved yet are slow rather than holders: if many begin
    /// at the same moment, the first one through has by far the shortest doorway.
    pub(crate) fn choosing_until(&self) -> Duration {
        self.choosing_until
    }

    /// What to read next.
    pub(crate) fn question(&self) -> Question {
        if self.admits() {
            return Question::All;
        }
        if self.front().is_some() {
            return Question::Front;
        }
        if self.is_near() {
            return Question::All;
        }
        let readable = self.asked().filter(|who| {
            // Rows of unknown names can't be read by key.
            self.blockers.standing(*who) != Some(Standing::Unreadable)
        });
        readable.map_or(Question::All, Question::Present)
    }

    /// Handles the answer to a question about one contender; true if it no longer blocks.
    pub(crate) fn answered(
        &mut self,
        contender: ContenderId,
        snapshot: &Snapshot,
        now: Duration,
    ) -> bool {
        let place = self.place(contender);
        let gone = self.blockers.look(contender, snapshot, self.mine, self.mode);
        self.note_progress(snapshot);
        if gone {
            // Places say nothing about choosing contenders, so one that left says nothing about the
            // others.
            self.presumed_gone = place.filter(|place| !is_choosing(*place)).or(self.presumed_gone);
        }
        self.futile = if gone { 0 } else { self.futile + 1 };
        self.note_move(gone, now);
        self.note_stay(Some(contender), gone, now);
        self.time_handoffs(contender, gone, now);
        gone
    }

    /// The read of the own rows and of all blockers, if these are few enough for one.
    pub(crate) fn front(&self) -> Option<Read> {
        let are_few = self.may_ask_all() && self.blockers.iter().count() <= self.front_max;
        let blockers = self.blockers.iter().map(|(contender, _)| contender);
        are_few.then(|| Read::front(self.mine.contender, blockers))
    }

    /// Whether the presumed blockers fit into one read, which a whole read must confirm first. One
    /// place is spare, in case the presumption is wrong.
    fn is_near(&self) -> bool {
        self.may_ask_all() && self.remaining().len() < self.front_max
    }

    /// Whether all blockers can be read by key, and must leave before us.
    fn may_ask_all(&self) -> bool {
        let is_unreadable = |(_, standing)| standing == Standing::Unreadable;
        self.company() == 0 && !self.blockers.iter().any(is_unreadable)
    }

    /// Notes that a question with this round trip has just found a contender gone. If it had asked
    /// all the time, it would have learned that one question later than it happened.
    pub(crate) fn found_gone(&mut self, now: Duration, round_trip: Duration) {
        self.left = Some(now.saturating_sub(2 * round_trip));
    }

    /// Handles a read that shows all blockers; true if one was removed. None is presumed gone any
    /// longer.
    pub(crate) fn confirmed(&mut self, snapshot: &Snapshot, now: Duration) -> bool {
        let asked = self.asked();
        let any_gone = self.blockers.confirm(snapshot, self.mine, self.mode);
        if !SeededBug::MiddleStandsForAll.is_planted() {
            self.presumed_gone = None;
        }
        self.futile = 0;
        self.note_progress(snapshot);
        self.note_move(any_gone, now);
        let gone = asked.map_or(any_gone, |asked| self.blockers.standing(asked).is_none());
        self.note_stay(asked, gone, now);
        self.count_handoffs(any_gone, now);
        any_gone
    }

    /// Those that have left by the last release are presumed gone, like those before one that is.
    fn note_progress(&mut self, snapshot: &Snapshot) {
        if let Some(place) = self.progress.note(snapshot.last_release()) {
            self.presumed_gone = self.presumed_gone.max(Some(place));
            self.stays = None;
        }
    }

    fn note_move(&mut self, gone: bool, now: Duration) {
        if gone {
            self.choosing_until = now + self.choosing;
        }
    }

    /// Notes how long the asked contender has stayed. Any blocker of a limited contender may be the
    /// next to leave: as long as none does, the first one stands for them.
    fn note_stay(&mut self, asked: Option<ContenderId>, gone: bool, now: Duration) {
        let first = || self.remaining().first().map(|place| place.contender);
        let who = if self.company() > 0 { first() } else { asked };
        if let Some(who) = who {
            let known = self.stays.filter(|(stays, _)| *stays == who && !gone);
            self.stays = known.or_else(|| (!gone).then_some((who, now)));
        }
    }

    /// The blockers not presumed gone, in order of place. Choosing ones count as ahead of all
    /// tickets: one that stays may be a holder on the fast path.
    fn remaining(&self) -> Vec<QueuePosition> {
        let places = self.blockers.iter().map(|(contender, standing)| place(contender, standing));
        let mut remaining: Vec<_> =
            places.filter(|place| self.presumed_gone.is_none_or(|gone| *place > gone)).collect();
        remaining.sort_unstable();
        remaining
    }

    /// The blockers that are not inside yet, as far as known, and must come and go before us:
    /// all that remain, for one that is let in when none is left. A limited one is let in beside
    /// the last ones ahead of it, as those inside were beside each other.
    fn rest(&self) -> Vec<QueuePosition> {
        let mut rest = self.remaining();
        rest.truncate(rest.len().saturating_sub(self.company()));
        // Of those before one that is gone, no more are left than held together with it.
        let inside = if self.presumed_gone.is_none() { self.company() } else { 0 };
        rest.split_off(inside.min(rest.len()))
    }

    /// How many blockers may still be there.
    fn may_remain(&self) -> usize {
        let inside = if self.presumed_gone.is_none() { 0 } else { self.company() };
        self.remaining().len() + inside
    }

    /// Which contender to ask; `None` for a whole read.
    fn asked(&self) -> Option<ContenderId> {
        if self.company() > 0 && self.futile >= FUTILE_MAX {
            return None;
        }
        let rest = self.rest();
        // The answer shows how many are ahead, if the one that is asked is still there.
        let asked = if self.progress.is_told() { rest.last() } else { rest.get(middle(&rest)) };
        Some(asked?.contender)
    }

    /// How many of the others may be inside when we are let in.
    fn company(&self) -> usize {
        let max_holders = self.mode.max_holders().and_then(|most| usize::try_from(most).ok());
        max_holders.unwrap_or(1).saturating_sub(1)
    }

    fn place(&self, contender: ContenderId) -> Option<QueuePosition> {
        Some(place(contender, self.blockers.standing(contender)?))
    }
}

/// Stands for "no ticket yet", before every ticket.
const NO_TICKET: i64 = i64::MIN;

fn place(contender: ContenderId, standing: Standing) -> QueuePosition {
    QueuePosition { ticket: standing.ticket().unwrap_or(NO_TICKET), contender }
}

fn is_choosing(place: QueuePosition) -> bool {
    place.ticket == NO_TICKET
}

/// Which of the rest to ask: the one half way to us among those with a ticket, or the first if all
/// are choosing.
fn middle(rest: &[QueuePosition]) -> usize {
    let choosing = rest.partition_point(|place| is_choosing(*place));
    if choosing == rest.len() { 0 } else { choosing + (rest.len() - choosing) / 2 }
}

#[cfg(test)]
mod tests {
    use super::super::row::{Claim, LastRelease, Mode, Statics, StoredRow};
    use super::*;

    pub(super) const ME: QueuePosition = QueuePosition { ticket: 10_000, contender: id(99) };

    pub(super) const fn id(host: i32) -> ContenderId {
        ContenderId { host, client: 0, slot: 0 }
    }

    fn front(ahead: &[ContenderId]) -> Option<Read> {
        Some(Read::front(ME.contender, ahead.iter().copied()))
    }

    pub(super) fn rows(claims: &[(i32, Option<i64>)]) -> Vec<StoredRow> {
        rows_of(Mode::Exclusive, claims)
    }

    /// The rows of contenders of one mode.
    pub(super) fn rows_of(mode: Mode, claims: &[(i32, Option<i64>)]) -> Vec<StoredRow> {
        let claims: Vec<_> = claims
            .iter()
            .map(|&(host, ticket)| Claim {
                contender: id(host),
                round: 1,
                mode,
                ticket,
                owner: "".into(),
                held_since: None,
            })
            .collect();
        claims.iter().map(StoredRow::entering).collect()
    }

    pub(super) fn queue(claims: &[(i32, Option<i64>)]) -> Queue {
        queue_after(Duration::from_millis(10), claims)
    }

    pub(super) fn queue_after(doorway: Duration, claims: &[(i32, Option<i64>)]) -> Queue {
        let snapshot = Snapshot::of(&rows(claims));
        Queue::new(ME, Mode::Exclusive, &snapshot, Duration::ZERO, doorway)
    }

    /// The queue ahead of a contender that is limited to `most`, as the others are.
    pub(super) fn limited(most: i32, claims: &[(i32, Option<i64>)]) -> Queue {
        let mode = Mode::Limited(most);
        let snapshot = Snapshot::of(&rows_of(mode, claims));
        Queue::new(ME, mode, &snapshot, Duration::ZERO, Duration::from_millis(10))
    }

    pub(super) fn tickets(length: i32) -> Vec<(i32, Option<i64>)> {
        (1..=length).map(|host| (host, Some(i64::from(host)))).collect()
    }

    #[test]
    fn asks_the_middle_of_the_rest_until_the_predecessor_is_gone() {
        let mut queue = queue(&tickets(8)).with_front_max(0);
        for host in [5, 7, 8] {
            assert_eq!(queue.question(), Question::Present(id(host)));
            assert!(queue.answered(id(host), &Snapshot::default(), Duration::ZERO));
        }
        assert_eq!(queue.question(), Question::All);
        assert_eq!(queue.blockers().iter().count(), 5, "presumed gone is not gone");
        queue.confirmed(&Snapshot::of(&rows(&[(2, Some(2))])), Duration::ZERO);
        assert_eq!(queue.question(), Question::Present(id(2)));
        assert_eq!(queue.blockers().iter().count(), 1);
    }

    #[test]
    fn asks_for_all_once_few_are_ahead() {
        let mut queue = queue(&tickets(20));
        for host in [11, 16] {
            assert_eq!((queue.question(), queue.front()), (Question::Present(id(host)), None));
            assert!(queue.answered(id(host), &Snapshot::default(), Duration::ZERO));
        }
        assert_eq!(queue.question(), Question::Present(id(19)), "four may be ahead");
        let all = Snapshot::of(&rows(&tickets(20)));
        assert!(!queue.answered(id(19), &all, Duration::ZERO));
        assert_eq!(queue.question(), Question::Present(id(19)));
        assert!(queue.answered(id(19), &Snapshot::default(), Duration::ZERO));
        assert_eq!(queue.question(), Question::All, "one may be ahead, if those before have left");
        let shown = [2, 17, 18, 20].map(|host: i32| (host, Some(host.into())));
        assert!(queue.confirmed(&Snapshot::of(&rows(&shown)), Duration::ZERO));
        assert_eq!(queue.question(), Question::Front);
        assert_eq!(queue.front(), front(&[2, 17, 18, 20].map(id)));
        assert!(queue.confirmed(&Snapshot::of(&rows(&shown[3..])), Duration::ZERO));
        assert_eq!(queue.front(), front(&[id(20)]));
        assert!(!queue.admits());
        assert!(queue.confirmed(&Snapshot::default(), Duration::ZERO));
        assert!(queue.admits());
    }

    #[test]
    fn asks_one_by_one_to_the_end_of_a_long_line() {
        let mut queue = queue(&tickets(65));
        while let Question::Present(who) = queue.question() {
            assert!(queue.answered(who, &Snapshot::default(), Duration::ZERO));
        }
        assert_eq!(queue.question(), Question::All);
        queue.confirmed(&Snapshot::of(&rows(&tickets(1))), Duration::ZERO);
        assert_eq!(queue.question(), Question::Present(id(1)));
    }

    #[test]
    fn unreadable_ones_are_asked_for_by_whole_reads() {
        let unreadable = StoredRow { round: None, ..rows(&tickets(1))[0].clone() };
        for ahead in [1, 3, 9] {
            let mut seen = rows(&tickets(ahead));
            seen[0] = unreadable.clone();
            let snapshot = Snapshot::of(&seen);
            let ms = Duration::from_millis(10);
            let mut queue = Queue::new(ME, Mode::Exclusive, &snapshot, Duration::ZERO, ms);
            assert_eq!(queue.front(), None);
            while let Question::Present(who) = queue.question() {
                assert!(queue.answered(who, &Snapshot::default(), Duration::ZERO));
            }
            assert_eq!(queue.question(), Question::All, "{ahead} ahead");
        }
    }

    /// The rows of these contenders, and that one of them left last.
    pub(super) fn released_by(
        claims: &[(i32, Option<i64>)],
        left: u128,
        handoff: Duration,
    ) -> Snapshot {
        let last = LastRelease { client: left, round: 1, handoff, stamp: 1 };
        let mut rows = rows(claims);
        for row in &mut rows {
            row.contender.client = u128::from(row.contender.host.unsigned_abs());
        }
        Snapshot::of(&rows).with(released(last))
    }

    fn released(last: LastRelease) -> Statics {
        Statics { last_release: Some(last), mark: None }
    }

    #[test]
    fn asks_the_predecessor_where_releases_tell_how_many_are_ahead() {
        let ms = Duration::from_millis;
        let known = |host: u8| ContenderId { client: host.into(), ..id(host.into()) };
        let mut queue =
            Queue::new(ME, Mode::Exclusive, &released_by(&tickets(12), 99, ms(2)), ms(0), ms(10));
        for left in [99, 3, 6, 6] {
            assert_eq!(queue.question(), Question::Present(known(12)));
            assert!(!queue.answered(known(12), &released_by(&tickets(12), left, ms(2)), ms(9)));
        }
        assert_eq!(queue.blockers().iter().count(), 12, "those that have left are not gone");
        assert!(!queue.answered(known(12), &released_by(&tickets(12), 9, ms(2)), ms(9)));
        assert_eq!(queue.question(), Question::All, "three are ahead");
        // The predecessor gave up, and so did two more.
        let rest = released_by(&tickets(12)[3..5], 3, ms(2));
        assert!(queue.confirmed(&rest, ms(10)));
        assert_eq!(queue.front(), front(&[known(4), known(5)]));
    }

    #[test]
    fn releases_of_shared_holders_say_nothing() {
        let ms = Duration::from_millis;
        let last = LastRelease { client: 0, round: 1, handoff: ms(2), stamp: 1 };
        let snapshot = Snapshot::of(&rows_of(Mode::Shared, &tickets(8))).with(released(last));
        let queue = Queue::new(ME, Mode::Exclusive, &snapshot, ms(0), ms(10));
        assert_eq!(queue.question(), Question::Present(id(5)));
    }

    #[test]
    fn limited_one_asks_those_that_come_and_go_before_it() {
        let mut queue = limited(3, &tickets(11));
        let rows = |claims: &[_]| rows_of(Mode::Limited(3), claims);
        // Two of the first may stay, and the last two may be inside with us.
        assert_eq!(queue.question(), Question::Present(id(6)));
        assert!(queue.answered(id(6), &Snapshot::default(), Duration::ZERO));
        assert_eq!(queue.question(), Question::Present(id(8)));
        assert!(queue.answered(id(8), &Snapshot::default(), Duration::ZERO));
        assert_eq!(queue.question(), Question::Present(id(9)));
        assert!(queue.answered(id(9), &Snapshot::default(), Duration::ZERO));
        assert_eq!(queue.question(), Question::All, "any of those left may be the next to leave");
        let rest = [(1, Some(1)), (2, Some(2)), (7, Some(7))];
        assert!(queue.confirmed(&Snapshot::of(&rows(&rest)), Duration::ZERO));
        assert_eq!(queue.question(), Question::All);
        assert!(queue.confirmed(&Snapshot::of(&rows(&rest[..2])), Duration::ZERO));
        assert!(queue.admits());
    }

    #[test]
    fn limited_one_is_not_kept_out_by_one_that_stays() {
        let mut queue = limited(3, &tickets(11));
        let rows = |claims: &[_]| rows_of(Mode::Limited(3), claims);
        let all = Snapshot::of(&rows(&tickets(11)));
        for _ in 0..2 {
            for _ in 0..FUTILE_MAX {
                assert_eq!(queue.question(), Question::Present(id(6)));
                assert!(!queue.answered(id(6), &all, Duration::ZERO));
            }
            assert_eq!(queue.question(), Question::All);
            assert!(!queue.confirmed(&all, Duration::ZERO));
        }
        let (one_stays, others) = ([(1, Some(1))], [(6, Some(6)), (7, Some(7))]);
        let rest = [&one_stays[..], &others].concat();
        for _ in 0..FUTILE_MAX {
            assert!(!queue.answered(id(6), &all, Duration::ZERO));
        }
        assert!(queue.confirmed(&Snapshot::of(&rows(&rest)), Duration::ZERO));
        assert_eq!(queue.question(), Question::All);
    }

    #[test]
    fn choosers_are_asked_last() {
        let mut queue = queue(&[(1, None), (2, None), (3, Some(3))]).with_front_max(0);
        assert_eq!(queue.question(), Question::Present(id(3)));
        assert!(queue.is_taken());
        assert!(queue.answered(id(3), &Snapshot::default(), Duration::ZERO));
        assert_eq!(queue.question(), Question::All);
        queue.confirmed(&Snapshot::of(&rows(&[(1, None), (2, None)])), Duration::ZERO);
        assert!(!queue.is_taken());
        assert_eq!(queue.question(), Question::Present(id(1)));
        assert!(queue.answered(id(1), &Snapshot::of(&rows(&[(1, Some(10_001))])), Duration::ZERO));
        assert_eq!(queue.question(), Question::Present(id(2)));
        assert!(!queue.answered(id(2), &Snapshot::of(&rows(&[(2, Some(5))])), Duration::ZERO));
        assert!(queue.is_taken(), "it drew a ticket before ours");
    }

    #[test]
    fn choosing_ones_have_more_time_while_others_move() {
        let ms = Duration::from_millis;
        let mut queue = queue(&[(1, None), (2, None), (3, None)]);
        assert_eq!(queue.choosing_until(), ms(40));
        let choosing = Snapshot::of(&rows(&[(1, None), (2, None), (3, None)]));
        assert!(!queue.answered(id(1), &choosing, ms(20)));
        assert_eq!(queue.choosing_until(), ms(40), "none moved");
        assert!(queue.answered(id(1), &Snapshot::default(), ms(30)));
        assert_eq!(queue.choosing_until(), ms(70), "one left");
        queue.confirmed(&Snapshot::of(&rows(&[(2, None), (3, None)])), ms(50));
        assert_eq!(queue.choosing_until(), ms(70), "none more has left");
        queue.confirmed(&Snapshot::of(&rows(&[(2, Some(10_001)), (3, None)])), ms(60));
        assert_eq!(queue.choosing_until(), ms(100), "one drew a ticket behind ours");
    }
}
