//! `lock-hosts` as its users see it: arguments in; text, exit codes and rows out.

#[path = "../../../tests/support/mod.rs"]
mod support;

mod command;
mod login;
mod outages;
mod race;
mod registry;
mod schema;
mod signals;
mod unseen;
mod usage;
