//! A real Apache Cassandra cluster of one to five nodes on loopback addresses, for development
//! and tests.
//!
//! Tests get a [`Cluster`] from [`Cluster::lease`]; developers use the program `cassandra-cluster`.
//! Nodes need Java 17, and Maven once to resolve the jars; a node with a settable clock also needs
//! the compiler of the JDK.
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
//! # The lifetime of a cluster
//!
//! Each cluster has a supervisor, a process of the program in a session of its own. It holds a lock
//! on a file, starts the nodes from its main thread and listens on a Unix socket. An open
//! connection is a lease, and the system closes it when the process that holds it ends, for
//! whatever reason. Two seconds after the last lease the supervisor kills the nodes and ends: long
//! enough for the next test program to take over the cluster. A cluster started by `up` stays until
//! `down`.
//!
//! The nodes carry a parent-death signal: the kernel kills them when the supervisor dies. So no
//! process is left behind in either case.
//!
//! # Partitions
//!
//! For the system, all nodes connect from 127.0.0.1, so it can't tell their connections apart. With
//! [`Network::Relayed`] they know each other by addresses of the supervisor, 127.1.0.1 and
//! following, which relays to 127.0.0.1 and following, and learns from a connection's first message
//! which node opened it. Each connection carries one node's messages to another one, so each of
//! these links can be cut separately: [`Cluster::cut`], [`Cluster::isolate`] and [`Cluster::join`].
//! Like TCP, a cut link loses nothing: messages arrive when it works again, unless the sender has
//! closed the connection before it was established. The nodes themselves then drop expired
//! messages.
//!
//! # Where things are
//!
//! Below `cassandra-cluster` in cargo's target directory, or below `CASSANDRA_CLUSTER_DIR`: a
//! directory with the jars of each release, and one for each cluster name with configuration,
//! data and logs. Clusters are found by this directory, so processes with different target
//! directories do not share one; their nodes would collide on the addresses, which is reported.
//! A new cluster starts with empty data. The logs of the last one stay until then.

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
mod place;
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
