//! The error type of this crate.

use std::io;
use std::path::PathBuf;

/// Why a cluster could not be started, or a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The options contradict each other or exceed this crate's limits; nothing was started.
    #[error("invalid cluster options: {0}")]
    InvalidOptions(String),
    /// A program that Cassandra needs is not installed; nothing was started.
    #[error("{program} was not found: install {package}")]
    MissingProgram {
        /// The name or path of the program.
        program: String,
        /// The Debian package to install.
        package: &'static str,
    },
    /// Cassandra does not run on this version of Java; nothing was started.
    #[error(
        "Apache Cassandra 5.0 needs Java 17, but {program} is {found}: install \
         openjdk-17-jdk-headless and set JAVA_HOME to its directory"
    )]
    WrongJava {
        /// The name or path of the program.
        program: String,
        /// The line of `java -version` with the version.
        found: String,
    },
    /// Maven could not resolve the jars. The next attempt starts from scratch.
    #[error("could not resolve Apache Cassandra with Maven: {0}")]
    Artifacts(String),
    /// Cargo could not report the target directory or build the supervisor's program.
    #[error("could not prepare the program cassandra-cluster: {0}")]
    Build(String),
    /// A cluster with this name runs with other options and is in use. It was left unchanged.
    #[error("{0}")]
    OptionsDiffer(String),
    /// Not all nodes came up. The nodes that did were stopped. The message quotes the end of a
    /// node's log.
    #[error("the cluster could not be started: {0}")]
    NotStarted(String),
    /// The cluster runs, but refused the request or could not complete it.
    #[error("{0}")]
    Refused(String),
    /// No cluster with this name is running.
    #[error("cluster {name} is not running: start it with `cassandra-cluster up N --name {name}`")]
    NotRunning {
        /// The requested name.
        name: String,
    },
    /// The supervisor has exited or stopped answering, and so have its nodes.
    #[error("the cluster's supervisor is gone: see its log {}", log.display())]
    SupervisorGone {
        /// The supervisor's log.
        log: PathBuf,
    },
    /// `nodetool` failed.
    #[error("nodetool {arguments} failed: {output}")]
    Nodetool {
        /// The arguments of nodetool.
        arguments: String,
        /// The standard output, followed by the standard error.
        output: String,
    },
    /// A system call failed.
    #[error("could not {action}: {source}")]
    Io {
        /// The action that failed.
        action: String,
        /// The cause.
        source: io::Error,
    },
}

impl ClusterError {
    /// Wraps an [`io::Error`], for use in `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
