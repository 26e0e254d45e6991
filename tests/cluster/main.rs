//! Locks on a real cluster, by clients in this process and in others.

#[path = "../support/history.rs"]
mod history;
#[path = "../support/monotonic.rs"]
mod monotonic;
#[path = "../support/polls.rs"]
mod polls;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/record.rs"]
mod record;
#[path = "../support/scene.rs"]
mod scene;
#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod counter;
mod crowd;
mod dropped;
mod hold;
mod holder;
mod lossy;
mod operations;
mod renewals;
mod revoked;
mod settings;
mod stopped;
mod table;
mod tokens;
mod tries;
mod unknown;
