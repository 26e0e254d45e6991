//! `lock-hosts` as its users see it: arguments in; text, exit codes and rows out.

mod command;
mod login;
mod outages;
mod race;
mod registry;
mod schema;
mod signals;
mod unseen;
mod usage;
