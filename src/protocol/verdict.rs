//! From rows to a verdict: who is in the queue, who blocks whom, and who is let in.
//!
//! The rule of who is let in stands here and nowhere else (design section 4).

use std::collections::BTreeMap;

use super::mutation::Mutation;
use super::row::{Claim, ContenderId, Mode, Revocation, Row, StoredRow};

/// Whether a contender of `mode` is let in while contenders of these modes still block it.
///
/// Only conflicting contenders block. For a limited one the limited blockers are counted, and only
/// those: a single exclusive one keeps it out, however few the holders are.
pub(crate) fn admits(mode: Mode, blockers: impl IntoIterator<Item = Option<Mode>>) -> bool {
    let mut limited = 0;
    for blocker in blockers {
        match (mode, blocker) {
            (Mode::Limited(_), Some(Mode::Limited(_))) => limited += 1,
            (Mode::Limited(_), Some(Mode::Exclusive))
                if Mutation::LimitedCountsExclusive.is_planted() =>
            {
                limited += 1;
            }
            (Mode::Exclusive | Mode::Shared | Mode::Limited(_), _) => return false,
        }
    }
    match mode {
        Mode::Exclusive | Mode::Shared => true,
        Mode::Limited(most) => limited < most,
    }
}

/// Whether a contender of mode `theirs` can keep one of mode `mine` out. One that can't be read
/// can.
fn conflicts(mine: Mode, theirs: Option<Mode>) -> bool {
    !matches!((mine, theirs), (Mode::Shared, Some(Mode::Shared)))
}

/// A place in the queue: smaller is let in earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// The ticket.
    pub(crate) ticket: i64,
    /// Breaks ties.
    pub(crate) contender: ContenderId,
}

/// What the rows of one contender, taken together, say of it. Without an `entering::` row it is
/// absent and has no standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// It announced itself and has no ticket of that round: it chooses, or holds by the short way.
    Choosing {
        /// Its round.
        round: i64,
        /// How it wants to hold the object.
        mode: Mode,
    },
    /// It is in the queue, or holds.
    Queued {
        /// Its round.
        round: i64,
        /// How it wants to hold the object.
        mode: Mode,
        /// Its ticket.
        ticket: i64,
    },
    /// One of its rows can't be understood.
    Unreadable,
}

impl Standing {
    /// The round, where it can be told.
    pub(crate) fn round(self) -> Option<i64> {
        match self {
            Standing::Choosing { round, .. } | Standing::Queued { round, .. } => Some(round),
            Standing::Unreadable => None,
        }
    }

    /// The mode, where it can be told.
    pub(crate) fn mode(self) -> Option<Mode> {
        match self {
            Standing::Choosing { mode, .. } | Standing::Queued { mode, .. } => Some(mode),
            Standing::Unreadable => None,
        }
    }

    /// The ticket, once one was drawn for the round.
    pub(crate) fn ticket(self) -> Option<i64> {
        match self {
            Standing::Queued { ticket, .. } => Some(ticket),
            Standing::Choosing { .. } | Standing::Unreadable => None,
        }
    }
}

/// What one read of an object, or of some contenders of it, shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    standings: BTreeMap<ContenderId, Standing>,
    owners: BTreeMap<ContenderId, String>,
    revocations: BTreeMap<ContenderId, Option<Revocation>>,
    largest_ticket: i64,
}

impl Survey {
    /// Puts the rows of each contender together.
    pub(crate) fn of(rows: &[StoredRow]) -> Self {
        let mut entering = BTreeMap::new();
        let mut tickets = BTreeMap::new();
        let mut survey = Survey::default();
        for row in rows {
            match row.parse() {
                Row::Entering { round, mode } => {
                    entering.insert(row.contender, (round, mode));
                    survey.owners.insert(row.contender, row.owner.clone().unwrap_or_default());
                }
                Row::Ticket { round, ticket } => {
                    tickets.insert(row.contender, (round, ticket));
                    survey.largest_ticket = survey.largest_ticket.max(ticket);
                }
                Row::Revoked { round } => {
                    let revocation = round.map(|round| Revocation {
                        contender: row.contender,
                        round,
                        by: row.owner.clone().unwrap_or_default(),
                        why: row.why.clone().unwrap_or_default(),
                    });
                    survey.revocations.insert(row.contender, revocation);
                }
                Row::Unreadable => {
                    survey.standings.insert(row.contender, Standing::Unreadable);
                }
            }
        }
        for (contender, (round, mode)) in entering {
            let standing = match tickets.get(&contender) {
                Some(&(drawn_for, ticket)) if drawn_for == round => {
                    Standing::Queued { round, mode, ticket }
                }
                Some(_) | None => Standing::Choosing { round, mode },
            };
            // An unreadable row of the same contender outweighs what else is known of it.
            survey.standings.entry(contender).or_insert(standing);
        }
        if Mutation::TicketStandsAlone.is_planted() {
            for (contender, (round, ticket)) in tickets {
                let standing = Standing::Queued { round, mode: Mode::Exclusive, ticket };
                survey.standings.entry(contender).or_insert(standing);
            }
        }
        survey
    }

    /// How a contender stands; `None` when it is absent.
    pub(crate) fn standing(&self, contender: ContenderId) -> Option<Standing> {
        self.standings.get(&contender).copied()
    }

    /// Whether a contender has a `revoked::` row, whichever round it means.
    pub(crate) fn has_revoked_row(&self, contender: ContenderId) -> bool {
        self.revocations.contains_key(&contender)
    }

    /// The wish that a contender gives up this round.
    pub(crate) fn revocation(&self, contender: ContenderId, round: i64) -> Option<&Revocation> {
        let revocation = self.revocations.get(&contender)?.as_ref();
        revocation.filter(|revocation| revocation.round == round)
    }

    /// Everybody, as the queue stands.
    pub(crate) fn contenders(&self) -> Vec<SeenContender> {
        in_line(&self.standings, &self.owners)
    }

    /// The largest ticket of any row, be its contender present or gone; 0 when there is none.
    pub(crate) fn largest_ticket(&self) -> i64 {
        self.largest_ticket
    }

    /// Who blocks `me` while I have no ticket yet: every conflicting contender that is not absent.
    pub(crate) fn blockers_before_drawing(&self, me: ContenderId, mode: Mode) -> Blockers {
        self.blockers(me, mode, |theirs| {
            theirs.is_some() || !Mutation::ShortWayIgnoresChoosing.is_planted()
        })
    }

    /// Who blocks the holder of `place`: every conflicting contender that is choosing, that can't
    /// be read, or that is in the queue before that place.
    pub(crate) fn blockers_of(&self, place: Place, mode: Mode) -> Blockers {
        self.blockers(place.contender, mode, |theirs| match theirs {
            None => !Mutation::NoChoosingPhase.is_planted(),
            Some(theirs) if Mutation::NoTieBreak.is_planted() => theirs.ticket < place.ticket,
            Some(theirs) => theirs < place,
        })
    }

    fn blockers(
        &self,
        me: ContenderId,
        mode: Mode,
        blocks: impl Fn(Option<Place>) -> bool,
    ) -> Blockers {
        let conflicting = self.standings.iter().filter(|&(&contender, standing)| {
            let place = standing.ticket().map(|ticket| Place { ticket, contender });
            contender != me && conflicts(mode, standing.mode()) && blocks(place)
        });
        Blockers {
            standings: conflicting.map(|(&contender, &standing)| (contender, standing)).collect(),
            owners: self.owners.clone(),
        }
    }
}

/// A contender, as a read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenContender {
    /// Who.
    pub(crate) contender: ContenderId,
    /// What it calls itself.
    pub(crate) owner: String,
    /// Its round, if its rows can be read.
    pub(crate) round: Option<i64>,
    /// Its ticket, if it has drawn one.
    pub(crate) ticket: Option<i64>,
}

impl From<&Claim> for SeenContender {
    fn from(claim: &Claim) -> Self {
        let Claim { contender, round, ticket, ref owner, .. } = *claim;
        SeenContender { contender, owner: owner.clone(), round: Some(round), ticket }
    }
}

/// Those who are still in the way: pairs of a contender and its round. They only ever become fewer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blockers {
    standings: BTreeMap<ContenderId, Standing>,
    owners: BTreeMap<ContenderId, String>,
}

impl Blockers {
    /// Whether those who are left let a contender of `mode` in.
    pub(crate) fn admit(&self, mode: Mode) -> bool {
        admits(mode, self.standings.values().map(|standing| standing.mode()))
    }

    /// Whether those who are left would let a contender of `mode` in if the ones without a ticket
    /// left too.
    pub(crate) fn queue_admits(&self, mode: Mode) -> bool {
        let queued = self.standings.values().filter(|standing| standing.ticket().is_some());
        admits(mode, queued.map(|standing| standing.mode()))
    }

    /// How one of those who are left stood when last seen.
    pub(crate) fn standing(&self, contender: ContenderId) -> Option<Standing> {
        self.standings.get(&contender).copied()
    }

    /// Each of those who are left, with how it stood when last seen.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ContenderId, Standing)> {
        self.standings.iter().map(|(&contender, &standing)| (contender, standing))
    }

    /// Those who are left, as the queue stands.
    pub(crate) fn contenders(&self) -> Vec<SeenContender> {
        in_line(&self.standings, &self.owners)
    }

    /// Holds every blocker against a read of the whole object; true when one was removed.
    pub(crate) fn confirm(&mut self, survey: &Survey, mine: Place) -> bool {
        let before = self.standings.len();
        self.standings.retain(|&contender, blocker| {
            *blocker = match still_blocks(*blocker, contender, survey, mine) {
                Some(standing) => standing,
                None => return false,
            };
            true
        });
        self.standings.len() < before
    }

    /// Holds one blocker against a look at its rows; true when it was removed.
    pub(crate) fn look(&mut self, contender: ContenderId, survey: &Survey, mine: Place) -> bool {
        let Some(blocker) = self.standings.get(&contender).copied() else {
            return true;
        };
        match still_blocks(blocker, contender, survey, mine) {
            Some(standing) => {
                self.standings.insert(contender, standing);
                false
            }
            None => self.standings.remove(&contender).is_some(),
        }
    }
}

/// Contenders in the order of the queue. Who has no ticket may hold by the short way, so it comes
/// first.
fn in_line(
    standings: &BTreeMap<ContenderId, Standing>,
    owners: &BTreeMap<ContenderId, String>,
) -> Vec<SeenContender> {
    let mut contenders: Vec<_> = standings
        .iter()
        .map(|(&contender, standing)| SeenContender {
            contender,
            owner: owners.get(&contender).cloned().unwrap_or_default(),
            round: standing.round(),
            ticket: standing.ticket(),
        })
        .collect();
    contenders.sort_unstable_by_key(|seen| (seen.ticket, seen.contender));
    contenders
}

/// How a blocker stands after a look at it; `None` once exactly that pair is out of the way: the
/// contender is absent, or on another round, or seen with a ticket after mine.
fn still_blocks(
    blocker: Standing,
    contender: ContenderId,
    survey: &Survey,
    mine: Place,
) -> Option<Standing> {
    let seen = survey.standing(contender)?;
    let other_round = match (blocker.round(), seen.round()) {
        (Some(before), Some(now)) => before != now,
        // What couldn't be read, then or now, can't be told to be another round.
        (None, _) | (_, None) => false,
    };
    let after_mine = seen.ticket().is_some_and(|ticket| Place { ticket, contender } > mine);
    if other_round || after_mine {
        return None;
    }
    // A look at the `entering::` row alone shows no ticket, and a row that can't be read shows
    // nothing: what is known already stands.
    let tells_more = seen.ticket().is_some() || blocker.round().is_none();
    Some(if tells_more { seen } else { blocker })
}

#[cfg(test)]
mod tests {
    use super::super::row::Claim;
    use super::*;

    const ME: ContenderId = id(1);

    const fn id(host: i32) -> ContenderId {
        ContenderId { host, client: 0, slot: 0 }
    }

    fn claim(host: i32, round: i64, ticket: Option<i64>, mode: Mode) -> Claim {
        Claim { contender: id(host), round, mode, ticket, owner: format!("h{host}") }
    }

    fn rows(claims: &[Claim]) -> Vec<StoredRow> {
        let tickets = claims.iter().filter_map(StoredRow::ticket);
        claims.iter().map(StoredRow::entering).chain(tickets).collect()
    }

    fn hosts(blockers: &Blockers) -> Vec<i32> {
        blockers.iter().map(|(contender, _)| contender.host).collect()
    }

    #[test]
    fn who_is_let_in() {
        use Mode::{Exclusive, Limited, Shared};
        let cases: &[(Mode, &[Option<Mode>], bool)] = &[
            (Exclusive, &[], true),
            (Exclusive, &[Some(Shared)], false),
            (Exclusive, &[Some(Limited(2))], false),
            (Exclusive, &[None], false),
            (Shared, &[], true),
            (Shared, &[Some(Exclusive)], false),
            (Shared, &[Some(Limited(2))], false),
            (Shared, &[None], false),
            (Limited(2), &[], true),
            (Limited(2), &[Some(Limited(2))], true),
            (Limited(2), &[Some(Limited(2)), Some(Limited(2))], false),
            (Limited(2), &[Some(Exclusive)], false),
            (Limited(2), &[Some(Shared)], false),
            (Limited(2), &[None], false),
        ];
        for (mode, blockers, expected) in cases {
            assert_eq!(admits(*mode, blockers.iter().copied()), *expected, "{mode:?} {blockers:?}");
        }
    }

    #[test]
    fn shared_ones_do_not_block_each_other() {
        let survey = Survey::of(&rows(&[
            claim(2, 5, None, Mode::Shared),
            claim(3, 5, None, Mode::Exclusive),
        ]));
        assert_eq!(hosts(&survey.blockers_before_drawing(ME, Mode::Shared)), [3]);
        assert_eq!(hosts(&survey.blockers_before_drawing(ME, Mode::Exclusive)), [2, 3]);
    }

    #[test]
    fn standing_follows_from_both_rows() {
        let queued = claim(2, 5, Some(3), Mode::Exclusive);
        let both = rows(std::slice::from_ref(&queued));
        let mode = Mode::Exclusive;
        let standing = |rows: &[StoredRow]| Survey::of(rows).standing(id(2));
        assert_eq!(standing(&both), Some(Standing::Queued { round: 5, mode, ticket: 3 }));
        assert_eq!(standing(&both[..1]), Some(Standing::Choosing { round: 5, mode }));
        assert_eq!(standing(&both[1..]), None, "a ticket alone is nobody");
        let older = StoredRow { round: Some(4), ..both[1].clone() };
        assert_eq!(
            standing(&[both[0].clone(), older]),
            Some(Standing::Choosing { round: 5, mode }),
            "a ticket of another round does not count"
        );
        let odd = StoredRow { ticket: None, ..both[1].clone() };
        assert_eq!(standing(&[odd, both[0].clone()]), Some(Standing::Unreadable));
        assert_eq!(Survey::of(&both[1..]).largest_ticket(), 3, "it counts for the next number");
    }

    #[test]
    fn everybody_is_told_in_the_order_of_the_queue() {
        let mode = Mode::Exclusive;
        let claims =
            [claim(2, 9, Some(3), mode), claim(3, 9, Some(2), mode), claim(4, 9, None, mode)];
        let told = Survey::of(&rows(&claims)).contenders();
        let [second, first, choosing] = claims.each_ref().map(SeenContender::from);
        assert_eq!(told, [choosing, first, second]);
    }

    #[test]
    fn blockers_are_those_choosing_or_before_me() {
        let mode = Mode::Exclusive;
        let survey = Survey::of(&rows(&[
            claim(1, 9, Some(5), mode),
            claim(0, 9, Some(5), mode),
            claim(2, 9, Some(5), mode),
            claim(3, 9, Some(4), mode),
            claim(4, 9, Some(6), mode),
            claim(5, 9, None, mode),
        ]));
        let mine = Place { ticket: 5, contender: ME };
        assert_eq!(hosts(&survey.blockers_of(mine, mode)), [0, 3, 5]);
        assert_eq!(hosts(&survey.blockers_before_drawing(ME, mode)), [0, 2, 3, 4, 5]);
    }

    #[test]
    fn a_look_removes_exactly_the_pair_it_looked_at() {
        let mode = Mode::Exclusive;
        let mine = Place { ticket: 5, contender: ME };
        let before = [claim(2, 9, Some(3), mode), claim(3, 9, None, mode)];
        let left = |rows: &[StoredRow]| {
            let mut blockers = Survey::of(&tests::rows(&before)).blockers_of(mine, mode);
            blockers.look(id(3), &Survey::of(rows), mine);
            hosts(&blockers)
        };
        assert_eq!(left(&[]), [2], "absent");
        assert_eq!(left(&rows(&[claim(3, 10, None, mode)])), [2], "another round");
        assert_eq!(left(&rows(&[claim(3, 9, Some(6), mode)])), [2], "a ticket after mine");
        assert_eq!(left(&rows(&[claim(3, 9, Some(4), mode)])), [2, 3], "a ticket before mine");
        assert_eq!(left(&rows(&[claim(3, 9, None, mode)])), [2, 3], "still choosing");
        let odd = StoredRow { round: None, ..rows(&[claim(3, 9, None, mode)])[0].clone() };
        assert_eq!(left(&[odd]), [2, 3], "unreadable");
    }

    #[test]
    fn a_confirming_read_removes_all_that_left_and_adds_nobody() {
        let mode = Mode::Exclusive;
        let mine = Place { ticket: 5, contender: ME };
        let before = [claim(2, 9, Some(3), mode), claim(3, 9, None, mode), claim(4, 9, None, mode)];
        let mut blockers = Survey::of(&rows(&before)).blockers_of(mine, mode);
        let now = [claim(3, 9, None, mode), claim(4, 11, None, mode), claim(6, 1, Some(1), mode)];
        let now = Survey::of(&rows(&now));
        assert!(blockers.confirm(&now, mine), "two left");
        assert_eq!(hosts(&blockers), [3]);
        assert!(!blockers.admit(mode));
        assert!(!blockers.confirm(&now, mine), "nobody left since");
        assert!(blockers.confirm(&Survey::default(), mine));
        assert!(blockers.admit(mode));
    }

    #[test]
    fn a_known_ticket_survives_a_look_at_the_entering_row() {
        let mode = Mode::Exclusive;
        let mine = Place { ticket: 5, contender: ME };
        let queued = rows(&[claim(2, 9, Some(3), mode)]);
        let mut blockers = Survey::of(&queued).blockers_of(mine, mode);
        assert!(!blockers.look(id(2), &Survey::of(&queued[..1]), mine));
        assert_eq!(blockers.iter().next().and_then(|(_, standing)| standing.ticket()), Some(3));
        assert_eq!(blockers.contenders()[0].owner, "h2");
    }
}
