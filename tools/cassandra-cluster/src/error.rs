//! The one error type of this crate.

use std::io;
use std::path::PathBuf;

/// Why a cluster could not be started, or a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The options contradict themselves or the limits of this crate; nothing was started.
    #[error("invalid cluster options: {0}")]
    InvalidOptions(String),
    /// A program that Cassandra needs is not installed; nothing was started.
    #[error("{program} was not found: install {package}")]
    MissingProgram {
        /// The program that was called.
        program: String,
        /// The Debian package to install.
        package: &'static str,
    },
    /// Cassandra does not run on the version of `java` that was found.
    #[error(
        "Apache Cassandra 5.0 needs Java 17, but {program} is {found}: install \
         openjdk-17-jdk-headless and let JAVA_HOME name it"
    )]
    WrongJava {
        /// The program that was called.
        program: String,
        /// The line of `java -version` that names its version.
        found: String,
    },
    /// Maven could not resolve the jars; the next attempt starts over.
    #[error("could not resolve Apache Cassandra with Maven: {0}")]
    Artifacts(String),
    /// Cargo could not name the target directory or build the program that supervises the nodes.
    #[error("could not prepare the cassandra-cluster program: {0}")]
    Build(String),
    /// A cluster of this name runs with other options and is in use. It was left unchanged.
    #[error("{0}")]
    OptionsDiffer(String),
    /// The nodes did not come up; those that did were stopped again. The message quotes the end
    /// of a node's log.
    #[error("the cluster could not be started: {0}")]
    NotStarted(String),
    /// The cluster runs but could not fulfil the request.
    #[error("{0}")]
    Refused(String),
    /// No cluster of this name runs.
    #[error("cluster {name} is not running: `cassandra-cluster up N --name {name}` starts it")]
    NotRunning {
        /// The name that was looked for.
        name: String,
    },
    /// The supervisor ended or stopped answering, and its nodes with it.
    #[error("the supervisor of the cluster is gone: its log is {}", log.display())]
    SupervisorGone {
        /// The supervisor's log.
        log: PathBuf,
    },
    /// `nodetool` ended with an error.
    #[error("nodetool {arguments} failed: {output}")]
    Nodetool {
        /// The arguments as given.
        arguments: String,
        /// Its output and error output.
        output: String,
    },
    /// The operating system refused something.
    #[error("could not {action}: {source}")]
    Io {
        /// The action that failed.
        action: String,
        /// The system's answer.
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
