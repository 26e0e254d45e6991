//! Shows the locks of a cluster, takes them from their holders, and runs commands under them.

use std::process::ExitCode;

use bakery_lock_tools::lockctl::{self, Lockctl};
use bakery_lock_tools::output;
use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match lockctl::run(Lockctl::parse()).await {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::report("lockctl", &failure);
            failure.exit_code()
        }
    }
}
