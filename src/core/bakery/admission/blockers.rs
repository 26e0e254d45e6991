//! The contenders that keep another one out, until looks show that they have left.

use std::collections::BTreeMap;

use super::super::row::{ContenderId, Mode};
use super::snapshot::in_line;
use super::{QueuePosition, SeenContender, Snapshot, Standing, admits, conflicts};

/// The contenders still in the way: pairs of a contender and its round. They only become fewer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blockers {
    standings: BTreeMap<ContenderId, Standing>,
    owners: BTreeMap<ContenderId, String>,
}

impl Blockers {
    /// Blockers with these standings and owners.
    pub(super) fn new(
        standings: BTreeMap<ContenderId, Standing>,
        owners: BTreeMap<ContenderId, String>,
    ) -> Self {
        Blockers { standings, owners }
    }

    /// Whether the remaining blockers let in a contender of `mode`.
    pub(crate) fn admit(&self, mode: Mode) -> bool {
        admits(mode, self.standings.values().map(|standing| standing.mode()))
    }

    /// Whether the remaining blockers would let in a contender of `mode` if those without a ticket
    /// left too.
    pub(crate) fn queue_admits(&self, mode: Mode) -> bool {
        let queued = self.standings.values().filter(|standing| standing.ticket().is_some());
        admits(mode, queued.map(|standing| standing.mode()))
    }

    /// The standing of a remaining blocker when last seen.
    pub(crate) fn standing(&self, contender: ContenderId) -> Option<Standing> {
        self.standings.get(&contender).copied()
    }

    /// The remaining blockers, each with its standing when last seen.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ContenderId, Standing)> {
        self.standings.iter().map(|(&contender, &standing)| (contender, standing))
    }

    /// The remaining blockers, in the order of the queue.
    pub(crate) fn contenders(&self) -> Vec<SeenContender> {
        in_line(&self.standings, &self.owners)
    }

    /// Checks every blocker against a whole read; true if one was removed.
    pub(crate) fn confirm(&mut self, snapshot: &Snapshot, mine: QueuePosition, mode: Mode) -> bool {
        let before = self.standings.len();
        self.standings.retain(|&contender, blocker| {
            *blocker = match still_blocks(*blocker, contender, snapshot, (mine, mode)) {
                Some(standing) => standing,
                None => return false,
            };
            true
        });
        self.standings.len() < before
    }

    /// Checks one blocker against a look at its rows; true if it was removed.
    pub(crate) fn look(
        &mut self,
        contender: ContenderId,
        snapshot: &Snapshot,
        mine: QueuePosition,
        mode: Mode,
    ) -> bool {
        let Some(blocker) = self.standings.get(&contender).copied() else {
            return true;
        };
        match still_blocks(blocker, contender, snapshot, (mine, mode)) {
            Some(standing) => {
                self.standings.insert(contender, standing);
                false
            }
            None => self.standings.remove(&contender).is_some(),
        }
    }
}

/// The standing of a blocker after a look at it; `None` once exactly that pair no longer blocks:
/// the contender is absent, or on another round, or seen with a ticket after mine; or a holder
/// shares the object from now on, as I want to.
fn still_blocks(
    blocker: Standing,
    contender: ContenderId,
    snapshot: &Snapshot,
    (mine, mode): (QueuePosition, Mode),
) -> Option<Standing> {
    let seen = snapshot.standing(contender)?;
    let other_round = match (blocker.round(), seen.round()) {
        (Some(before), Some(now)) => before != now,
        // A round that couldn't be read, then or now, can't be known to be another one.
        (None, _) | (_, None) => false,
    };
    let after_mine = seen.ticket().is_some_and(|ticket| QueuePosition { ticket, contender } > mine);
    if other_round || after_mine || !conflicts(mode, seen.mode()) {
        return None;
    }
    // A look at the `entering::` row alone shows no ticket, and an unreadable row shows nothing:
    // keep what is already known.
    let tells_more = seen.ticket().is_some() || blocker.round().is_none();
    Some(if tells_more { seen } else { blocker })
}
