//! The whole library on simulated replicas that are nastier than Cassandra's, from seeds.
//!
//! A run is made of a seed alone: how many clients there are and what they want, what goes wrong
//! and when, how long each message takes. First come the faults, then everything is healed. Each
//! invariant has a file of its own, which judges the histories of all runs.
//!
//! `cargo test --test simulation` runs the same seeds each time, and a random one.
//! `BAKERY_LOCK_SIMULATION_SEEDS=100000` sets the number of seeds, `BAKERY_LOCK_SIMULATION_FIRST`
//! the first of them; `BAKERY_LOCK_SIMULATION_SEED=7` runs a single seed and prints its history. Of
//! what breaks an invariant, the smallest plan that is found to break the same is printed with its
//! history, once what can be left out is left out.
//!
//! The same seeds are run twice more with a promise broken on purpose, so that two may hold: in
//! [`lost_rows`] rows are lost, in [`force`] contenders that live are removed by force. There an
//! overlap of two holders must end in time. `cargo test --test simulation lost_rows` runs the one
//! alone, `... force` the other.
//!
//! The library is `bakery-lock-instrumented`: the files that are shipped, with simulated replicas,
//! and with a switch by which [`seeded_bugs`] plants bugs. All other tests leave it off.

mod batch;
mod failure;
mod log;
mod machine;
mod min_hold;
mod operator;
mod plan;
mod shrink;
mod tally;
mod worker;
mod world;

mod acknowledged;
mod fifo;
mod force;
mod forgetful;
mod leaving;
mod lines;
mod lost_rows;
mod mutual_exclusion;
mod overlap;
mod promptness;
mod reproducible;
mod rows;
mod seeded_bugs;
mod served;
mod tokens;
