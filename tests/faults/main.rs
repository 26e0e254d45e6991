//! Locks while nodes die or have wrong clocks, and everything else goes wrong that can be made to,
//! on clusters of their own that no other test uses.

#[path = "../support/history.rs"]
mod history;
#[path = "../support/monotonic.rs"]
mod monotonic;
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

mod clocks;
mod datacenters;
mod hurt;
mod nodes;
mod storm;
