//! Locks while nodes die, on a cluster of their own that nobody else uses.

#[path = "../support/scene.rs"]
mod scene;
#[path = "../support/mod.rs"]
mod support;

mod nodes;
