//! Registers the hosts that may take locks, and prepares the tables for them.

use std::process::ExitCode;

use bakery_lock_tools::commands::LockHosts;
use bakery_lock_tools::{commands, output};
use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match commands::run(LockHosts::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::report("lock-hosts", &failure);
            failure.exit_code()
        }
    }
}
