//! Locks on independent Redis servers, which each test starts for itself.

mod conformance;
mod counter;
mod epochs;
mod faults;
mod holders;
mod redlock;
mod refusals;
mod scene;
mod storm;
