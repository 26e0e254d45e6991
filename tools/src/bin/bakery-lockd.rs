//! Serves locks to programs in any language, over the protocol of Redis.

use std::process::ExitCode;

use bakery_lock_tools::{lockd, program};

fn main() -> ExitCode {
    program::start(lockd::NAME, &[], lockd::run)
}
