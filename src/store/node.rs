//! Facts about the nodes that hold the rows.

use std::fmt::Debug;
use std::pin::Pin;

use uuid::Uuid;

/// The nodes that hold the rows.
pub(crate) trait NodeProbe: Debug + Send + Sync {
    /// Asks each reachable node that counts for quorums for its report. Takes a round trip, and a
    /// second at most.
    fn probe_nodes(&self) -> Testimonies<'_>;
}

/// The future report of each node; `None` for one that did not answer soon.
pub(crate) type Testimonies<'a> =
    Pin<Box<dyn Future<Output = Vec<(Node, Option<NodeReport>)>> + Send + 'a>>;

/// A node as the driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Identifies the node.
    pub(crate) host_id: Uuid,
    /// Its address, human-readable.
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
    /// The error bound of the offset, in µs: half of the round trip, and the server's rounding.
    pub(crate) error_micros: i64,
}

impl ClockReading {
    /// The reading of our own clock.
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

/// A node's report on what locks rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// Its clock.
    pub(crate) clock: ClockReading,
    /// The id of the lock table as the node knows it; `None` if there is no such table.
    pub(crate) lock_table: Option<Uuid>,
}
