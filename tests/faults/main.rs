//! Locks while nodes die or have wrong clocks, and everything else goes wrong that can be made to,
//! on clusters of their own that no other test uses.

mod clocks;
mod datacenters;
mod hurt;
mod nodes;
mod storm;
