//! Locks on a real cluster, by clients in this process and in others.

mod bad_input;
mod counter;
mod crowd;
mod dropped;
mod hold;
mod holder;
mod lent;
mod limited;
mod line;
mod lossy;
mod operations;
mod peers;
mod renewals;
mod revoked;
mod settings;
mod stopped;
mod table;
mod together;
mod tokens;
mod tries;
mod unknown;
