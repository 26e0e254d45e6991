//! What each server reports about itself while clients use it.

use tracing::debug;
use uuid::Uuid;

use super::MastersStore;
use super::attendance::MemberState;
use super::link::{CallError, Connection};
use crate::clock::{Clock, SystemClock};
use crate::store::{
    ClockReading, Node, NodeProbe, NodeReport, PROBE_TIMEOUT, Testimonies, at_the_same_time,
    best_reading,
};

/// What stands for a data centre: masters have none.
const DATACENTER: &str = "masters";

impl NodeProbe for MastersStore {
    /// A server that takes no part now is left out: it does not count for quorums.
    fn probe_nodes(&self) -> Testimonies<'_> {
        Box::pin(async move {
            let members = self.members();
            let cluster = members.cluster;
            if cluster != self.id {
                // The lock table was made again, on all of them.
                let clock = ClockReading::OURS;
                let gone = Some(NodeReport { clock, lock_table: Some(cluster) });
                let nodes = self.masters.addresses().enumerate();
                return nodes.map(|(index, it)| (node(it.to_owned(), index), gone)).collect();
            }
            let servers = self.masters.addresses().zip(&members.states);
            let present = servers.filter_map(|(address, state)| match state {
                MemberState::Member { connection, index, .. } => {
                    Some((address.to_owned(), connection, *index))
                }
                MemberState::Out(_) => None,
            });
            let reports = present.map(|(address, connection, index)| async move {
                let report = match clock(connection).await {
                    Ok(clock) => Some(NodeReport { clock, lock_table: Some(cluster) }),
                    Err(error) => {
                        debug!(address, ?error, "no answer");
                        None
                    }
                };
                (node(address, index), report)
            });
            at_the_same_time(reports).await
        })
    }
}

fn node(address: String, index: usize) -> Node {
    Node {
        host_id: Uuid::from_u128(index as u128 + 1),
        address,
        datacenter: DATACENTER.to_owned(),
        connected: true,
    }
}

/// Compares a server's clock with ours, as exactly as a few readings allow.
pub(super) async fn clock(connection: &Connection) -> Result<ClockReading, CallError> {
    let silent = CallError::refused("it is silent");
    best_reading(PROBE_TIMEOUT, silent, || clock_once(connection)).await
}

async fn clock_once(connection: &Connection) -> Result<ClockReading, CallError> {
    let clock = SystemClock::new();
    let asked_at = clock.unix_micros();
    let micros = connection.time().await?;
    let round_trip = i64::try_from(clock.elapsed().as_micros()).unwrap_or(i64::MAX);
    let offset_micros = micros - (asked_at + round_trip / 2);
    Ok(ClockReading { offset_micros, error_micros: round_trip / 2 + 1 })
}
