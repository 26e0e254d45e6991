//! The messages on the supervisor's socket: one request and one reply, each a line of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::links::Link;
use crate::place::{Place, SOCKET};
use crate::{ClusterError, ClusterOptions};

/// The supervisor gives up waiting for nodes earlier than this, so a longer silence means that
/// the supervisor itself hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// A request to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Answered when the cluster is whole; it then lasts at least as long as this connection.
    Lease(ClusterOptions),
    /// Answered when the cluster is whole; it then lasts until [`Request::Down`].
    Up(ClusterOptions, OldData),
    /// Answered when all nodes are gone.
    Down,
    Status,
    Kill(u8),
    Pause(u8),
    Resume(u8),
    /// Answered when the node and the other running ones see each other.
    Start(u8),
    /// Answered when each node runs, all links work and the cluster is whole.
    Heal,
    Cut(Link),
    /// Joins all links.
    Join,
    /// Delays what is sent on a link.
    Delay(Link, Duration),
    /// Answered when no other running node considers the node alive.
    WaitSeenDown(u8),
}

/// What to do with the data of an earlier run.
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

/// Why a request was not fulfilled; see the variants of [`ClusterError`].
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
    /// Whether the cluster stays after its last lease, because it was started by `up`.
    pub stays: bool,
    /// The number of leases.
    pub leases: usize,
    /// The nodes in the order of their numbers.
    pub nodes: Vec<NodeStatus>,
    /// The links between nodes that are cut.
    pub cut_links: Vec<Link>,
}

/// The state of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's number, from 1.
    pub number: u8,
    /// Where it answers CQL.
    pub cql: SocketAddr,
    /// Where it answers JMX, as nodetool needs it.
    pub jmx: SocketAddr,
    /// Whether its process runs.
    pub state: NodeState,
    /// The numbers of the other nodes that it considers alive, according to its log.
    pub sees: Vec<u8>,
    /// Its log.
    pub log: PathBuf,
}

/// Whether the process of a node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It runs.
    Running {
        /// The process id of the Java virtual machine.
        pid: u32,
    },
    /// It is stopped by a signal and can be resumed.
    Paused {
        /// The process id of the Java virtual machine.
        pid: u32,
    },
    /// It was killed on demand.
    Killed,
    /// It ended by itself.
    Died {
        /// How it ended.
        how: String,
    },
}

/// Connects to the supervisor of the cluster at `place`; `None` if there is none.
pub(crate) fn connect(place: &Place) -> Result<Option<UnixStream>, ClusterError> {
    let Ok(directory) = File::open(place.directory()) else {
        return Ok(None);
    };
    match UnixStream::connect(short_path(&directory)) {
        Ok(stream) => {
            stream
                .set_read_timeout(Some(PATIENCE))
                .map_err(ClusterError::io("set the time limit of a connection"))?;
            Ok(Some(stream))
        }
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(ClusterError::io("connect to the supervisor")(error)),
    }
}

/// Opens the socket of the cluster at `place`, replacing one that a dead supervisor left.
pub(crate) fn listen(place: &Place) -> io::Result<UnixListener> {
    let directory = File::open(place.directory())?;
    let path = short_path(&directory);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    UnixListener::bind(&path)
}

/// Sends a request and waits for the reply; `None` if the supervisor ended instead of replying.
pub(crate) fn ask(stream: &UnixStream, request: &Request) -> Result<Option<Reply>, ClusterError> {
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

/// A short path to the socket, however deep the directory: socket addresses end at 107 bytes, and
/// target directories can be deep.
fn short_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
