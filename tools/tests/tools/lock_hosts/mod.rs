//! `lock-hosts`.

mod login;
mod outages;
mod race;
mod registry;
mod schema;
mod signals;
mod unseen;
mod usage;
