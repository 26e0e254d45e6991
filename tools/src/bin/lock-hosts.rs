//! Registers the hosts that may take locks, and prepares the tables for them.

use std::process::ExitCode;

use bakery_lock_tools::{lock_hosts, program};

fn main() -> ExitCode {
    program::start(lock_hosts::NAME, &[], lock_hosts::run)
}
