//! Other clients that keep a line for the same object. Two lines never merge by themselves: each
//! keeper goes through the doorway for its own line again and again, and no guest leaves it.

use std::collections::BTreeSet;

use super::messages::KeeperId;

/// The clients that contended in the table while this one had a place, in its last two rounds.
///
/// One that was there in a round and comes through the doorway again after the next one is no
/// newcomer on its way into a line: it has callers of its own, or guests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompetingKeepers {
    last: BTreeSet<KeeperId>,
    before: BTreeSet<KeeperId>,
}

impl CompetingKeepers {
    /// These clients contend in the table while this one has its place.
    pub(crate) fn seen(&mut self, clients: impl Iterator<Item = KeeperId>) {
        self.last.extend(clients);
    }

    /// The client has a place: a round begins.
    pub(crate) fn next_round(&mut self) {
        self.before = std::mem::take(&mut self.last);
    }

    /// Whether a client contended two rounds ago; asked about one that contends now, after a round.
    pub(crate) fn contain(&self, client: KeeperId) -> bool {
        self.before.contains(&client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn competing_keeper_was_there_in_the_round_before_the_last() {
        let mut competing_keepers = CompetingKeepers::default();
        competing_keepers.next_round();
        competing_keepers.seen([7].into_iter());
        assert!(!competing_keepers.contain(7), "it may be a newcomer");
        competing_keepers.next_round();
        assert!(competing_keepers.contain(7));
        competing_keepers.seen([8].into_iter());
        competing_keepers.next_round();
        assert!(!competing_keepers.contain(7), "it was not there in the last round");
        assert!(competing_keepers.contain(8));
    }
}
