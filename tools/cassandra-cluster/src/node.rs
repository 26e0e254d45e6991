//! A node's process and state.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::cql::{self, ProbeResult};
use crate::java;
use crate::log::NodeLog;
use crate::paths::ClusterPaths;
use crate::protocol::NodeState;
use crate::{ClusterError, ClusterOptions, clock, config};

/// The hidden subcommand with which the supervisor starts a node.
pub(crate) const EXECUTE_NODE: &str = "execute-node";

/// A node, as the supervisor sees it.
#[derive(Debug)]
pub(crate) struct Node {
    number: u8,
    /// The address by which the other nodes know this node.
    peer_address: Ipv4Addr,
    storage: SocketAddr,
    cql: SocketAddr,
    jmx: SocketAddr,
    process: Process,
    log: NodeLog,
    last_probe: Option<ProbeResult>,
}

#[derive(Debug)]
enum Process {
    Running(Child),
    Paused(Child),
    Killed,
    Died(ExitStatus),
}

impl Node {
    /// Node `number`, not yet started.
    pub(crate) fn new(paths: &ClusterPaths, options: &ClusterOptions, number: u8) -> Self {
        Self {
            number,
            peer_address: options.peer_address(number),
            storage: options.storage(number),
            cql: options.cql(number),
            jmx: options.jmx(number),
            process: Process::Killed,
            log: NodeLog::new(paths.node_log(number)),
            last_probe: None,
        }
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    pub(crate) fn peer_address(&self) -> Ipv4Addr {
        self.peer_address
    }

    pub(crate) fn cql(&self) -> SocketAddr {
        self.cql
    }

    pub(crate) fn jmx(&self) -> SocketAddr {
        self.jmx
    }

    pub(crate) fn log(&self) -> &NodeLog {
        &self.log
    }

    pub(crate) fn log_mut(&mut self) -> &mut NodeLog {
        &mut self.log
    }

    pub(crate) fn state(&self) -> NodeState {
        match &self.process {
            Process::Running(child) => NodeState::Running { pid: child.id() },
            Process::Paused(child) => NodeState::Paused { pid: child.id() },
            Process::Killed => NodeState::Killed,
            Process::Died(status) => NodeState::Died { how: status.to_string() },
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.process, Process::Running(_))
    }

    /// Writes the configuration and starts the process.
    ///
    /// Must be called on the supervisor's main thread: the node dies with the thread that starts
    /// it; see [`execute_tied`](crate::execute_tied).
    pub(crate) fn spawn(
        &mut self,
        paths: &ClusterPaths,
        options: &ClusterOptions,
    ) -> Result<(), ClusterError> {
        for address in [self.cql, self.storage, self.jmx] {
            // The node itself must be able to bind the address.
            drop(bind_with_retry(address)?);
        }
        let home = paths.node_directory(self.number);
        let temporary = home.join("tmp");
        let yaml = home.join("cassandra.yaml");
        fs::create_dir_all(&temporary)
            .and_then(|()| fs::write(&yaml, config::cassandra_yaml(options, self.number)))
            .map_err(ClusterError::io(format!("write {}", yaml.display())))?;
        let rackdc = home.join("cassandra-rackdc.properties");
        fs::write(&rackdc, config::rackdc_properties(options, self.number))
            .map_err(ClusterError::io(format!("write {}", rackdc.display())))?;
        self.log.restart();
        self.last_probe = None;
        let path = self.log.path();
        let output = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(ClusterError::io(format!("open {}", path.display())))?;
        let errors = output.try_clone().map_err(ClusterError::io("share the node's log"))?;
        if let Some(seconds_ahead) = options.clock_offsets.get(&self.number) {
            clock::set(&paths.clock_file(self.number), *seconds_ahead)?;
        }
        // This link refers to the running program even if a build has since replaced its file.
        let child = Command::new("/proc/self/exe")
            .arg(EXECUTE_NODE)
            .arg(std::process::id().to_string())
            .arg(java::program())
            .args(java::node_arguments(paths, options, self.number))
            .current_dir(&home)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(ClusterError::io(format!("start node {}", self.number)))?;
        self.process = Process::Running(child);
        Ok(())
    }

    /// Kills the process in any state, and waits for it to exit.
    pub(crate) fn kill(&mut self) -> Result<(), ClusterError> {
        if let Process::Running(child) | Process::Paused(child) = &mut self.process {
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(ClusterError::io(format!("kill node {}", self.number)))?;
        }
        self.process = Process::Killed;
        self.last_probe = None;
        Ok(())
    }

    /// Freezes the process. Does nothing if it is frozen or gone.
    pub(crate) fn pause(&mut self) -> Result<(), ClusterError> {
        match std::mem::replace(&mut self.process, Process::Killed) {
            Process::Running(child) => {
                let sent = signal(&child, Signal::STOP);
                self.process = Process::Paused(child);
                sent.map_err(ClusterError::io(format!("pause node {}", self.number)))
            }
            other @ (Process::Paused(_) | Process::Killed | Process::Died(_)) => {
                self.process = other;
                Ok(())
            }
        }
    }

    /// Resumes the frozen process. Does nothing if it is running or gone.
    pub(crate) fn resume(&mut self) -> Result<(), ClusterError> {
        match std::mem::replace(&mut self.process, Process::Killed) {
            Process::Paused(child) => {
                let sent = signal(&child, Signal::CONT);
                self.process = Process::Running(child);
                self.last_probe = None;
                sent.map_err(ClusterError::io(format!("resume node {}", self.number)))
            }
            other @ (Process::Running(_) | Process::Killed | Process::Died(_)) => {
                self.process = other;
                Ok(())
            }
        }
    }

    /// Detects whether the process has exited by itself.
    pub(crate) fn reap(&mut self) {
        if let Process::Running(child) | Process::Paused(child) = &mut self.process
            && let Ok(Some(status)) = child.try_wait()
        {
            self.process = Process::Died(status);
        }
    }

    /// Returns the result of the last probe. Probes the node until it accepts a client and knows
    /// the tokens of `peers` other nodes; after that, only when it was restarted or resumed.
    pub(crate) fn probe(&mut self, peers: u8) -> Option<ProbeResult> {
        let is_ready = self.last_probe == Some(ProbeResult::Serving { peers: peers.into() });
        if !is_ready && self.log.started() && self.is_running() {
            self.last_probe = cql::probe(self.cql).ok();
        }
        self.last_probe
    }
}

/// Binds an address, to detect before a start whether another process uses it. The node itself
/// would only log this, and another cluster might be mistaken for this one.
///
/// Retries for two seconds, because a node whose supervisor was just killed needs a moment to exit.
pub(crate) fn bind_with_retry(address: SocketAddr) -> Result<TcpListener, ClusterError> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                return Err(ClusterError::io(format!("listen on {address}"))(error));
            }
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            Err(_) => {
                return Err(ClusterError::NotStarted(format!(
                    "{address} is in use by a process outside this cluster: find it with \
                     `ss -ltnp`, then stop it or use other addresses"
                )));
            }
        }
    }
}

fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.expect("a child has a positive process id");
    Ok(rustix::process::kill_process(pid, signal)?)
}
