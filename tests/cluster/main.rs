//! Locks on a real cluster, by clients in this process and in others.

mod bad_input;
mod conformance;
mod counter;
mod crowd;
mod dropped;
mod election;
mod hold;
mod holder;
mod limited;
mod line;
mod lossy;
mod min_hold;
mod operations;
mod peers;
mod readers;
mod renewals;
mod revoked;
mod settings;
mod stopped;
mod subleases;
mod swept;
mod table;
mod together;
mod tokens;
mod tries;
mod unknown;
