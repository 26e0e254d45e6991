//! Derives standings from rows: what one read shows, and which contenders it shows in the way.

use std::collections::BTreeMap;

use super::super::row::{
    Claim, ContenderId, LastRelease, Mode, Revocation, RevokeKind, Row, Statics, StoredRow,
};
use super::super::seeded_bug::SeededBug;
use super::{Blockers, QueuePosition, Standing, admits, conflicts};

/// What one read shows of an object, or of some of its contenders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    standings: BTreeMap<ContenderId, Standing>,
    owners: BTreeMap<ContenderId, String>,
    revocations: BTreeMap<ContenderId, Option<Revocation>>,
    held_since: BTreeMap<ContenderId, i64>,
    largest_ticket: i64,
    statics: Statics,
}

impl Snapshot {
    /// Adds what the same read shows of the static columns.
    pub(crate) fn with(self, statics: Statics) -> Self {
        Snapshot { statics, ..self }
    }

    /// Interprets the rows.
    pub(crate) fn of(rows: &[StoredRow]) -> Self {
        let mut snapshot = Snapshot::default();
        for row in rows {
            match row.parse() {
                Row::Entering { round, mode, ticket, held_since } => {
                    let standing = match ticket {
                        Some(ticket) => Standing::Queued { round, mode, ticket },
                        None => Standing::Choosing { round, mode },
                    };
                    // An unreadable row of the same contender outweighs all else known about it.
                    snapshot.standings.entry(row.contender).or_insert(standing);
                    snapshot.largest_ticket = snapshot.largest_ticket.max(ticket.unwrap_or(0));
                    snapshot.held_since.extend(held_since.map(|since| (row.contender, since)));
                    snapshot.owners.insert(row.contender, row.owner.clone().unwrap_or_default());
                }
                Row::Revoked { round, kind } => {
                    let revocation = round.map(|round| Revocation {
                        contender: row.contender,
                        round,
                        by: row.owner.clone().unwrap_or_default(),
                        why: row.why.clone().unwrap_or_default(),
                        kind,
                    });
                    snapshot.revocations.insert(row.contender, revocation);
                }
                Row::Unreadable => {
                    snapshot.standings.insert(row.contender, Standing::Unreadable);
                }
            }
        }
        snapshot
    }

    /// The standing of a contender; `None` if it is absent.
    pub(crate) fn standing(&self, contender: ContenderId) -> Option<Standing> {
        self.standings.get(&contender).copied()
    }

    /// Whether a contender has a `revoked::` row, for whichever round.
    pub(crate) fn has_revoked_row(&self, contender: ContenderId) -> bool {
        self.revocations.contains_key(&contender)
    }

    /// The request that a contender give up this round.
    pub(crate) fn revocation(&self, contender: ContenderId, round: i64) -> Option<&Revocation> {
        let revocation = self.revocations.get(&contender)?.as_ref();
        revocation.filter(|revocation| revocation.round == round)
    }

    /// Whether the rows of a claim are shown as acknowledged, without a request that its contender
    /// leave.
    pub(crate) fn shows(&self, claim: &Claim) -> Result<(), Denial> {
        match self.shows_holder(claim)? {
            Some(revocation) => Err(Denial::Revoked(revocation.clone())),
            None => Ok(()),
        }
    }

    /// Whether a holder still holds: its rows are shown as acknowledged, and none removes them by
    /// force. With the request that it leave, if there is one.
    pub(crate) fn shows_holder(&self, claim: &Claim) -> Result<Option<&Revocation>, Denial> {
        let Claim { contender, round, ticket, .. } = *claim;
        let standing = self.standing(contender);
        let seen = standing.is_some_and(|s| s.round() == Some(round) && s.ticket() == ticket);
        match self.revocation(contender, round) {
            Some(revocation) if !seen || revocation.kind == RevokeKind::Force => {
                Err(Denial::Revoked(revocation.clone()))
            }
            revocation if seen => Ok(revocation),
            _ => Err(Denial::RowMissing),
        }
    }

    /// Whether another client asked this contender to leave, or removed it by force.
    pub(crate) fn is_revoked(&self, claim: &Claim) -> bool {
        self.revocation(claim.contender, claim.round).is_some()
    }

    /// The owner of a holder that was granted the object after `mine` and leaves no room for it. Of
    /// two holders only one finds a later one, so only one gives way (design section 5). The whole
    /// contender breaks ties: two slots of one client may hold limited locks.
    pub(crate) fn later_holder(&self, mine: &Claim) -> Option<String> {
        let since = mine.held_since.filter(|_| !SeededBug::HoldersDoNotCompare.is_planted())?;
        let ties_count = !SeededBug::NoTieBreakOfHolders.is_planted();
        let later = self.held_since.iter().filter(|&(&contender, &theirs)| {
            theirs > since || (theirs == since && contender > mine.contender && ties_count)
        });
        let later = later.filter_map(|(contender, _)| self.standings.get_key_value(contender));
        let later: Vec<_> =
            later.filter(|(_, standing)| conflicts(mine.mode, standing.mode())).collect();
        if admits(mine.mode, later.iter().map(|(_, standing)| standing.mode())) {
            return None;
        }
        let owner = later.iter().find_map(|(contender, _)| self.owners.get(contender));
        Some(owner.cloned().unwrap_or_default())
    }

    /// All contenders, in the order of the queue.
    pub(crate) fn contenders(&self) -> Vec<SeenContender> {
        let mut contenders = in_line(&self.standings, &self.owners);
        for seen in &mut contenders {
            seen.held_since = self.held_since.get(&seen.contender).copied();
            seen.holds = self.holds(seen.contender);
        }
        contenders
    }

    /// Whether a contender holds the object, as far as rows show; `None` if its own can't be read.
    ///
    /// It is for people. A holder's rows say so from the first renewal on. Before that, the order
    /// of the queue decides, and for a contender without a ticket the order of the rounds: one that
    /// has drawn no ticket before a later one has, holds on the fast path. In the moments of a
    /// doorway that may be wrong.
    fn holds(&self, contender: ContenderId) -> Option<bool> {
        if self.held_since.contains_key(&contender) {
            return Some(true);
        }
        let mine = self.standing(contender)?;
        let (mode, round) = (mine.mode()?, mine.round()?);
        let is_ahead = |other: ContenderId, theirs: Standing| match (theirs, mine) {
            (Standing::Unreadable, _) => true,
            _ if self.held_since.contains_key(&other) => true,
            (Standing::Queued { ticket: theirs, .. }, Standing::Queued { ticket, .. }) => {
                (theirs, other) < (ticket, contender)
            }
            (
                Standing::Choosing { round: theirs, .. } | Standing::Queued { round: theirs, .. },
                _,
            ) => (theirs, other) < (round, contender),
        };
        let ahead = self.standings.iter().filter(|&(&other, &theirs)| {
            other != contender && conflicts(mode, theirs.mode()) && is_ahead(other, theirs)
        });
        Some(admits(mode, ahead.map(|(_, theirs)| theirs.mode())))
    }

    /// The contenders that can't hold the object together with this one, in whatever order.
    pub(crate) fn conflicting(&self, me: ContenderId, mode: Mode) -> Vec<ContenderId> {
        let others = self.standings.iter().filter(|(contender, _)| **contender != me);
        let conflicting = others.filter(|(_, standing)| conflicts(mode, standing.mode()));
        conflicting.map(|(contender, _)| *contender).collect()
    }

    /// The largest ticket; 0 if there is none.
    pub(crate) fn largest_ticket(&self) -> i64 {
        self.largest_ticket
    }

    /// The last release, if one is known.
    pub(crate) fn last_release(&self) -> Option<LastRelease> {
        self.statics.last_release
    }

    /// The mark, if no contender may enter with this round: a client has begun to sweep what was
    /// written up to it.
    pub(crate) fn mark_from(&self, round: i64) -> Option<i64> {
        let ignored = SeededBug::MarkIgnored.is_planted();
        self.statics.mark.filter(|mark| *mark >= round && !ignored)
    }

    /// The blockers of `me` before it draws a ticket: every conflicting contender that is not
    /// absent.
    pub(crate) fn blockers_before_ticket(&self, me: ContenderId, mode: Mode) -> Blockers {
        self.blockers(me, mode, |theirs| {
            theirs.is_some() || !SeededBug::FastPathIgnoresChoosing.is_planted()
        })
    }

    /// The blockers of the contender at `place`: every conflicting contender that is choosing, is
    /// unreadable, or is in the queue before that place.
    pub(crate) fn blockers_of(&self, place: QueuePosition, mode: Mode) -> Blockers {
        self.blockers(place.contender, mode, |theirs| match theirs {
            None => !SeededBug::NoChoosingPhase.is_planted(),
            Some(theirs) if SeededBug::NoTieBreak.is_planted() => theirs.ticket < place.ticket,
            Some(theirs) => theirs < place,
        })
    }

    fn blockers(
        &self,
        me: ContenderId,
        mode: Mode,
        blocks: impl Fn(Option<QueuePosition>) -> bool,
    ) -> Blockers {
        let conflicting = self.standings.iter().filter(|&(&contender, standing)| {
            let place = standing.ticket().map(|ticket| QueuePosition { ticket, contender });
            contender != me && conflicts(mode, standing.mode()) && blocks(place)
        });
        let standings = conflicting.map(|(&contender, &standing)| (contender, standing)).collect();
        Blockers::new(standings, self.owners.clone())
    }
}

/// Why a read stops a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// An acknowledged row is missing.
    RowMissing,
    /// Another client asks us to leave.
    Revoked(Revocation),
}

/// A contender as shown by a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenContender {
    /// Its id.
    pub(crate) contender: ContenderId,
    /// Its owner, as stated in its rows.
    pub(crate) owner: String,
    /// Its round, if its rows can be read.
    pub(crate) round: Option<i64>,
    /// How it wants to hold the object, if its rows can be read.
    pub(crate) mode: Option<Mode>,
    /// Its ticket, if it has drawn one.
    pub(crate) ticket: Option<i64>,
    /// Since when it holds the object, if its rows show that, in milliseconds since the Unix epoch
    /// by its own clock.
    pub(crate) held_since: Option<i64>,
    /// Whether it holds the object, if the rows of all were read.
    pub(crate) holds: Option<bool>,
}

impl From<&Claim> for SeenContender {
    fn from(claim: &Claim) -> Self {
        let Claim { contender, round, mode, ticket, ref owner, held_since } = *claim;
        let (owner, round, mode) = (owner.to_string(), Some(round), Some(mode));
        SeenContender { contender, owner, round, mode, ticket, held_since, holds: None }
    }
}

/// Contenders in the order of the queue. One without a ticket may hold on the fast path, so it
/// comes first.
pub(super) fn in_line(
    standings: &BTreeMap<ContenderId, Standing>,
    owners: &BTreeMap<ContenderId, String>,
) -> Vec<SeenContender> {
    let mut contenders: Vec<_> = standings
        .iter()
        .map(|(&contender, standing)| SeenContender {
            contender,
            owner: owners.get(&contender).cloned().unwrap_or_default(),
            round: standing.round(),
            mode: standing.mode(),
            ticket: standing.ticket(),
            held_since: None,
            holds: None,
        })
        .collect();
    contenders.sort_unstable_by_key(|seen| (seen.ticket, seen.contender));
    contenders
}
