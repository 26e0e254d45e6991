//! Starts a real Apache Cassandra cluster of one to five nodes on loopback addresses, for
//! development and tests.
//!
//! Tests call [`Cluster::lease`]; developers use the program `cassandra-cluster`. Nodes need Java
//! 17, and Maven once to resolve the jars. Nodes with settable clocks also need the JDK's compiler.
//!
//! ```no_run
//! use cassandra_cluster::{Cluster, ClusterOptions};
//!
//! # fn main() -> Result<(), cassandra_cluster::ClusterError> {
//! let cluster = Cluster::lease(ClusterOptions { nodes: 3, ..ClusterOptions::default() })?;
//! println!("connect to {:?}", cluster.nodes());
//! cluster.kill(2)?;
//! cluster.wait_until_seen_down(2)?;
//! cluster.start(2)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Lifetime of a cluster
//!
//! Each cluster has a supervisor: a process of the program `cassandra-cluster` in its own session.
//! It locks a file, starts the nodes from its main thread and listens on a Unix socket. An open
//! connection is a lease; the kernel closes it when its process ends for any reason. Two seconds
//! after the last lease ends, the supervisor kills the nodes and exits. The delay lets the next
//! test program take over the cluster. A cluster started by `up` runs until `down`.
//!
//! The nodes have a parent-death signal: if the supervisor dies, the kernel kills them. No process
//! is left behind in either case.
//!
//! # Partitions
//!
//! To the kernel, all nodes connect from 127.0.0.1, so it can't distinguish their connections. With
//! [`Network::Relayed`], the nodes know each other by addresses of the supervisor, 127.1.0.1 and
//! following. The supervisor relays to 127.0.0.1 and following; a connection's first message
//! identifies the node that opened it. Each connection carries messages in one direction only, so
//! each direction can be cut separately: see [`Cluster::cut`], [`Cluster::isolate`] and
//! [`Cluster::join`]. Like TCP, a cut link loses nothing: messages arrive when the link is joined,
//! unless the sender has closed the connection before it was established. The nodes themselves
//! drop expired messages.
//!
//! # Files
//!
//! All files are below `cassandra-cluster` in cargo's target directory, or below
//! `CASSANDRA_CLUSTER_DIR`: one directory per release for the jars, and one per cluster name for
//! configuration, data and logs. Processes find clusters by this directory, so processes with
//! different target directories can't share a cluster; if their addresses collide, the second
//! start fails with an error. A new cluster starts without data and deletes the logs of the
//! previous one.

pub mod cli;

mod artifacts;
mod clock;
mod cluster;
mod config;
mod cql;
mod error;
mod handshake;
mod java;
mod launch;
mod links;
mod log;
mod node;
mod options;
mod paths;
mod protocol;
mod relay;
mod ring;
mod supervisor;
mod tied;

pub use cluster::Cluster;
pub use error::ClusterError;
pub use links::Link;
pub use options::{Authentication, ClusterOptions, CommitLog, Compiler, Network};
pub use protocol::{NodeState, NodeStatus, Status};
pub use tied::execute_tied;
