//! What clients publish of themselves, in one copy: no request to it is urgent.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::replica::{Cell, dead_from};
use crate::store::PeerRow;

/// The rows of all clients.
#[derive(Default)]
pub(crate) struct Peers {
    rows: BTreeMap<Uuid, Cell<PeerRow>>,
}

impl Peers {
    /// Writes the row of a client, unless a newer write of it is there.
    pub(crate) fn write(&mut self, peer: &PeerRow, ttl_seconds: i32, now: Duration) {
        let dead_from = dead_from(now, ttl_seconds);
        self.apply(peer.client, Cell { stamp: peer.stamp, row: Some(peer.clone()), dead_from });
    }

    /// Deletes the row of a client, unless a newer write of it is there.
    pub(crate) fn delete(&mut self, client: Uuid, stamp: i64, now: Duration) {
        self.apply(client, Cell { stamp, row: None, dead_from: now });
    }

    /// The row of a client, if there is one.
    pub(crate) fn read(&self, client: Uuid, now: Duration) -> Option<PeerRow> {
        self.rows.get(&client)?.live(now).cloned()
    }

    /// How many clients have a row.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn count(&self, now: Duration) -> usize {
        self.rows.values().filter(|cell| cell.live(now).is_some()).count()
    }

    /// Forgets the rows that are dead for longer than `grace`.
    pub(super) fn sweep(&mut self, grace: Duration, now: Duration) {
        self.rows.retain(|_, cell| now < cell.dead_from + grace);
    }

    fn apply(&mut self, client: Uuid, cell: Cell<PeerRow>) {
        if self.rows.get(&client).is_none_or(|newest| cell.beats(newest)) {
            self.rows.insert(client, cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_rows_are_forgotten_after_a_while() {
        let second = Duration::from_secs(1);
        let peer = |client| PeerRow {
            client: Uuid::from_u128(client),
            addresses: Vec::new(),
            key: [0; 32],
            version: 1,
            stamp: 1,
        };
        let mut peers = Peers::default();
        peers.write(&peer(1), 10, Duration::ZERO);
        peers.write(&peer(2), 20, Duration::ZERO);
        peers.delete(Uuid::from_u128(3), 1, Duration::ZERO);
        for (seconds, left) in [(4, 3), (5, 2), (14, 2), (15, 1), (25, 0)] {
            peers.sweep(5 * second, seconds * second);
            assert_eq!(peers.rows.len(), left, "after {seconds} s");
        }
    }
}
