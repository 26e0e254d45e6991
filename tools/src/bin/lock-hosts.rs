//! Registers the hosts that may take locks, and prepares the tables for them.

use std::process::ExitCode;

use bakery_lock_tools::lock_hosts::{self, LockHosts};
use bakery_lock_tools::output;
use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match lock_hosts::run(LockHosts::parse()).await {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::report("lock-hosts", &failure);
            failure.exit_code()
        }
    }
}
