//! What the command line tools of bakery-lock are made of.
//!
//! A tool's binary parses its arguments, calls a function of [`commands`] and returns the exit
//! code of what came back. Everything else is here: how to reach a cluster ([`connect`]), what goes
//! wrong and which exit code that is ([`failure`]), what options mean ([`options`]), and how to
//! print ([`output`]).
//!
//! The tools use the public API of the library, like any other program.

pub mod commands;
pub mod connect;
pub mod failure;
pub mod options;
pub mod output;
