//! Locks on independent Redis servers, which each test starts for itself.

mod clients;
mod conformance;
mod counter;
mod epochs;
mod faults;
mod holders;
mod refusals;
mod scene;
mod storm;
