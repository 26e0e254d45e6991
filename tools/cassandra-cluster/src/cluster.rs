//! The public handle of a cluster: a lease.

use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::launch::{self, ProgramSource};
use crate::links::Link;
use crate::paths::ClusterPaths;
use crate::protocol::{self, NodeState, Reply, Request, Status};
use crate::{ClusterError, ClusterOptions, clock, java};

/// A lease of a running cluster.
///
/// The cluster runs at least as long as this value exists, and stops two seconds after its last
/// lease ends. A process that is killed loses its leases too. Leases are shared: another test
/// program may hold a lease of the same cluster. Tests that kill, freeze or isolate nodes must
/// therefore call [`Cluster::heal`] before they end, or use their own cluster name.
///
/// Nodes are numbered from 1. All methods block; methods that wait for nodes give up after 300
/// seconds. In addition to its documented errors, each method fails with
/// [`ClusterError::SupervisorGone`] if the supervisor was killed, and with
/// [`ClusterError::Refused`] if the node doesn't exist.
#[derive(Debug)]
#[must_use = "the cluster stops when its last lease is dropped"]
pub struct Cluster {
    options: ClusterOptions,
    paths: ClusterPaths,
    lease: UnixStream,
}

impl Cluster {
    /// Finds or starts the cluster named in `options`, and returns when all nodes run, see each
    /// other and accept clients.
    ///
    /// A cluster without a lease is restarted if its options differ, and healed otherwise. The
    /// first start on a machine resolves Cassandra's jars and reports this on standard error.
    ///
    /// # Errors
    ///
    /// - [`ClusterError::InvalidOptions`], [`ClusterError::MissingProgram`],
    ///   [`ClusterError::WrongJava`], [`ClusterError::Artifacts`], [`ClusterError::Build`]:
    ///   nothing was started.
    /// - [`ClusterError::OptionsDiffer`]: the running cluster was left unchanged.
    /// - [`ClusterError::NotStarted`]: no node is left running.
    /// - [`ClusterError::Refused`]: the cluster runs, but another leaseholder killed, froze or
    ///   isolated nodes, and they did not recover in time.
    pub fn lease(options: ClusterOptions) -> Result<Self, ClusterError> {
        Self::lease_with(options, ProgramSource::Built)
    }

    pub(crate) fn lease_with(
        options: ClusterOptions,
        program: ProgramSource,
    ) -> Result<Self, ClusterError> {
        options.validate()?;
        let paths = ClusterPaths::find(&options.name)?;
        let lease = launch::open(&paths, program, &Request::Lease(options.clone()))?;
        Ok(Self { options, paths, lease })
    }

    /// The options with which the cluster was started.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// The CQL addresses of the nodes, ordered by node number.
    pub fn nodes(&self) -> Vec<SocketAddr> {
        self.options.numbers().map(|number| self.options.cql(number)).collect()
    }

    /// Kills a node with `SIGKILL` and returns when its process is gone. The other nodes still
    /// consider it alive for about 20 more seconds; see [`Cluster::wait_until_seen_down`].
    ///
    /// # Errors
    ///
    /// See [`Cluster`].
    pub fn kill(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Kill(node)).map(drop)
    }

    /// Freezes a node with `SIGSTOP`: its connections stay open, but it doesn't answer.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node's process is gone. See also [`Cluster`].
    pub fn pause(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Pause(node)).map(drop)
    }

    /// Resumes a frozen node and returns at once. [`Cluster::heal`] also waits until the other
    /// nodes see it.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node's process is gone. See also [`Cluster`].
    pub fn resume(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Resume(node)).map(drop)
    }

    /// Starts a killed node on its old data, and returns when it accepts clients and when it and
    /// all other running nodes see each other. If the node is already running, only waits.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node is paused or disposable, or didn't come up. In the
    /// last case, the message quotes the end of its log. See also [`Cluster`].
    pub fn start(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::Start(node)).map(drop)
    }

    /// Cuts the link from one node to another: messages in this direction are held back until the
    /// link is joined. The other direction still works.
    ///
    /// A node is not seen down while a third node forwards its heartbeats: cutting the links
    /// between two of three nodes only delays their messages. Partitioned nodes see each other down
    /// after about 20 seconds.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if both nodes are the same, or if the cluster does not use
    /// [`Network::Relayed`](crate::Network::Relayed). See also [`Cluster`].
    pub fn cut(&self, from: u8, to: u8) -> Result<(), ClusterError> {
        self.request(&Request::Cut(Link { from, to })).map(drop)
    }

    /// Cuts all links from and to a node. Clients can still reach it.
    ///
    /// # Errors
    ///
    /// The errors of [`Cluster::cut`]. Some of the links may have been cut.
    pub fn isolate(&self, node: u8) -> Result<(), ClusterError> {
        for other in self.options.numbers().filter(|&other| other != node) {
            for Link { from, to } in Link::both(node, other) {
                self.cut(from, to)?;
            }
        }
        Ok(())
    }

    /// Joins all links and returns at once. [`Cluster::heal`] also waits until the nodes see each
    /// other.
    ///
    /// # Errors
    ///
    /// See [`Cluster`].
    pub fn join(&self) -> Result<(), ClusterError> {
        self.request(&Request::Join).map(drop)
    }

    /// Delays messages from one node to another by `delay` from now on, as a longer cable would:
    /// many messages are in flight at once. A response is also a message, so a round trip is
    /// delayed in both directions. [`Cluster::heal`] ends all delays.
    ///
    /// # Errors
    ///
    /// The errors of [`Cluster::cut`].
    pub fn delay(&self, from: u8, to: u8, delay: Duration) -> Result<(), ClusterError> {
        self.request(&Request::Delay(Link { from, to }, delay)).map(drop)
    }

    /// Joins all links, ends all delays, resumes frozen nodes and starts dead ones. Returns when
    /// all nodes run, see each other and accept clients.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if a node didn't come up. See also [`Cluster`].
    pub fn heal(&self) -> Result<(), ClusterError> {
        self.request(&Request::Heal).map(drop)
    }

    /// Sets a node's clock `seconds_ahead` of the machine's clock, or behind if negative. This
    /// takes effect within a second and lasts until the node is restarted.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node uses the machine's clock because it is not in
    /// [`clock_offsets`](ClusterOptions::clock_offsets).
    pub fn set_clock(&self, node: u8, seconds_ahead: i32) -> Result<(), ClusterError> {
        if !self.options.clock_offsets.contains_key(&node) {
            return Err(ClusterError::Refused(format!(
                "node {node} uses the machine's clock: add the node to clock_offsets"
            )));
        }
        clock::set(&self.paths.clock_file(node), seconds_ahead)
    }

    /// Waits until no other running node considers this node alive, which takes about 20 seconds.
    /// The node must be killed, paused or [isolated](Cluster::isolate), or at least all links from
    /// it must be cut.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node is running and not all links from it are cut. See also
    /// [`Cluster`].
    pub fn wait_until_seen_down(&self, node: u8) -> Result<(), ClusterError> {
        self.request(&Request::WaitSeenDown(node)).map(drop)
    }

    /// Returns the state of the cluster and its nodes.
    ///
    /// # Errors
    ///
    /// See [`Cluster`].
    pub fn status(&self) -> Result<Status, ClusterError> {
        self.report_as_gone(status(&self.paths))
    }

    /// Returns the process id of a node's Java virtual machine.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] if the node's process is gone. See also [`Cluster`].
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

    /// Runs `nodetool` for a node and returns its output. This takes a second or two, because
    /// `nodetool` starts its own virtual machine.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Nodetool`] if it fails. See also [`Cluster`].
    pub fn nodetool(&self, node: u8, arguments: &[&str]) -> Result<String, ClusterError> {
        let text = arguments.join(" ");
        let arguments: Vec<String> = arguments.iter().map(|&part| part.to_owned()).collect();
        let output = nodetool(&self.paths, &self.options, node, &arguments)?
            .stdin(Stdio::null())
            .output()
            .map_err(ClusterError::io("run nodetool"))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(stdout);
        }
        let output = stdout + &String::from_utf8_lossy(&output.stderr);
        Err(ClusterError::Nodetool { arguments: text, output })
    }

    /// The path of a node's log, which spans all restarts of the node.
    pub fn logs(&self, node: u8) -> PathBuf {
        self.paths.node_log(node)
    }

    fn request(&self, request: &Request) -> Result<Reply, ClusterError> {
        self.report_as_gone(send(&self.paths, request))
    }

    /// Turns `NotRunning` into `SupervisorGone`: a leased cluster stops only if its supervisor
    /// dies.
    fn report_as_gone<T>(&self, result: Result<T, ClusterError>) -> Result<T, ClusterError> {
        result.map_err(|error| {
            if matches!(error, ClusterError::NotRunning { .. }) {
                let log = self.paths.supervisor_log();
                return ClusterError::SupervisorGone { log };
            }
            error
        })
    }
}

impl Drop for Cluster {
    /// Ends the lease and waits briefly until the supervisor notices. Otherwise, this lease could
    /// block the next lease if its options differ.
    fn drop(&mut self) {
        // Even if a call fails, the connection closes, which ends the lease.
        let _ = self.lease.shutdown(Shutdown::Write);
        let _ = self.lease.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = self.lease.read_to_end(&mut Vec::new());
    }
}

/// Sends a request to a running supervisor. Each request has its own connection, so threads that
/// wait don't block each other.
pub(crate) fn send(paths: &ClusterPaths, request: &Request) -> Result<Reply, ClusterError> {
    let Some(stream) = protocol::connect(paths)? else {
        return Err(ClusterError::NotRunning { name: paths.name().to_owned() });
    };
    match protocol::exchange(&stream, request)? {
        Some(Reply::Failed(failure)) => Err(failure.into()),
        Some(reply @ (Reply::Done | Reply::Status(_))) => Ok(reply),
        None => Err(ClusterError::SupervisorGone { log: paths.supervisor_log() }),
    }
}

pub(crate) fn status(paths: &ClusterPaths) -> Result<Status, ClusterError> {
    match send(paths, &Request::Status)? {
        Reply::Status(status) => Ok(status),
        Reply::Done | Reply::Failed(_) => {
            unreachable!("a status request returns a status or fails")
        }
    }
}

/// The command that runs `nodetool` for a node.
pub(crate) fn nodetool(
    paths: &ClusterPaths,
    options: &ClusterOptions,
    node: u8,
    arguments: &[String],
) -> Result<Command, ClusterError> {
    if !options.numbers().any(|number| number == node) {
        return Err(ClusterError::Refused(format!("there is no node {node}")));
    }
    let mut command = Command::new(java::program());
    command.args(java::nodetool_arguments(paths, options.jmx(node), arguments));
    Ok(command)
}
