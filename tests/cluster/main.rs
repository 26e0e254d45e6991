//! Locks on a real cluster, by clients in this process and in others.

#[path = "../support/polls.rs"]
mod polls;
#[path = "../support/scene.rs"]
mod scene;
#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod counter;
mod crowd;
mod dropped;
mod history;
mod hold;
mod holder;
mod lossy;
mod operations;
mod program;
mod record;
mod renewals;
mod revoked;
mod settings;
mod stopped;
mod table;
mod tokens;
mod tries;
mod unknown;
