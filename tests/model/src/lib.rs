//! Every history of a few contenders of one lock.
//!
//! The protocol is compiled here from the very files that the library ships, and driven by
//! [`stateright`] through each order in which anything can happen: requests are answered by any
//! quorum of the replicas at any moments, come late, get lost, or are tried again; contenders give
//! up, die, and are asked to leave, at any point. Then each `SeededBug` is planted, and the model
//! must find what it breaks.
//!
//! # Where to look
//!
//! `scenario` says which contenders there are and what may go wrong, and `catalogue` which
//! scenarios there are. `world` is the model: what can happen, and what must be true. `peer` is a
//! contender and its caller. `store` is where rows live: on replicas, or in registers, which
//! promise less. `lease` is a small model of its own, in which time passes; `tokens` is one of the
//! fence, `turns` one of keeper and guests, `objects` one of all that clients decide about an
//! object, `members` one of masters that lose their data, `dead` one of the lock of a process that
//! has died. [`search`] runs the scenarios and tells what it found.

pub mod search;

mod catalogue;
mod dead;
mod lease;
mod members;
mod objects;
mod peer;
mod scenario;
mod sightings;
mod store;
mod tokens;
mod turns;
mod world;

// The model drives contenders, not guards or fences, and needs less than is there.
#[allow(dead_code, unused_imports)]
// No clocks, no I/O, no random order: see `clippy.toml`.
#[warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]
#[path = "../../../src/core/mod.rs"]
mod core;
