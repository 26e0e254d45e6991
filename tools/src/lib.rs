//! What the command line tools of bakery-lock are made of.
//!
//! A tool's binary parses its arguments, calls a function of [`commands`] and returns the exit code
//! of what came back; everything else is here: how to reach a cluster ([`connect`]), what goes wrong
//! and which exit code that is ([`failure`]), and how to say it ([`output`]).
//!
//! The tools use the public API of the library, like any other program.

pub mod commands;
pub mod connect;
pub mod failure;
pub mod options;
pub mod output;
