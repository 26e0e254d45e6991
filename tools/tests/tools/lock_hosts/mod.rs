//! `lock-hosts`.

mod commit_log;
mod login;
mod race;
mod registry;
mod schema;
mod signals;
mod unseen;
mod usage;
