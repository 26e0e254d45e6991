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

    /// Whether another client, which contends now, takes over the guests of the client `own`: it
    /// contended in the round before the last.
    ///
    /// Of two lines always the same one stays. A keeper comes back behind the other one, so without
    /// an order each line would be disbanded for the next, and none would stay.
    pub(crate) fn take_over(&self, own: KeeperId, client: KeeperId) -> bool {
        client < own && self.before.contains(&client)
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
        assert!(!competing_keepers.take_over(9, 7), "it may be a newcomer");
        competing_keepers.next_round();
        assert!(competing_keepers.take_over(9, 7));
        competing_keepers.seen([8].into_iter());
        competing_keepers.next_round();
        assert!(!competing_keepers.take_over(9, 7), "it was not there in the last round");
        assert!(competing_keepers.take_over(9, 8));
    }

    #[test]
    fn line_of_the_smallest_id_stays() {
        let mut competing_keepers = CompetingKeepers::default();
        competing_keepers.seen([7, 9].into_iter());
        competing_keepers.next_round();
        competing_keepers.next_round();
        competing_keepers.seen([7, 9].into_iter());
        competing_keepers.next_round();
        assert!(competing_keepers.take_over(8, 7));
        assert!(!competing_keepers.take_over(8, 9));
    }
}
