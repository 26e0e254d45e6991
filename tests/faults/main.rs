//! Locks while nodes die or have wrong clocks, on clusters of their own that nobody else uses.

#[path = "../support/scene.rs"]
mod scene;
#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod nodes;
