//! What clients do on any database: tests of `tests/cluster`, on Redis servers.
//!
//! Each module below is compiled into both programs, and takes its scene and its data from here.

mod data;
mod lossy;
mod scene;

#[path = "../cluster/calls.rs"]
mod calls;
#[path = "../cluster/counter.rs"]
mod counter;
#[path = "../cluster/crowd.rs"]
mod crowd;
#[path = "../cluster/dropped.rs"]
mod dropped;
#[path = "../cluster/election.rs"]
mod election;
#[path = "../cluster/hold.rs"]
mod hold;
#[path = "../cluster/holder.rs"]
mod holder;
#[path = "../cluster/kept.rs"]
mod kept;
#[path = "../cluster/limited.rs"]
mod limited;
#[path = "../cluster/line.rs"]
pub(super) mod line;
#[path = "../cluster/min_hold.rs"]
mod min_hold;
#[path = "../cluster/names.rs"]
mod names;
#[path = "../cluster/operations.rs"]
mod operations;
#[path = "../cluster/readers.rs"]
mod readers;
#[path = "../cluster/renewals.rs"]
mod renewals;
#[path = "../cluster/revised.rs"]
mod revised;
#[path = "../cluster/revoked.rs"]
mod revoked;
#[path = "../cluster/stopped.rs"]
mod stopped;
#[path = "../cluster/subleases.rs"]
mod subleases;
#[path = "../cluster/together.rs"]
mod together;
#[path = "../cluster/tokens.rs"]
mod tokens;
#[path = "../cluster/tries.rs"]
mod tries;
#[path = "../cluster/unknown.rs"]
mod unknown;
