//! The handle of a test on a cluster.

use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::launch::{self, Program};
use crate::links::Link;
use crate::place::Place;
use crate::protocol::{self, NodeState, Reply, Request, Status};
use crate::{ClusterError, ClusterOptions, clock, java};

/// A lease of a running cluster.
///
/// The cluster runs at least as long as this value, and ends two seconds after its last lease. A
/// killed process loses its leases, too. Leases are shared: another test program may hold one of
/// the same cluster, so tests that kill, freeze or cut off nodes call [`Cluster::heal`] before they
/// end, or use a cluster name of their own.
///
/// Nodes are numbered from 1. All methods block; those that wait for nodes give up after 300
/// seconds. Besides the errors that they document, all fail with [`ClusterError::SupervisorGone`]
/// if the supervisor was killed, and with [`ClusterError::Refused`] for a node that doesn't exist.
#[derive(Debug)]
#[must_use = "the cluster ends when its last lease is dropped"]
pub struct Cluster {
    options: ClusterOptions,
    place: Place,
    lease: UnixStream,
}

impl Cluster {
    /// Finds the cluster of that name or starts it, and returns when all nodes run, see each other
    /// and accept clients.
    ///
    /// A cluster without a lease is restarted if its options differ, and healed otherwise. The
    /// first start on a machine resolves Cassandra's jars, and says so on standard error.
    ///
    /// # Errors
    ///
    /// - [`ClusterError::InvalidOptions`], [`ClusterError::MissingProgram`],
    ///   [`ClusterError::WrongJava`], [`ClusterError::Artifacts`], [`ClusterError::Build`]:
    ///   nothing was started.
    /// - [`ClusterError::OptionsDiffer`]: the running cluster was left unchanged.
    /// - [`ClusterError::NotStarted`]: no node is left.
    /// - [`ClusterError::Refused`]: the cluster runs, but another holder of a lease has killed,
    ///   frozen or cut off nodes, and they did not come back in time.
    pub fn lease(options: ClusterOptions) -> Result<Self, ClusterError> {
        Self::lease_with(options, Program::Built)
    }

    pub(crate) fn lease_with(
        options: ClusterOptions,
        program: Program,
    ) -> Result<Self, ClusterError> {
        options.validate()?;
        let place = Place::find(&options.name)?;
        let lease = launch::open(&place, program, &Request::Lease(options.clone()))?;
        Ok(Self { options, place, lease })
    }

    /// The options with which the cluster was started.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Where the nodes answer CQL, in the order of their numbers.
    pub fn nodes(&self) -> Vec<SocketAddr> {
        self.options.numbers().map(|number| self.options.cql(number)).collect()
    }

    /// Kills a node with `SIGKILL` and returns when its process is gone. The other nodes consider
    /// it alive for about 20 seconds more; see [`Cluster::wait_until_seen_down`].
    ///
    /// # Errors
    ///
    /// See [`Cluster`].
    pub fn kill(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Kill(node)).map(drop)
    }

    /// Freezes a node with `SIGSTOP`: its connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node's process is gone; and see [`Cluster`].
    pub fn pause(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Pause(node)).map(drop)
    }

    /// Resumes a frozen node, and returns at once. [`Cluster::heal`] also waits until the others
    /// have noticed.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node's process is gone; and see [`Cluster`].
    pub fn resume(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Resume(node)).map(drop)
    }

    /// Starts a killed node, on its old data, and returns when it accepts clients, sees all other
    /// running nodes and is seen by them. For a running node it only waits.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node is paused, or if it didn't come up, with the end of
    /// its log; and see [`Cluster`].
    pub fn start(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Start(node)).map(drop)
    }

    /// Cuts the link from one node to another: messages of the first one don't arrive until the
    /// link is joined again. The other direction still works.
    ///
    /// No node is seen down while a third node passes on its heartbeats: cutting the links between
    /// two of three nodes only makes their messages wait. Nodes that are partitioned from each
    /// other notice it in about 20 seconds.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if both are the same node, or if the nodes reach each other
    /// without a relay: see [`Network::Relayed`](crate::Network::Relayed); and see [`Cluster`].
    pub fn cut(&self, from: u8, to: u8) -> Result<(), ClusterError> {
        self.request(&Request::Cut(Link { from, to })).map(drop)
    }

    /// Cuts all links from and to a node. Clients reach it as before.
    ///
    /// # Errors
    ///
    /// As [`Cluster::cut`]. Some of the links may be cut then.
    pub fn isolate(&self, node: u8) -> Result<(), ClusterError> {
        for other in self.options.numbers().filter(|&other| other != node) {
            for Link { from, to } in Link::both(node, other) {
                self.cut(from, to)?;
            }
        }
        Ok(())
    }

    /// Joins all links, and returns at once. [`Cluster::heal`] also waits until the nodes have
    /// noticed.
    ///
    /// # Errors
    ///
    /// See [`Cluster`].
    pub fn join(&self) -> Result<(), ClusterError> {
        self.request(&Request::Join).map(drop)
    }

    /// Delays what one node sends to another by `delay` from now on, as a longer cable would: many
    /// messages are on their way at once. An answer is a message of its own, so a round trip takes
    /// the delays of both directions longer. [`Cluster::heal`] ends all delays.
    ///
    /// # Errors
    ///
    /// As [`Cluster::cut`].
    pub fn delay(&self, from: u8, to: u8, delay: Duration) -> Result<(), ClusterError> {
        self.request(&Request::Delay(Link { from, to }, delay)).map(drop)
    }

    /// Joins all links, ends all delays, resumes and starts all nodes that need it, and returns
    /// when the cluster is whole.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if a node didn't come up; and see [`Cluster`].
    pub fn heal(&self) -> Result<(), ClusterError> {
        self.request(&Request::Heal).map(drop)
    }

    /// Sets a node's clock this many seconds ahead of the machine's, or behind if negative; the
    /// node notices within a second. It stays so until the node is started again.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node is not in
    /// [`clock_offsets`](ClusterOptions::clock_offsets), and so uses the machine's clock.
    pub fn set_clock(&self, node: u8, seconds_ahead: i32) -> Result<(), ClusterError> {
        if !self.options.clock_offsets.contains_key(&node) {
            return Err(ClusterError::Refused(format!(
                "node {node} uses the clock of the machine: name it in clock_offsets"
            )));
        }
        clock::set(&self.place.clock(node), seconds_ahead)
    }

    /// Returns when no other running node considers this node alive. It must be killed, paused or
    /// [isolated](Cluster::isolate), or have at least all links from it cut. That takes about 20
    /// seconds.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node runs and a link leads from it; and see [`Cluster`].
    pub fn wait_until_seen_down(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::WaitSeenDown(node)).map(drop)
    }

    /// The state of the cluster and its nodes.
    ///
    /// # Errors
    ///
    /// See [`Cluster`].
    pub fn status(&self) -> Result<Status, ClusterError> {
        self.or_gone(status(&self.place))
    }

    /// The process id of a node's Java virtual machine.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node's process is gone; and see [`Cluster`].
    pub fn pid(&self, node: u8) -> Result<u32, ClusterError> {
        let status = self.status()?;
        let state = status.nodes.into_iter().find(|other| other.number == node);
        match state.map(|node| node.state) {
            Some(NodeState::Running { pid } | NodeState::Paused { pid }) => Ok(pid),
            Some(NodeState::Killed | NodeState::Died { .. }) | None => {
                Err(ClusterError::Refused(format!("node {node} has no process")))
            }
        }
    }

    /// Runs `nodetool` for a node and returns its output. It starts a virtual machine of its own,
    /// so it takes a second or two.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Nodetool`] if it fails; and see [`Cluster`].
    pub fn nodetool(&self, node: u8, arguments: &[&str]) -> Result<String, ClusterError> {
        let text = arguments.join(" ");
        let arguments: Vec<String> = arguments.iter().map(|&part| part.to_owned()).collect();
        let output = nodetool(&self.place, &self.options, node, &arguments)?
            .stdin(Stdio::null())
            .output()
            .map_err(ClusterError::io("run nodetool"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let output = said + &String::from_utf8_lossy(&output.stderr);
        Err(ClusterError::Nodetool { arguments: text, output })
    }

    /// The log file of a node, across all its restarts.
    pub fn logs(&self, node: u8) -> PathBuf {
        self.place.node_log(node)
    }

    fn request(&self, request: &Request) -> Result<Reply, ClusterError> {
        self.or_gone(request_of(&self.place, request))
    }

    /// While a lease is held, the cluster stops running only if its supervisor is gone.
    fn or_gone<T>(&self, result: Result<T, ClusterError>) -> Result<T, ClusterError> {
        result.map_err(|error| {
            if matches!(error, ClusterError::NotRunning { .. }) {
                let log = self.place.supervisor_log();
                return ClusterError::SupervisorGone { log };
            }
            error
        })
    }
}

impl Drop for Cluster {
    /// Ends the lease, and waits a moment for the supervisor to notice: otherwise this lease could
    /// block the next one with other options.
    fn drop(&mut self) {
        // Even if something fails here, the connection ends, and the lease with it.
        let _ = self.lease.shutdown(Shutdown::Write);
        let _ = self.lease.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = self.lease.read_to_end(&mut Vec::new());
    }
}

/// Asks a running supervisor on a connection of its own, so that waiting requests of several
/// threads don't block each other.
pub(crate) fn request_of(place: &Place, request: &Request) -> Result<Reply, ClusterError> {
    let Some(stream) = protocol::connect(place)? else {
        return Err(ClusterError::NotRunning { name: place.name().to_owned() });
    };
    match protocol::ask(&stream, request)? {
        Some(Reply::Failed(failure)) => Err(failure.into()),
        Some(reply @ (Reply::Done | Reply::Status(_))) => Ok(reply),
        None => Err(ClusterError::SupervisorGone { log: place.supervisor_log() }),
    }
}

pub(crate) fn status(place: &Place) -> Result<Status, ClusterError> {
    match request_of(place, &Request::Status)? {
        Reply::Status(status) => Ok(status),
        Reply::Done | Reply::Failed(_) => {
            unreachable!("a request for the status is answered with it")
        }
    }
}

/// The command that runs `nodetool` for a node.
pub(crate) fn nodetool(
    place: &Place,
    options: &ClusterOptions,
    node: u8,
    arguments: &[String],
) -> Result<Command, ClusterError> {
    if !options.numbers().any(|number| number == node) {
        return Err(ClusterError::Refused(format!("there is no node {node}")));
    }
    let mut command = Command::new(java::program());
    command.args(java::nodetool_arguments(place, options.jmx(node), arguments));
    Ok(command)
}
