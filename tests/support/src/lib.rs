//! What the integration tests share.
//!
//! [`cluster`] finds or starts the cluster that they run on, [`scene`] is a keyspace on it with its
//! clients, [`proxy`] loses messages on the way to it, [`relay`] holds up the bytes between a guest
//! and its keeper. [`masters`] are Redis servers. [`rows`] waits for rows on a cluster or on
//! servers. [`program`] starts a test as a program of its own, [`worker`] a bench, and
//! [`processor`] measures how much processor time a process used. [`environment`] is what a run
//! asks of a test, [`log`] what it logs, [`pace`] how long it waits, [`failure`] what it prints
//! when it fails. [`record`] and [`history`] say what happened to locks, and what must hold of it.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use it, and they fail by panics"
)]

mod cluster;
#[cfg(feature = "containers")]
mod container;
pub mod environment;
pub mod failure;
pub mod history;
pub mod log;
pub mod masters;
pub mod monotonic;
pub mod pace;
pub mod polls;
pub mod processor;
pub mod program;
pub mod proxy;
pub mod record;
pub mod relay;
pub mod rows;
pub mod scene;
pub mod worker;

pub use self::cluster::{
    alone, beside_others, create_keyspace, keyspace, nodes, session, session_on,
    turn_to_change_the_schema, unique, unique_keyspace,
};
