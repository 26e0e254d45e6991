//! The nodes of one run of a cluster, and the goals that requests wait for.

use std::fs;
use std::io;
use std::time::Duration;

use crate::clock;
use crate::config;
use crate::cql::ProbeResult;
use crate::links::{Link, Links};
use crate::log;
use crate::node::Node;
use crate::options::Network;
use crate::paths::ClusterPaths;
use crate::protocol::{NodeState, NodeStatus, OldData};
use crate::relay::Relay;
use crate::{ClusterError, ClusterOptions};

/// The nodes of a running cluster. Dropping the ring does not stop them: see [`Ring::stop`].
#[derive(Debug)]
pub(crate) struct Ring {
    paths: ClusterPaths,
    options: ClusterOptions,
    nodes: Vec<Node>,
    /// The relay between the nodes, unless they connect directly.
    relay: Option<Relay>,
    came_up: bool,
}

/// The state that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// All nodes run, see each other and accept clients.
    AllUp,
    /// The node accepts clients, and it and all other running nodes see each other.
    NodeUp(u8),
    /// No other running node considers the node alive.
    SeenDown(u8),
}

/// Why a [`Goal`] is not met.
#[derive(Debug)]
pub(crate) enum Unmet {
    /// The goal may be reached later.
    Pending(String),
    /// The goal can't be reached.
    Impossible(String),
}

impl Ring {
    /// Writes the configuration and starts all nodes at once.
    ///
    /// # Errors
    ///
    /// The reason why a node could not be started. The nodes that were started are stopped.
    pub(crate) fn start(
        paths: ClusterPaths,
        options: ClusterOptions,
        old_data: OldData,
    ) -> Result<Self, ClusterError> {
        options.validate()?;
        prepare(&paths, &options, old_data)
            .map_err(ClusterError::io(format!("prepare {}", paths.directory().display())))?;
        if !options.clock_offsets.is_empty() {
            clock::compile(&paths)?;
        }
        let relay = match options.network {
            Network::Direct => None,
            Network::Relayed => Some(Relay::start(&options)?),
        };
        let nodes = options.numbers().map(|number| Node::new(&paths, &options, number)).collect();
        let mut ring = Self { paths, options, nodes, relay, came_up: false };
        for node in &mut ring.nodes {
            if let Err(error) = node.spawn(&ring.paths, &ring.options) {
                ring.stop();
                return Err(error);
            }
        }
        Ok(ring)
    }

    pub(crate) fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Whether [`Goal::AllUp`] was ever reached.
    pub(crate) fn came_up(&self) -> bool {
        self.came_up
    }

    /// Kills all nodes and waits for them to exit.
    pub(crate) fn stop(&mut self) {
        for node in &mut self.nodes {
            if let Err(error) = node.kill() {
                // The kernel kills the node when the supervisor exits.
                eprintln!("{error}");
            }
        }
    }

    pub(crate) fn kill(&mut self, number: u8) -> Result<(), ClusterError> {
        self.find_mut(number)?.kill()
    }

    pub(crate) fn pause(&mut self, number: u8) -> Result<(), ClusterError> {
        self.find_alive(number)?.pause()
    }

    pub(crate) fn resume(&mut self, number: u8) -> Result<(), ClusterError> {
        self.find_alive(number)?.resume()
    }

    /// Starts a node that was killed or died. Does nothing if the node is running.
    pub(crate) fn start_node(&mut self, number: u8) -> Result<(), ClusterError> {
        match self.find_mut(number)?.state() {
            NodeState::Running { .. } => return Ok(()),
            NodeState::Paused { .. } => {
                return Err(ClusterError::Refused(format!("node {number} is paused: resume it")));
            }
            NodeState::Killed | NodeState::Died { .. } if self.options.disposable => {
                return Err(ClusterError::Refused(format!(
                    "node {number} is disposable and can't be restarted: restart the cluster"
                )));
            }
            NodeState::Killed | NodeState::Died { .. } => {}
        }
        let address = self.options.peer_address(number);
        for node in &mut self.nodes {
            if node.number() == number {
                node.spawn(&self.paths, &self.options)?;
            } else {
                node.log_mut().forget_peer(address);
            }
        }
        Ok(())
    }

    /// Cuts a link between two nodes.
    pub(crate) fn cut(&self, link: Link) -> Result<(), ClusterError> {
        self.relayed(link)?.cut(link);
        Ok(())
    }

    /// Delays messages on a link between two nodes.
    pub(crate) fn delay(&self, link: Link, delay: Duration) -> Result<(), ClusterError> {
        self.relayed(link)?.set_delay(link, delay);
        Ok(())
    }

    /// The relay's links, if `link` is one of them.
    fn relayed(&self, link: Link) -> Result<&Links, ClusterError> {
        let (from, to) = (self.find(link.from)?, self.find(link.to)?);
        if from.number() == to.number() {
            let message = format!("node {} has no link to itself", link.from);
            return Err(ClusterError::Refused(message));
        }
        let relay = self.relay.as_ref().map(Relay::links);
        relay.ok_or_else(|| {
            ClusterError::Refused(
                "only relayed links can be cut or delayed: start the cluster with \
                 Network::Relayed or `--relay`"
                    .to_owned(),
            )
        })
    }

    /// Joins all links.
    pub(crate) fn join(&self) {
        if let Some(relay) = &self.relay {
            relay.links().join();
        }
    }

    pub(crate) fn cut_links(&self) -> Vec<Link> {
        self.relay.as_ref().map_or_else(Vec::new, |relay| relay.links().all_cut())
    }

    /// Whether [`heal`](Self::heal) can make all nodes run.
    pub(crate) fn can_heal(&self) -> bool {
        let is_dead =
            |node: &Node| matches!(node.state(), NodeState::Killed | NodeState::Died { .. });
        !self.options.disposable || !self.nodes.iter().any(is_dead)
    }

    /// Joins all links, ends all delays, resumes paused nodes and starts dead ones.
    pub(crate) fn heal(&mut self) -> Result<(), ClusterError> {
        self.join();
        if let Some(relay) = &self.relay {
            relay.links().end_delays();
        }
        for number in self.options.numbers() {
            match self.find_mut(number)?.state() {
                NodeState::Running { .. } => {}
                NodeState::Paused { .. } => self.resume(number)?,
                NodeState::Killed | NodeState::Died { .. } => self.start_node(number)?,
            }
        }
        Ok(())
    }

    /// Detects processes that have exited, and reads new lines of the logs.
    pub(crate) fn refresh(&mut self) {
        for node in &mut self.nodes {
            node.reap();
            node.log_mut().read();
        }
    }

    /// Checks whether a goal is reached. Call [`Ring::refresh`] first.
    pub(crate) fn check(&mut self, goal: Goal) -> Result<(), Unmet> {
        match goal {
            Goal::AllUp => {
                self.options.numbers().try_for_each(|number| self.check_up(number))?;
                self.came_up = true;
                Ok(())
            }
            Goal::NodeUp(number) => self.check_up(number),
            Goal::SeenDown(number) => self.check_seen_down(number),
        }
    }

    pub(crate) fn node_statuses(&self) -> Vec<NodeStatus> {
        self.nodes.iter().map(|node| self.node_status(node)).collect()
    }

    /// The end of the log of the first node that has not started, otherwise of node 1.
    pub(crate) fn relevant_log(&self) -> String {
        let not_started = self.nodes.iter().find(|node| !node.log().started());
        not_started
            .or(self.nodes.first())
            .map_or_else(String::new, |node| log::tail(node.log().path()))
    }

    fn find_alive(&mut self, number: u8) -> Result<&mut Node, ClusterError> {
        let node = self.find_mut(number)?;
        match node.state() {
            NodeState::Running { .. } | NodeState::Paused { .. } => Ok(node),
            NodeState::Killed | NodeState::Died { .. } => {
                Err(ClusterError::Refused(format!("node {number} is not running: start it")))
            }
        }
    }

    fn node_status(&self, node: &Node) -> NodeStatus {
        let is_up = |other: &&Node| node.log().up().contains(&other.peer_address());
        let sees = if node.is_running() {
            self.nodes.iter().filter(is_up).map(Node::number).collect()
        } else {
            Vec::new()
        };
        NodeStatus {
            number: node.number(),
            cql: node.cql(),
            jmx: node.jmx(),
            state: node.state(),
            sees,
            log: node.log().path().to_owned(),
        }
    }

    fn check_up(&mut self, number: u8) -> Result<(), Unmet> {
        self.check_started(number)?;
        self.check_sees_others(number)?;
        self.check_serves(number)
    }

    fn check_started(&self, number: u8) -> Result<(), Unmet> {
        let node = self.find(number)?;
        match node.state() {
            NodeState::Running { .. } if node.log().started() => Ok(()),
            NodeState::Running { .. } => pending(format!("node {number} has not started")),
            NodeState::Paused { .. } => pending(format!("node {number} is paused")),
            NodeState::Killed => pending(format!("node {number} was killed")),
            NodeState::Died { how } => Err(Unmet::Impossible(format!(
                "node {number} exited ({how}); {}",
                log::tail(node.log().path())
            ))),
        }
    }

    fn check_sees_others(&self, number: u8) -> Result<(), Unmet> {
        let node = self.find(number)?;
        for other in &self.nodes {
            if other.number() == number || !other.is_running() {
                continue;
            }
            for (from, to) in [(node, other), (other, node)] {
                if !from.log().up().contains(&to.peer_address()) {
                    return pending(format!(
                        "node {} does not see node {}",
                        from.number(),
                        to.number()
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_serves(&mut self, number: u8) -> Result<(), Unmet> {
        let others = self.options.nodes - 1;
        let has_logged_in = self.came_up;
        match self.find_mut(number)?.probe(others) {
            Some(ProbeResult::Serving { peers }) if peers == i64::from(others) => Ok(()),
            Some(ProbeResult::Serving { .. }) => {
                pending(format!("node {number} does not know the tokens of all other nodes"))
            }
            // The password may have been changed since the first login.
            Some(ProbeResult::PasswordRejected) if has_logged_in => Ok(()),
            Some(ProbeResult::PasswordRejected) => {
                pending(format!("node {number} rejects the role cassandra"))
            }
            None => pending(format!("node {number} does not answer CQL")),
        }
    }

    fn check_seen_down(&self, number: u8) -> Result<(), Unmet> {
        let node = self.find(number)?;
        if node.is_running() && !self.cannot_send(number) {
            let message = format!(
                "node {number} runs and not all links from it are cut: it won't be seen down"
            );
            return Err(Unmet::Impossible(message));
        }
        let sees = |other: &&Node| {
            other.number() != number
                && other.is_running()
                && other.log().up().contains(&node.peer_address())
        };
        match self.nodes.iter().find(sees) {
            Some(other) => pending(format!("node {} still sees node {number} up", other.number())),
            None => Ok(()),
        }
    }

    /// Whether a node has links, and all links from it are cut.
    fn cannot_send(&self, number: u8) -> bool {
        let cut = self.cut_links().into_iter().filter(|link| link.from == number).count();
        cut > 0 && cut == usize::from(self.options.nodes - 1)
    }

    fn find(&self, number: u8) -> Result<&Node, NoSuchNode> {
        let missing = NoSuchNode { number, last: self.options.nodes };
        self.nodes.iter().find(|node| node.number() == number).ok_or(missing)
    }

    fn find_mut(&mut self, number: u8) -> Result<&mut Node, NoSuchNode> {
        let missing = NoSuchNode { number, last: self.options.nodes };
        self.nodes.iter_mut().find(|node| node.number() == number).ok_or(missing)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there is no node {number}: the last node is {last}")]
struct NoSuchNode {
    number: u8,
    last: u8,
}

impl From<NoSuchNode> for ClusterError {
    fn from(error: NoSuchNode) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<NoSuchNode> for Unmet {
    fn from(error: NoSuchNode) -> Self {
        Self::Impossible(error.to_string())
    }
}

fn pending(what: String) -> Result<(), Unmet> {
    Err(Unmet::Pending(what))
}

/// Prepares the cluster's directory for the start of the nodes.
fn prepare(paths: &ClusterPaths, options: &ClusterOptions, old_data: OldData) -> io::Result<()> {
    match old_data {
        OldData::Discard => discard_data(paths)?,
        OldData::Keep => require_same_ring(paths, options)?,
    }
    let logs = paths.directory().join("logs");
    if logs.exists() {
        fs::remove_dir_all(&logs)?;
    }
    fs::create_dir(&logs)?;
    let configuration = paths.configuration_directory();
    fs::create_dir_all(&configuration)?;
    fs::write(configuration.join("logback.xml"), config::LOGBACK)?;
    fs::write(configuration.join("logback-tools.xml"), config::LOGBACK_TOOLS)?;
    fs::write(paths.options_file(), serde_json::to_vec_pretty(options)?)
}

fn discard_data(paths: &ClusterPaths) -> io::Result<()> {
    for number in 1..=u8::MAX {
        let home = paths.node_directory(number);
        if !home.exists() {
            break;
        }
        fs::remove_dir_all(home)?;
    }
    Ok(())
}

/// Fails if the data on disk is from a different number of nodes, or from other peer addresses:
/// these nodes would not find each other.
fn require_same_ring(paths: &ClusterPaths, options: &ClusterOptions) -> io::Result<()> {
    let text = match fs::read(paths.options_file()) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let old: ClusterOptions = serde_json::from_slice(&text)?;
    if old.disposable || options.disposable {
        return Err(io::Error::other("disposable nodes keep no data: remove --keep"));
    }
    if (old.nodes, old.peer_address(1)) == (options.nodes, options.peer_address(1)) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the data belongs to {} nodes that know each other as {} and following: start the same \
         nodes, or remove --keep",
        old.nodes,
        old.peer_address(1)
    )))
}
