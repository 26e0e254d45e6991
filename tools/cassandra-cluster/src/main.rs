//! The program `cassandra-cluster`; `cassandra-cluster --help` shows the usage.

use std::process::ExitCode;

fn main() -> ExitCode {
    cassandra_cluster::cli::main()
}
