//! Tests that need more than the public API: properties of the rules, and parts of the driver and
//! the registry by themselves. What clients do as a whole is in `tests/`.

mod guard;
mod idle_looks;
mod object_task;
mod pacing;
mod peers;
pub(crate) mod properties;
mod registry;
mod scene;
mod sweeps;
mod wrong_values;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Stamps, WallClockBound};
use crate::context::idle_looks::IdleLooks;
use crate::context::{ClientContext, Process};
use crate::core::bakery::{ContenderId, LeaseTerms};
use crate::store::Embedded;
use crate::testing::FaultyStore;

/// What the tasks of a client share, for tests of one task alone.
fn shared(store: &FaultyStore) -> Arc<ClientContext> {
    let Embedded { store, clock, entropy, .. } = store.embedded();
    Arc::new(ClientContext {
        store,
        wall_clock_bound: WallClockBound::new(&*clock),
        clock,
        entropy,
        stamps: Stamps::default(),
        id: ContenderId { host: 1, client: 2, slot: 0 },
        prefix: "".into(),
        owner: String::from("host pid 1").into(),
        local_handoff: true,
        keep_idle: Duration::ZERO,
        idle_looks: IdleLooks::new(),
        longest_terms: LeaseTerms::new(Duration::from_secs(120), Duration::from_secs(1)),
        network: None,
        checks: tokio::sync::mpsc::unbounded_channel().0,
        acquire_timeout: Duration::from_secs(5),
        tally: Arc::default(),
        process: Process::current(),
    })
}
