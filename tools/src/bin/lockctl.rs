//! Shows the locks of a cluster, takes them from their holders, and runs commands under them.

use std::process::ExitCode;

use bakery_lock_tools::{lockctl, program};

fn main() -> ExitCode {
    program::start(lockctl::NAME, lockctl::RUNNERS, lockctl::run)
}
