//! The parts of the command line tools of bakery-lock.
//!
//! A tool's binary parses its arguments, runs the command that they name and returns the exit code
//! of the result. Each tool's commands are in a module of its own ([`lock_hosts`], [`lockctl`]).
//! What they share is here: how to reach a cluster ([`connect`]), failures and their exit
//! codes ([`failure`]), the values of options ([`options`]), and how to print ([`output`]).
//!
//! The tools use the public API of the library, like any other program.

// All CQL is in the library's `store/cassandra/cql.rs`.
#![warn(clippy::disallowed_methods)]

mod completions;
mod confirm;
pub mod connect;
mod denied;
mod environment;
pub mod failure;
mod finding;
mod host;
pub mod lock_hosts;
pub mod lockctl;
pub mod lockd;
mod man;
pub mod options;
mod outage;
pub mod output;
pub mod program;
mod registration;
mod signals;
