//! Which blocker a waiting contender asks next (design section 7); [`backoff`] says when.
//!
//! Whole reads are costly and one-row reads cheap. So between the first read after drawing and the
//! confirming one, a contender asks single blockers whether they are still there. That only selects
//! which blocker to ask: blockers leave by a look at themselves or by a whole read.

mod backoff;
#[cfg(model)]
mod fingerprint;

use std::time::Duration;

use self::backoff::Handoff;
use super::admission::{Blockers, Place, Snapshot, Standing};
use super::row::{ContenderId, Mode};
use super::seeded_bug::SeededBug;

/// A choosing contender is expected to choose for this many of the waiter's own doorway times.
const CHOOSING_DOORWAYS: u32 = 4;
/// A doorway on an idle cluster is so short that an ordinary hiccup outlasts four of them.
const CHOOSING_MIN: Duration = Duration::from_millis(20);
/// A try should end soon, however slow the database is; giving up early is always safe.
const CHOOSING_MAX: Duration = Duration::from_millis(100);

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// Is this contender, which has a ticket, still there? Its `entering::` row tells.
    Present(ContenderId),
    /// Has this contender left, or drawn a ticket? Both of its rows tell.
    Choosing(ContenderId),
    /// Have all contenders ahead left? Only a whole read tells.
    All,
}

/// The blockers ahead of a waiting contender, in the order in which they will be let in.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    mine: Place,
    mode: Mode,
    blockers: Blockers,
    /// Blockers up to this place are presumed gone, because the one there is.
    presumed_gone: Option<Place>,
    /// The number of questions that found no contender gone.
    futile: usize,
    /// The contender that the last question found present, and when it was first found so.
    stays: Option<(ContenderId, Duration)>,
    /// How long a choosing contender is expected to choose, from the last move seen.
    choosing: Duration,
    choosing_until: Duration,
    handoff: Handoff,
}

impl Queue {
    /// The queue ahead of `mine`, fixed by the first read after drawing; `doorway` is how long the
    /// doorway took.
    pub(crate) fn new(
        mine: Place,
        mode: Mode,
        blockers: Blockers,
        now: Duration,
        doorway: Duration,
    ) -> Self {
        let choosing = (doorway * CHOOSING_DOORWAYS).clamp(CHOOSING_MIN, CHOOSING_MAX);
        let handoff = Handoff::expected(now, blockers.iter().count(), doorway);
        Queue {
            mine,
            mode,
            blockers,
            presumed_gone: None,
            futile: 0,
            stays: None,
            choosing,
            choosing_until: now + choosing,
            handoff,
        }
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
        let rest = self.rest();
        let Some(Place { contender, .. }) = rest.get(self.asked(&rest)).copied() else {
            return Question::All;
        };
        match self.blockers.standing(contender) {
            Some(Standing::Queued { .. }) => Question::Present(contender),
            Some(Standing::Choosing { .. }) => Question::Choosing(contender),
            // It may have rows of unknown names, which can't be read by key.
            Some(Standing::Unreadable) | None => Question::All,
        }
    }

    /// Handles the answer to a question about one contender; true if it no longer blocks.
    pub(crate) fn answered(
        &mut self,
        contender: ContenderId,
        snapshot: &Snapshot,
        now: Duration,
    ) -> bool {
        let place = self.place(contender);
        let gone = self.blockers.look(contender, snapshot, self.mine);
        if gone && self.leave_in_order() {
            // Places say nothing about choosing contenders, so one that left says nothing about the
            // others.
            self.presumed_gone = place.filter(|place| !is_choosing(*place)).or(self.presumed_gone);
        }
        self.futile += usize::from(!gone);
        self.note_move(gone, now);
        self.note_stay(contender, gone, now);
        self.time_handoffs(contender, gone, now);
        gone
    }

    /// Handles a whole read; true if a blocker was removed. None is presumed gone any longer.
    pub(crate) fn confirmed(&mut self, snapshot: &Snapshot, now: Duration) -> bool {
        let rest = self.rest();
        let asked = rest.get(self.asked(&rest)).map(|place| place.contender);
        let any_gone = self.blockers.confirm(snapshot, self.mine);
        if !SeededBug::MiddleStandsForAll.is_planted() {
            self.presumed_gone = None;
        }
        self.futile += usize::from(!any_gone);
        self.note_move(any_gone, now);
        // Only an unreadable contender is asked for by a whole read.
        if let Some(asked) = asked {
            self.note_stay(asked, self.blockers.standing(asked).is_none(), now);
        }
        any_gone
    }

    fn note_move(&mut self, gone: bool, now: Duration) {
        if gone {
            self.choosing_until = now + self.choosing;
        }
    }

    /// Notes how long the asked contender has stayed.
    fn note_stay(&mut self, asked: ContenderId, gone: bool, now: Duration) {
        let known = self.stays.filter(|(stays, _)| *stays == asked && !gone);
        self.stays = known.or_else(|| (!gone).then_some((asked, now)));
    }

    /// The blockers not presumed gone, in order of place. Choosing ones count as ahead of all
    /// tickets: one that stays may be a holder on the fast path.
    fn rest(&self) -> Vec<Place> {
        let places = self.blockers.iter().map(|(contender, _)| contender);
        let mut rest: Vec<_> = places
            .filter_map(|contender| self.place(contender))
            .filter(|place| self.presumed_gone.is_none_or(|gone| *place > gone))
            .collect();
        rest.sort_unstable();
        rest
    }

    /// Which of the rest to ask: the one half way to us among those with a ticket, or the first if
    /// all are choosing. If they leave in any order and each makes room, one after the other.
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

    /// Whether we are let in only when all are gone, so that one may stand for all before it.
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

fn is_choosing(place: Place) -> bool {
    place.ticket == NO_TICKET
}

#[cfg(test)]
mod tests {
    use super::super::row::{Claim, Mode, StoredRow};
    use super::*;

    pub(super) const ME: Place = Place { ticket: 10_000, contender: id(99) };

    pub(super) const fn id(host: i32) -> ContenderId {
        ContenderId { host, client: 0, slot: 0 }
    }

    pub(super) fn rows(claims: &[(i32, Option<i64>)]) -> Vec<StoredRow> {
        let claims: Vec<_> = claims
            .iter()
            .map(|&(host, ticket)| Claim {
                contender: id(host),
                round: 1,
                mode: Mode::Exclusive,
                ticket,
                owner: String::new(),
                held_since: None,
            })
            .collect();
        let tickets = claims.iter().filter_map(StoredRow::ticket);
        claims.iter().map(StoredRow::entering).chain(tickets).collect()
    }

    pub(super) fn queue(claims: &[(i32, Option<i64>)]) -> Queue {
        queue_after(Duration::from_millis(10), claims)
    }

    pub(super) fn queue_after(doorway: Duration, claims: &[(i32, Option<i64>)]) -> Queue {
        let blockers = Snapshot::of(&rows(claims)).blockers_of(ME, Mode::Exclusive);
        Queue::new(ME, Mode::Exclusive, blockers, Duration::ZERO, doorway)
    }

    pub(super) fn tickets(length: i32) -> Vec<(i32, Option<i64>)> {
        (1..=length).map(|host| (host, Some(i64::from(host)))).collect()
    }

    #[test]
    fn asks_the_middle_of_the_rest_until_the_predecessor_is_gone() {
        let mut queue = queue(&tickets(8));
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
    fn choosing_ones_are_asked_one_by_one_and_only_when_no_ticket_is_ahead() {
        let mut queue = queue(&[(1, None), (2, None), (3, Some(3))]);
        assert_eq!(queue.question(), Question::Present(id(3)));
        assert!(queue.is_taken());
        assert!(queue.answered(id(3), &Snapshot::default(), Duration::ZERO));
        assert_eq!(queue.question(), Question::All);
        queue.confirmed(&Snapshot::of(&rows(&[(1, None), (2, None)])), Duration::ZERO);
        assert!(!queue.is_taken());
        assert_eq!(queue.question(), Question::Choosing(id(1)));
        assert!(queue.answered(id(1), &Snapshot::of(&rows(&[(1, Some(10_001))])), Duration::ZERO));
        assert_eq!(queue.question(), Question::Choosing(id(2)));
        assert!(!queue.answered(id(2), &Snapshot::of(&rows(&[(2, Some(5))])), Duration::ZERO));
        assert_eq!(queue.question(), Question::Present(id(2)), "it drew a ticket before ours");
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
