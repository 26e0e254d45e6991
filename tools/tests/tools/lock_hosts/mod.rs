//! `lock-hosts`.

mod commit_log;
mod inactive;
mod login;
mod race;
mod registry;
mod schema;
mod signals;
mod usage;
