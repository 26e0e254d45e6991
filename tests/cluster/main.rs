//! Locks on a real cluster, by clients in this process and in others.
//!
//! The modules that take their scene from `super` are tests of `tests/masters` as well, which gives
//! them a scene on Redis servers.

mod bad_input;
mod calls;
mod conformance;
mod counter;
mod crowd;
mod data;
mod dropped;
mod election;
mod hold;
mod holder;
mod kept;
mod limited;
mod line;
mod lossy;
mod min_hold;
mod names;
mod operations;
mod peers;
mod readers;
mod renewals;
mod revised;
mod revoked;
mod settings;
mod stopped;
mod subleases;
mod swept;
mod table;
mod together;
mod tokens;
mod tries;
mod unknown;

use support::scene;
