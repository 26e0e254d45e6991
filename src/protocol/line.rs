//! Whom a waiting contender asks next, and how long it pauses (design section 7).
//!
//! Reads of a whole object are dear and one-row reads cheap, so between the first read after
//! drawing and the confirming one a contender asks single blockers whether they are still there.
//! That only chooses whom to ask: blockers leave by a look at themselves or by a whole read.

#[cfg(model)]
mod essence;

use std::ops::RangeInclusive;
use std::time::Duration;

use super::mutation::Mutation;
use super::row::{ContenderId, Mode};
use super::verdict::{Blockers, Place, Standing, Survey};

/// For how many of one's own doorway times a choosing contender is expected to choose.
const CHOOSING_DOORWAYS: u32 = 4;
/// A doorway on an idle cluster is so short that an ordinary hiccup outlasts four of them.
const CHOOSING_MIN: Duration = Duration::from_millis(20);
/// Who tries wants to know soon, however slow the database is; giving up early is always safe.
const CHOOSING_MAX: Duration = Duration::from_millis(100);
/// A hand-over takes about half as long as the doorway, until the line is seen to move.
const HAND_OVERS_PER_DOORWAY: u32 = 2;
/// However fast the line was seen to move.
const HAND_OVER_MIN: Duration = Duration::from_millis(1);
/// What took longer than a doorway was no hand-over, but somebody who held for long; those after
/// that one may be quick. Bounded, as a doorway may be measured as next to nothing, or stall.
const HAND_OVER_MAX: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_millis(100);
/// Of the time until those between have had their turns, the part to pause. It must stay well below
/// the whole: who looks late makes hand-overs slow, and by what is slow others pace themselves.
const PAUSE_PER_HAND_OVER: f64 = 0.7;
/// Who has stayed long will probably stay on, so look less often; what that adds to the wait is at
/// most this part of it.
const PAUSE_PER_STAY: u32 = 16;
/// However many are ahead, and however long they stay, a waiter looks at least this often.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A round trip can be measured as next to nothing; never spin.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// Is this contender, which has a ticket, still there? Its `entering::` row tells.
    Present(ContenderId),
    /// Has this contender left, or drawn a ticket? Both of its rows tell.
    Choosing(ContenderId),
    /// Has everybody who was ahead left? Only a read of the whole object tells.
    Everybody,
}

/// Those ahead of a waiting contender, in the order in which they will be let in.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    mine: Place,
    mode: Mode,
    blockers: Blockers,
    /// Blockers up to this place are presumed gone, because the one at it is.
    presumed_gone: Option<Place>,
    /// How many questions found nobody gone.
    futile: usize,
    /// Who was found present by the last question, and when it was first found so.
    stays: Option<(ContenderId, Duration)>,
    choosing_until: Duration,
    since: Duration,
    /// How many were ahead then.
    length: usize,
    /// How long a hand-over takes, by what was seen of the line; and what it is taken for at most.
    hand_over: Duration,
    hand_over_max: Duration,
}

impl Line {
    /// The line ahead of `mine`, fixed by the first read after drawing; `doorway` is how long it
    /// took to get here.
    pub(crate) fn new(
        mine: Place,
        mode: Mode,
        blockers: Blockers,
        now: Duration,
        doorway: Duration,
    ) -> Self {
        let choosing = (doorway * CHOOSING_DOORWAYS).clamp(CHOOSING_MIN, CHOOSING_MAX);
        let hand_over_max = doorway.clamp(*HAND_OVER_MAX.start(), *HAND_OVER_MAX.end());
        let hand_over = (doorway / HAND_OVERS_PER_DOORWAY).clamp(HAND_OVER_MIN, hand_over_max);
        let length = blockers.iter().count();
        Line {
            mine,
            mode,
            blockers,
            presumed_gone: None,
            futile: 0,
            stays: None,
            choosing_until: now + choosing,
            since: now,
            length,
            hand_over,
            hand_over_max,
        }
    }

    /// Those who are left.
    pub(crate) fn blockers(&self) -> &Blockers {
        &self.blockers
    }

    /// Whether those who are left let us in.
    pub(crate) fn admits(&self) -> bool {
        let stands_for_all = Mutation::MiddleStandsForAll.is_planted() && self.rest().is_empty();
        self.blockers.admit(self.mode) || stands_for_all
    }

    /// Whether those who are left and have a ticket, and so hold the object or will before us,
    /// keep us out by themselves.
    pub(crate) fn is_taken(&self) -> bool {
        !self.blockers.queue_admits(self.mode)
    }

    /// Until when a choosing contender may be expected to be just that, and not a holder.
    pub(crate) fn choosing_until(&self) -> Duration {
        self.choosing_until
    }

    /// What to read next.
    pub(crate) fn question(&self) -> Question {
        if self.admits() {
            return Question::Everybody;
        }
        let rest = self.rest();
        let Some(Place { contender, .. }) = rest.get(self.asked(&rest)).copied() else {
            return Question::Everybody;
        };
        match self.blockers.standing(contender) {
            Some(Standing::Queued { .. }) => Question::Present(contender),
            Some(Standing::Choosing { .. }) => Question::Choosing(contender),
            // It may have rows of names that are unknown here, and so can't be asked for.
            Some(Standing::Unreadable) | None => Question::Everybody,
        }
    }

    /// Takes the answer to a question about one contender; true when it is out of the way.
    pub(crate) fn answered(
        &mut self,
        contender: ContenderId,
        survey: &Survey,
        now: Duration,
    ) -> bool {
        let place = self.place(contender);
        let gone = self.blockers.look(contender, survey, self.mine);
        if gone && self.leave_in_order() {
            // Places say nothing of who is choosing, so one that left tells nothing of the others.
            self.presumed_gone = place.filter(|place| !is_choosing(*place)).or(self.presumed_gone);
        }
        self.futile += usize::from(!gone);
        let known = self.stays.filter(|(stays, _)| *stays == contender && !gone);
        self.stays = known.or_else(|| (!gone).then_some((contender, now)));
        self.time_hand_overs(contender, gone, now);
        gone
    }

    /// Takes a read of the whole object; true when somebody was out of the way. Nobody is presumed
    /// gone any more.
    pub(crate) fn confirmed(&mut self, survey: &Survey) -> bool {
        let somebody_gone = self.blockers.confirm(survey, self.mine);
        if !Mutation::MiddleStandsForAll.is_planted() {
            self.presumed_gone = None;
        }
        self.futile += usize::from(!somebody_gone);
        somebody_gone
    }

    /// How long to pause before the first question. All were present a moment ago.
    pub(crate) fn first_pause(&self, now: Duration, jitter: f64) -> Duration {
        let rest = self.rest();
        if self.is_hurried(&rest, now) {
            Duration::ZERO
        } else {
            jittered(self.between(&rest), jitter)
        }
    }

    /// How long to pause when the one that was asked is still there.
    pub(crate) fn pause(&self, now: Duration, round_trip: Duration, jitter: f64) -> Duration {
        let rest = self.rest();
        let pause = if self.is_hurried(&rest, now) {
            round_trip
        } else {
            let stayed = self.stays.map_or(Duration::ZERO, |(_, since)| now - since);
            self.between(&rest).max(round_trip).max(stayed / PAUSE_PER_STAY)
        };
        jittered(pause.max(PAUSE_MIN), jitter)
    }

    /// The part to pause of the time that those between the one to ask and us will take. The last
    /// one before us may leave at any moment, so it does not count.
    fn between(&self, rest: &[Place]) -> Duration {
        let first = if self.leave_in_order() { self.asked(rest) } else { 0 };
        let between = rest.len().saturating_sub(first + 1);
        (self.hand_over * count(between)).mul_f64(PAUSE_PER_HAND_OVER)
    }

    /// Whether the one to ask may just be choosing, which is over soon.
    fn is_hurried(&self, rest: &[Place], now: Duration) -> bool {
        let asked = rest.get(self.asked(rest));
        asked.is_some_and(|place| is_choosing(*place)) && now < self.choosing_until
    }

    /// Reckons how long a hand-over takes, from how many have left since the beginning. One that is
    /// gone tells that at least so many have, one that is present that at most so many have.
    fn time_hand_overs(&mut self, asked: ContenderId, gone: bool, now: Duration) {
        let rest = self.rest();
        let left = self.length.saturating_sub(rest.len());
        let elapsed = now - self.since;
        let hand_over = if gone {
            elapsed / count(left.max(1))
        } else {
            let before = rest.iter().position(|place| place.contender == asked);
            let before = before.filter(|_| self.leave_in_order()).unwrap_or(0);
            self.hand_over.max(elapsed / count(left + before + 1))
        };
        self.hand_over = hand_over.clamp(HAND_OVER_MIN, self.hand_over_max);
    }

    /// Those not presumed gone, first come first. Choosing ones count as ahead of all tickets: one
    /// that stays may be a holder by the short way.
    fn rest(&self) -> Vec<Place> {
        let places = self.blockers.iter().map(|(contender, _)| contender);
        let mut rest: Vec<_> = places
            .filter_map(|contender| self.place(contender))
            .filter(|place| self.presumed_gone.is_none_or(|gone| *place > gone))
            .collect();
        rest.sort_unstable();
        rest
    }

    /// Which of the rest to ask: of those with a ticket the one half way to us; the first where all
    /// are choosing. Where they leave in any order and each makes room, one after the other.
    fn asked(&self, rest: &[Place]) -> usize {
        let choosing = rest.partition_point(|place| is_choosing(*place));
        if !self.leave_in_order() {
            self.futile % rest.len().max(1)
        } else if choosing == rest.len() {
            0
        } else {
            choosing + (rest.len() - choosing) / 2
        }
    }

    /// Whether we are let in only when all are gone, so that one may stand for those before it.
    fn leave_in_order(&self) -> bool {
        match self.mode {
            Mode::Exclusive | Mode::Shared => true,
            Mode::Limited(_) => false,
        }
    }

    fn place(&self, contender: ContenderId) -> Option<Place> {
        let standing = self.blockers.standing(contender)?;
        Some(Place { ticket: standing.ticket().unwrap_or(NO_TICKET), contender })
    }
}

/// Stands for "no ticket yet", before every ticket.
const NO_TICKET: i64 = i64::MIN;

/// The jitter, in 0..1, keeps waiters from asking all at once.
fn jittered(pause: Duration, jitter: f64) -> Duration {
    pause.min(PAUSE_MAX).mul_f64(0.75 + jitter / 2.0)
}

/// A number of contenders as times are divided by it.
fn count(contenders: usize) -> u32 {
    u32::try_from(contenders).unwrap_or(u32::MAX)
}

fn is_choosing(place: Place) -> bool {
    place.ticket == NO_TICKET
}

#[cfg(test)]
mod tests {
    use super::super::row::{Claim, Mode, StoredRow};
    use super::*;

    const ME: Place = Place { ticket: 10_000, contender: id(99) };

    const fn id(host: i32) -> ContenderId {
        ContenderId { host, client: 0, slot: 0 }
    }

    fn rows(claims: &[(i32, Option<i64>)]) -> Vec<StoredRow> {
        let claims: Vec<_> = claims
            .iter()
            .map(|&(host, ticket)| Claim {
                contender: id(host),
                round: 1,
                mode: Mode::Exclusive,
                ticket,
                owner: String::new(),
            })
            .collect();
        let tickets = claims.iter().filter_map(StoredRow::ticket);
        claims.iter().map(StoredRow::entering).chain(tickets).collect()
    }

    fn line(claims: &[(i32, Option<i64>)]) -> Line {
        line_after(Duration::from_millis(10), claims)
    }

    fn line_after(doorway: Duration, claims: &[(i32, Option<i64>)]) -> Line {
        let blockers = Survey::of(&rows(claims)).blockers_of(ME, Mode::Exclusive);
        Line::new(ME, Mode::Exclusive, blockers, Duration::ZERO, doorway)
    }

    fn queue(length: i32) -> Vec<(i32, Option<i64>)> {
        (1..=length).map(|host| (host, Some(i64::from(host)))).collect()
    }

    #[test]
    fn asks_the_middle_of_the_rest_until_the_predecessor_is_gone() {
        let mut line = line(&queue(8));
        for host in [5, 7, 8] {
            assert_eq!(line.question(), Question::Present(id(host)));
            assert!(line.answered(id(host), &Survey::default(), Duration::ZERO));
        }
        assert_eq!(line.question(), Question::Everybody);
        assert_eq!(line.blockers().iter().count(), 5, "presumed gone is not gone");
        line.confirmed(&Survey::of(&rows(&[(2, Some(2))])));
        assert_eq!(line.question(), Question::Present(id(2)));
        assert_eq!(line.blockers().iter().count(), 1);
    }

    #[test]
    fn choosing_ones_are_asked_one_by_one_and_only_when_no_ticket_is_ahead() {
        let mut line = line(&[(1, None), (2, None), (3, Some(3))]);
        assert_eq!(line.question(), Question::Present(id(3)));
        assert!(line.is_taken());
        assert!(line.answered(id(3), &Survey::default(), Duration::ZERO));
        assert_eq!(line.question(), Question::Everybody);
        line.confirmed(&Survey::of(&rows(&[(1, None), (2, None)])));
        assert!(!line.is_taken());
        assert_eq!(line.question(), Question::Choosing(id(1)));
        assert!(line.answered(id(1), &Survey::of(&rows(&[(1, Some(10_001))])), Duration::ZERO));
        assert_eq!(line.question(), Question::Choosing(id(2)));
        assert!(!line.answered(id(2), &Survey::of(&rows(&[(2, Some(5))])), Duration::ZERO));
        assert_eq!(line.question(), Question::Present(id(2)), "it drew a ticket before ours");
    }

    #[test]
    fn pauses_grow_with_the_number_ahead() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let first = |claims: &[_], now| line(claims).first_pause(now, 0.5);
        assert_eq!((first(&queue(1), ms(0)), first(&queue(8), ms(0))), (ms(0), us(10_500)));
        assert_eq!(first(&[(1, None), (2, None)], ms(39)), ms(0));
        let pause = |claims: &[_], now| line(claims).pause(now, ms(2), 0.5);
        assert_eq!(pause(&queue(1), ms(0)), ms(2), "the last one about a round trip");
        assert_eq!(pause(&queue(8), ms(0)), us(10_500), "for the three between 0.7 hand-overs");
        let after = |doorway| line_after(doorway, &queue(8)).pause(ms(0), ms(2), 0.5);
        assert_eq!((after(ms(0)), after(ms(900))), (us(2_100), ms(210)), "within bounds");
        assert_eq!(pause(&queue(2000), ms(0)), ms(1000));
        assert_eq!(pause(&[(1, None), (2, None)], ms(39)), ms(2), "choosing: fast at first");
        assert_eq!(pause(&[(1, None), (2, None)], ms(40)), us(3_500), "then like any holder");
        let jittered = |jitter| line(&queue(8)).pause(ms(0), ms(2), jitter);
        assert_eq!((jittered(0.0), jittered(1.0)), (us(7_875), us(13_125)));
    }

    #[test]
    fn pauses_follow_the_hand_overs_that_were_seen() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let survey = Survey::of(&rows(&queue(8)));
        let mut line = line_after(ms(20), &queue(8));
        let pause = |line: &Line, now| line.pause(now, ms(1), 0.5);
        assert!(line.answered(id(5), &Survey::default(), ms(40)));
        assert!(!line.answered(id(7), &survey, ms(41)));
        assert_eq!(pause(&line, ms(41)), us(5_600), "five left within 40 ms");
        assert!(!line.answered(id(7), &survey, ms(84)));
        assert_eq!(pause(&line, ms(84)), us(8_400), "six at most left within 84 ms");
        assert!(!line.answered(id(7), &survey, ms(300)));
        assert_eq!(pause(&line, ms(300)), us(16_187) + Duration::from_nanos(500), "it stays");

        let mut stalled = line_after(ms(20), &queue(8));
        assert!(!stalled.answered(id(5), &survey, ms(9_000)));
        assert_eq!(pause(&stalled, ms(9_000)), ms(42), "no hand-over takes longer than a doorway");
        let mut quick = line_after(ms(20), &queue(8));
        assert!(quick.answered(id(5), &Survey::default(), ms(1)));
        assert_eq!(pause(&quick, ms(1)), ms(1));
    }

    #[test]
    fn pauses_grow_with_the_time_that_somebody_stays() {
        let s = Duration::from_secs;
        let survey = Survey::of(&rows(&queue(2)));
        let mut line = line(&queue(2));
        let pause = |line: &Line, now| line.pause(now, Duration::from_millis(2), 0.5);
        assert!(!line.answered(id(2), &survey, s(10)));
        assert_eq!(pause(&line, s(10)), Duration::from_millis(2));
        assert!(!line.answered(id(2), &survey, s(14)));
        assert_eq!(pause(&line, s(14)), Duration::from_millis(250));
        assert!(!line.answered(id(2), &survey, s(74)));
        assert_eq!(pause(&line, s(74)), s(1));
        assert!(!line.answered(id(1), &survey, s(74)));
        assert_eq!(pause(&line, s(74)), Duration::from_millis(2), "another one");
        assert!(line.answered(id(1), &Survey::default(), s(74)));
        assert_eq!(pause(&line, s(90)), Duration::from_millis(2), "it is gone");
    }
}
