//! The program `cassandra-cluster`; `cassandra-cluster --help` tells what it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    cassandra_cluster::cli::main()
}
