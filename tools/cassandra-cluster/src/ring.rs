//! The nodes of one run of a cluster, and whether they have reached a goal.

use std::fs;
use std::io;
use std::time::Duration;

use crate::clock;
use crate::config;
use crate::cql::Answer;
use crate::links::{Link, Links};
use crate::log;
use crate::node::Node;
use crate::options::Network;
use crate::place::Place;
use crate::protocol::{NodeState, NodeStatus, OldData};
use crate::relay::Relay;
use crate::{ClusterError, ClusterOptions};

/// The nodes of a running cluster. Dropping it leaves them running: see [`Ring::stop`].
#[derive(Debug)]
pub(crate) struct Ring {
    place: Place,
    options: ClusterOptions,
    nodes: Vec<Node>,
    /// The relay between the nodes, if they don't connect directly.
    relay: Option<Relay>,
    was_whole: bool,
}

/// The state that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// All nodes run, see each other and accept clients.
    Whole,
    /// The node accepts clients, sees all other running nodes, and is seen by them.
    Up(u8),
    /// No other running node considers the node alive.
    SeenDown(u8),
}

/// Why a [`Goal`] is not reached.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// Waiting may help.
    Yet(String),
    /// Waiting does not help.
    Forever(String),
}

impl Ring {
    /// Writes the configuration and starts all nodes at once.
    ///
    /// # Errors
    ///
    /// The reason why a node could not be started; those started before it are stopped again.
    pub(crate) fn start(
        place: Place,
        options: ClusterOptions,
        old_data: OldData,
    ) -> Result<Self, ClusterError> {
        options.validate()?;
        prepare(&place, &options, old_data)
            .map_err(ClusterError::io(format!("prepare {}", place.directory().display())))?;
        if !options.clock_offsets.is_empty() {
            clock::compile(&place)?;
        }
        let relay = match options.network {
            Network::Direct => None,
            Network::Relayed => Some(Relay::start(&options)?),
        };
        let nodes = options.numbers().map(|number| Node::new(&place, &options, number)).collect();
        let mut ring = Self { place, options, nodes, relay, was_whole: false };
        for node in &mut ring.nodes {
            if let Err(error) = node.spawn(&ring.place, &ring.options) {
                ring.stop();
                return Err(error);
            }
        }
        Ok(ring)
    }

    pub(crate) fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Whether [`Goal::Whole`] was ever reached.
    pub(crate) fn was_whole(&self) -> bool {
        self.was_whole
    }

    /// Kills all nodes and waits for their end.
    pub(crate) fn stop(&mut self) {
        for node in &mut self.nodes {
            if let Err(error) = node.kill() {
                // The kernel kills the node when the supervisor ends.
                eprintln!("{error}");
            }
        }
    }

    pub(crate) fn kill(&mut self, number: u8) -> Result<(), ClusterError> {
        self.find_mut(number)?.kill()
    }

    pub(crate) fn pause(&mut self, number: u8) -> Result<(), ClusterError> {
        self.alive(number)?.pause()
    }

    pub(crate) fn resume(&mut self, number: u8) -> Result<(), ClusterError> {
        self.alive(number)?.resume()
    }

    /// Starts a node that was killed or died; does nothing to a running one.
    pub(crate) fn start_node(&mut self, number: u8) -> Result<(), ClusterError> {
        match self.find_mut(number)?.state() {
            NodeState::Running { .. } => return Ok(()),
            NodeState::Paused { .. } => {
                return Err(ClusterError::Refused(format!(
                    "node {number} is paused: resume it instead"
                )));
            }
            NodeState::Killed | NodeState::Died { .. } if self.options.disposable => {
                return Err(ClusterError::Refused(format!(
                    "node {number} is disposable and can't be started again: restart the cluster"
                )));
            }
            NodeState::Killed | NodeState::Died { .. } => {}
        }
        let address = self.options.peer_address(number);
        for node in &mut self.nodes {
            if node.number() == number {
                node.spawn(&self.place, &self.options)?;
            } else {
                node.log_mut().forget(address);
            }
        }
        Ok(())
    }

    /// Cuts a link between two nodes.
    pub(crate) fn cut(&self, link: Link) -> Result<(), ClusterError> {
        self.relayed(link)?.cut(link);
        Ok(())
    }

    /// Delays what is sent on a link between two nodes.
    pub(crate) fn delay(&self, link: Link, delay: Duration) -> Result<(), ClusterError> {
        self.relayed(link)?.set_delay(link, delay);
        Ok(())
    }

    /// The links, if this is one of them.
    fn relayed(&self, link: Link) -> Result<&Links, ClusterError> {
        let (from, to) = (self.find(link.from)?, self.find(link.to)?);
        if from.number() == to.number() {
            let message = format!("node {} has no link to itself", link.from);
            return Err(ClusterError::Refused(message));
        }
        let relay = self.relay.as_ref().map(Relay::links);
        relay.ok_or_else(|| {
            ClusterError::Refused(
                "only links that are relayed can be cut or delayed: start the cluster with \
                 Network::Relayed, or `--relay`"
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
        let gone = |node: &Node| matches!(node.state(), NodeState::Killed | NodeState::Died { .. });
        !self.options.disposable || !self.nodes.iter().any(gone)
    }

    /// Joins all links, ends all delays, and resumes or starts all nodes that do not run.
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

    /// Notices processes that ended, and reads the logs.
    pub(crate) fn observe(&mut self) {
        for node in &mut self.nodes {
            node.reap();
            node.log_mut().read();
        }
    }

    /// Whether a goal is reached. Call [`Ring::observe`] first.
    pub(crate) fn check(&mut self, goal: Goal) -> Result<(), Obstacle> {
        match goal {
            Goal::Whole => {
                self.options.numbers().try_for_each(|number| self.check_up(number))?;
                self.was_whole = true;
                Ok(())
            }
            Goal::Up(number) => self.check_up(number),
            Goal::SeenDown(number) => self.check_seen_down(number),
        }
    }

    pub(crate) fn node_statuses(&self) -> Vec<NodeStatus> {
        self.nodes.iter().map(|node| self.node_status(node)).collect()
    }

    /// The end of the log of the first node that has not started, or of the first node.
    pub(crate) fn relevant_log(&self) -> String {
        let silent = self.nodes.iter().find(|node| !node.log().started());
        silent.or(self.nodes.first()).map_or_else(String::new, |node| log::tail(node.log().path()))
    }

    fn alive(&mut self, number: u8) -> Result<&mut Node, ClusterError> {
        let node = self.find_mut(number)?;
        match node.state() {
            NodeState::Running { .. } | NodeState::Paused { .. } => Ok(node),
            NodeState::Killed | NodeState::Died { .. } => {
                Err(ClusterError::Refused(format!("node {number} does not run: start it")))
            }
        }
    }

    fn node_status(&self, node: &Node) -> NodeStatus {
        let seen = |other: &&Node| node.log().up().contains(&other.peer_address());
        let sees = if node.is_running() {
            self.nodes.iter().filter(seen).map(Node::number).collect()
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

    fn check_up(&mut self, number: u8) -> Result<(), Obstacle> {
        self.check_started(number)?;
        self.check_seen_both_ways(number)?;
        self.check_serves(number)
    }

    fn check_started(&self, number: u8) -> Result<(), Obstacle> {
        let node = self.find(number)?;
        match node.state() {
            NodeState::Running { .. } if node.log().started() => Ok(()),
            NodeState::Running { .. } => yet(format!("node {number} has not started")),
            NodeState::Paused { .. } => yet(format!("node {number} is paused")),
            NodeState::Killed => yet(format!("node {number} was killed")),
            NodeState::Died { how } => Err(Obstacle::Forever(format!(
                "node {number} ended with {how}; {}",
                log::tail(node.log().path())
            ))),
        }
    }

    fn check_seen_both_ways(&self, number: u8) -> Result<(), Obstacle> {
        let node = self.find(number)?;
        for other in &self.nodes {
            if other.number() == number || !other.is_running() {
                continue;
            }
            for (one, two) in [(node, other), (other, node)] {
                if !one.log().up().contains(&two.peer_address()) {
                    return yet(format!(
                        "node {} does not see node {}",
                        one.number(),
                        two.number()
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_serves(&mut self, number: u8) -> Result<(), Obstacle> {
        let others = self.options.nodes - 1;
        let after_first_login = self.was_whole;
        match self.find_mut(number)?.greet(others) {
            Some(Answer::Welcome { peers }) if peers == i64::from(others) => Ok(()),
            Some(Answer::Welcome { .. }) => {
                yet(format!("node {number} does not know the tokens of all others"))
            }
            // The password may have been changed since; it is enough that the node asks for it.
            Some(Answer::PasswordRefused) if after_first_login => Ok(()),
            Some(Answer::PasswordRefused) => {
                yet(format!("node {number} refuses the role cassandra"))
            }
            None => yet(format!("node {number} does not answer CQL")),
        }
    }

    fn check_seen_down(&self, number: u8) -> Result<(), Obstacle> {
        let node = self.find(number)?;
        if node.is_running() && !self.is_mute(number) {
            let message =
                format!("node {number} runs, and links lead from it, so it will not be seen down");
            return Err(Obstacle::Forever(message));
        }
        let sees = |other: &&Node| {
            other.number() != number
                && other.is_running()
                && other.log().up().contains(&node.peer_address())
        };
        match self.nodes.iter().find(sees) {
            Some(other) => yet(format!("node {} still sees node {number} up", other.number())),
            None => Ok(()),
        }
    }

    /// Whether all links from a node are cut, and there are any.
    fn is_mute(&self, number: u8) -> bool {
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
#[error("there is no node {number}: the last is node {last}")]
struct NoSuchNode {
    number: u8,
    last: u8,
}

impl From<NoSuchNode> for ClusterError {
    fn from(error: NoSuchNode) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<NoSuchNode> for Obstacle {
    fn from(error: NoSuchNode) -> Self {
        Self::Forever(error.to_string())
    }
}

fn yet(what: String) -> Result<(), Obstacle> {
    Err(Obstacle::Yet(what))
}

/// Prepares the directory of the cluster for the start of the nodes.
fn prepare(place: &Place, options: &ClusterOptions, old_data: OldData) -> io::Result<()> {
    match old_data {
        OldData::Discard => discard(place)?,
        OldData::Keep => require_same_ring(place, options)?,
    }
    let logs = place.directory().join("logs");
    if logs.exists() {
        fs::remove_dir_all(&logs)?;
    }
    fs::create_dir(&logs)?;
    let configuration = place.configuration();
    fs::create_dir_all(&configuration)?;
    fs::write(configuration.join("logback.xml"), config::LOGBACK)?;
    fs::write(configuration.join("logback-tools.xml"), config::LOGBACK_TOOLS)?;
    fs::write(place.options(), serde_json::to_vec_pretty(options)?)
}

fn discard(place: &Place) -> io::Result<()> {
    for number in 1..=u8::MAX {
        let home = place.node(number);
        if !home.exists() {
            break;
        }
        fs::remove_dir_all(home)?;
    }
    Ok(())
}

/// Data belongs to a number of nodes that know each other by certain addresses; other nodes would
/// not find each other.
fn require_same_ring(place: &Place, options: &ClusterOptions) -> io::Result<()> {
    let text = match fs::read(place.options()) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let old: ClusterOptions = serde_json::from_slice(&text)?;
    if old.disposable || options.disposable {
        return Err(io::Error::other("disposable nodes keep no data: leave out --keep"));
    }
    if (old.nodes, old.peer_address(1)) == (options.nodes, options.peer_address(1)) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the data belongs to {} nodes that know each other as {} and following; start the same \
         nodes, or leave out --keep",
        old.nodes,
        old.peer_address(1)
    )))
}
