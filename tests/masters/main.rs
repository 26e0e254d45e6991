//! Locks on independent Redis servers, which each test starts for itself.
//!
//! [`clients`] are tests of `tests/cluster` that need no Cassandra. The others stay there:
//!
//! | | why |
//! |---|---|
//! | `bad_input`, `settings` | keyspaces, table options and consistency; see [`refusals`] here |
//! | `conformance` | starts the same tests as [`conformance`] here, on a session |
//! | `peers` | the table of peers in keyspaces of earlier versions |
//! | `swept` | dead rows, which masters forget by themselves; a mark written in CQL |
//! | `table` | a table that is dropped; see [`table`] here |
//!
//! So do those of `tests/faults`, which stop nodes and set clocks: see [`faults`] here.

mod clients;
mod conformance;
mod connections;
mod counter;
mod epochs;
mod faults;
mod holders;
mod redlock;
mod refusals;
mod scene;
mod storm;
mod table;
