//! The messages on the supervisor's socket: one request and one reply, each as a line of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::links::Link;
use crate::paths::{ClusterPaths, SOCKET};
use crate::{ClusterError, ClusterOptions};

/// How long nodes may take to start, or to see each other up or down.
pub(crate) const GOAL_TIMEOUT: Duration = Duration::from_secs(300);
/// The supervisor answers when that has passed, with the end of the logs; a longer silence means
/// that it hangs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(GOAL_TIMEOUT.as_secs() + 30);

/// A request to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Completes when all nodes are up. The cluster then runs at least as long as this connection.
    Lease(ClusterOptions),
    /// Completes when all nodes are up. The cluster then runs until [`Request::Down`].
    Up(ClusterOptions, OldData),
    /// Completes when all nodes have exited.
    Down,
    Status,
    Kill(u8),
    Pause(u8),
    Resume(u8),
    /// Completes when the node and all other running nodes see each other.
    Start(u8),
    /// Joins all links, ends all delays, and completes when all nodes are up.
    Heal,
    Cut(Link),
    /// Joins all links.
    Join,
    /// Delays messages on a link.
    Delay(Link, Duration),
    /// Completes when no other running node considers the node alive.
    WaitSeenDown(u8),
}

/// What to do with the data of the previous run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OldData {
    Keep,
    Discard,
}

/// The supervisor's reply.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Status(Status),
    Failed(Failure),
}

/// Why a request failed; see the variants of [`ClusterError`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    OptionsDiffer(String),
    NotStarted(String),
    Refused(String),
}

/// The state of a running cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The options with which the cluster was started.
    pub options: ClusterOptions,
    /// The process id of the supervisor.
    pub supervisor: u32,
    /// Whether the cluster outlives its last lease because it was started by `up`.
    pub stays: bool,
    /// The number of leases.
    pub leases: usize,
    /// The nodes, ordered by number.
    pub nodes: Vec<NodeStatus>,
    /// The cut links between nodes.
    pub cut_links: Vec<Link>,
}

/// The state of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's number, from 1.
    pub number: u8,
    /// The node's CQL address.
    pub cql: SocketAddr,
    /// The node's JMX address, which nodetool uses.
    pub jmx: SocketAddr,
    /// The state of the node's process.
    pub state: NodeState,
    /// The numbers of the other nodes that this node considers alive, according to its log.
    pub sees: Vec<u8>,
    /// The path of the node's log.
    pub log: PathBuf,
}

/// The state of a node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// The process is running.
    Running {
        /// The process id of the Java virtual machine.
        pid: u32,
    },
    /// The process is stopped by a signal and can be resumed.
    Paused {
        /// The process id of the Java virtual machine.
        pid: u32,
    },
    /// The process was killed on request.
    Killed,
    /// The process exited by itself.
    Died {
        /// The exit status, as text.
        how: String,
    },
}

/// Connects to the supervisor of the cluster with these `paths`; `None` if it is not running.
pub(crate) fn connect(paths: &ClusterPaths) -> Result<Option<UnixStream>, ClusterError> {
    let Ok(directory) = File::open(paths.directory()) else {
        return Ok(None);
    };
    match UnixStream::connect(short_path(&directory)) {
        Ok(stream) => {
            stream
                .set_read_timeout(Some(REPLY_TIMEOUT))
                .map_err(ClusterError::io("set the timeout of a connection"))?;
            Ok(Some(stream))
        }
        Err(error) if is_not_running(&error) => Ok(None),
        Err(error) => Err(ClusterError::io("connect to the supervisor")(error)),
    }
}

/// Opens the socket of the cluster with these `paths`, and replaces that of a dead supervisor.
pub(crate) fn listen(paths: &ClusterPaths) -> io::Result<UnixListener> {
    let directory = File::open(paths.directory())?;
    let path = short_path(&directory);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    UnixListener::bind(&path)
}

/// Sends a request and waits for the reply; `None` if the supervisor exited without a reply.
pub(crate) fn exchange(
    stream: &UnixStream,
    request: &Request,
) -> Result<Option<Reply>, ClusterError> {
    if write_line(stream, request).is_err() {
        return Ok(None);
    }
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| ClusterError::io("read the supervisor's reply")(error.into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(ClusterError::io("read the supervisor's reply")(error)),
    }
}

/// Writes a request or a reply.
pub(crate) fn write_line(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

impl From<Failure> for ClusterError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OptionsDiffer(message) => Self::OptionsDiffer(message),
            Failure::NotStarted(message) => Self::NotStarted(message),
            Failure::Refused(message) => Self::Refused(message),
        }
    }
}

/// A short path to the socket: socket addresses are limited to 107 bytes, and target directories
/// can be deep.
fn short_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

fn is_not_running(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
