//! What is known of the nodes that hold the rows.

use uuid::Uuid;

/// A node as the driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Identifies the node.
    pub(crate) host_id: Uuid,
    /// Its address, for people.
    pub(crate) address: String,
    /// Its data centre.
    pub(crate) datacenter: String,
    /// Whether the driver has a connection to it.
    pub(crate) connected: bool,
}

/// How a node's wall clock compares with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// The node's clock less ours, in µs.
    pub(crate) offset_micros: i64,
    /// How far the truth may be from that, in µs: half of the round trip, and what the server
    /// rounds.
    pub(crate) error_micros: i64,
}

impl ClockReading {
    /// That of a clock which is ours.
    pub(crate) const OURS: ClockReading = ClockReading { offset_micros: 0, error_micros: 0 };

    /// The least that the node's clock can be ahead of ours, in µs.
    pub(crate) fn earliest(self) -> i64 {
        self.offset_micros - self.error_micros
    }

    /// The most that the node's clock can be ahead of ours, in µs.
    pub(crate) fn latest(self) -> i64 {
        self.offset_micros + self.error_micros
    }
}

/// What a node says of what locks rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// Its clock.
    pub(crate) clock: ClockReading,
    /// The id that the lock table has for it; `None` when there is no such table.
    pub(crate) lock_table: Option<Uuid>,
}
