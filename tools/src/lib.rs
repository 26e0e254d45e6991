//! The parts of the command line tools of bakery-lock.
//!
//! A tool's binary parses its arguments, calls a function of [`commands`] and returns the exit
//! code of the result. Everything else is here: how to reach a cluster ([`connect`]), failures and
//! their exit codes ([`failure`]), the values of options ([`options`]), and how to print
//! ([`output`]).
//!
//! The tools use the public API of the library, like any other program.

pub mod commands;
pub mod connect;
pub mod failure;
pub mod options;
pub mod output;
