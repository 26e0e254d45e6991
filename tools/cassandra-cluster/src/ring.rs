//! The nodes of one run of a cluster, and what they have reached together.

use std::fs;
use std::io;

use crate::config;
use crate::cql::Answer;
use crate::log;
use crate::node::Node;
use crate::place::Place;
use crate::protocol::{NodeState, NodeStatus, OldData};
use crate::{ClusterError, ClusterOptions};

/// The nodes of a running cluster. Dropping it leaves them running: see [`Ring::stop`].
#[derive(Debug)]
pub(crate) struct Ring {
    place: Place,
    options: ClusterOptions,
    nodes: Vec<Node>,
    was_whole: bool,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// All nodes run, see each other and let clients in.
    Whole,
    /// The node lets clients in, sees all others that run, and is seen by them.
    Up(u8),
    /// None of the other nodes that run takes the node for alive.
    SeenDown(u8),
}

/// How far a [`Goal`] is.
#[derive(Debug)]
pub(crate) enum Progress {
    Reached,
    /// Waiting may help. The text says what is missing.
    Lacking(String),
    /// Waiting does not help.
    Hopeless(String),
}

impl Ring {
    /// Writes the configuration and starts all nodes at once.
    ///
    /// # Errors
    ///
    /// Whatever kept a node from being started; those started before it are stopped again.
    pub(crate) fn start(
        place: Place,
        options: ClusterOptions,
        old_data: OldData,
    ) -> Result<Self, ClusterError> {
        options.validate()?;
        prepare(&place, &options, old_data).map_err(ClusterError::io(format!(
            "prepare {}",
            place.directory().display()
        )))?;
        let nodes = options
            .numbers()
            .map(|number| Node::new(&place, &options, number))
            .collect();
        let mut ring = Self {
            place,
            options,
            nodes,
            was_whole: false,
        };
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
                // The kernel does it when the supervisor ends.
                eprintln!("{error}");
            }
        }
    }

    pub(crate) fn kill(&mut self, number: u8) -> Result<(), ClusterError> {
        self.node(number)?.kill()
    }

    pub(crate) fn pause(&mut self, number: u8) -> Result<(), ClusterError> {
        let node = self.node(number)?;
        if !matches!(
            node.state(),
            NodeState::Running { .. } | NodeState::Paused { .. }
        ) {
            return Err(not_alive(number));
        }
        node.pause()
    }

    pub(crate) fn resume(&mut self, number: u8) -> Result<(), ClusterError> {
        let node = self.node(number)?;
        if !matches!(
            node.state(),
            NodeState::Running { .. } | NodeState::Paused { .. }
        ) {
            return Err(not_alive(number));
        }
        node.resume()
    }

    /// Starts a node that was killed or died; does nothing to one that runs.
    pub(crate) fn start_node(&mut self, number: u8) -> Result<(), ClusterError> {
        match self.node(number)?.state() {
            NodeState::Running { .. } => return Ok(()),
            NodeState::Paused { .. } => {
                return Err(ClusterError::Refused(format!(
                    "node {number} is paused: resume it instead"
                )));
            }
            NodeState::Killed | NodeState::Died { .. } => {}
        }
        let address = self.options.address(number);
        for node in &mut self.nodes {
            if node.address() == address {
                node.spawn(&self.place, &self.options)?;
            } else {
                node.log_mut().forget(address);
            }
        }
        Ok(())
    }

    /// Resumes and starts whatever does not run.
    pub(crate) fn heal(&mut self) -> Result<(), ClusterError> {
        for number in self.options.numbers() {
            match self.node(number)?.state() {
                NodeState::Running { .. } => {}
                NodeState::Paused { .. } => self.resume(number)?,
                NodeState::Killed | NodeState::Died { .. } => self.start_node(number)?,
            }
        }
        Ok(())
    }

    /// Takes notice of processes that ended and of what the logs say.
    pub(crate) fn observe(&mut self) {
        for node in &mut self.nodes {
            node.reap();
            node.log_mut().read();
        }
    }

    /// How far a goal is. Call [`Ring::observe`] before.
    pub(crate) fn progress(&mut self, goal: Goal) -> Progress {
        match goal {
            Goal::Whole => self.whole(),
            Goal::Up(number) => self.up(number),
            Goal::SeenDown(number) => self.seen_down(number),
        }
    }

    pub(crate) fn node_statuses(&self) -> Vec<NodeStatus> {
        self.nodes
            .iter()
            .map(|node| self.node_status(node))
            .collect()
    }

    /// The end of the log of the first node that has not started, or of the first node.
    pub(crate) fn telling_log(&self) -> String {
        let silent = self.nodes.iter().find(|node| !node.log().started());
        silent
            .or(self.nodes.first())
            .map_or_else(String::new, |node| log::tail(node.log().path()))
    }

    fn node(&mut self, number: u8) -> Result<&mut Node, ClusterError> {
        let nodes = self.options.nodes;
        self.nodes
            .iter_mut()
            .find(|node| node.number() == number)
            .ok_or_else(|| {
                ClusterError::Refused(format!(
                    "there is no node {number}: the last is node {nodes}"
                ))
            })
    }

    fn node_status(&self, node: &Node) -> NodeStatus {
        let seen = |other: &&Node| node.log().up().contains(&other.address());
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

    fn whole(&mut self) -> Progress {
        for number in self.options.numbers() {
            match self.up(number) {
                Progress::Reached => {}
                other => return other,
            }
        }
        self.was_whole = true;
        Progress::Reached
    }

    fn up(&mut self, number: u8) -> Progress {
        let after_first_login = self.was_whole;
        let node = match self.node(number) {
            Ok(node) => node,
            Err(error) => return Progress::Hopeless(error.to_string()),
        };
        match node.state() {
            NodeState::Running { .. } => {}
            NodeState::Died { how } => {
                let tail = log::tail(node.log().path());
                return Progress::Hopeless(format!("node {number} ended with {how}; {tail}"));
            }
            NodeState::Killed => return Progress::Lacking(format!("node {number} was killed")),
            NodeState::Paused { .. } => {
                return Progress::Lacking(format!("node {number} is paused"));
            }
        }
        if !node.log().started() {
            return Progress::Lacking(format!("node {number} has not started"));
        }
        // Later the password may have been changed, and being asked for it is enough.
        match node.greet() {
            Some(Answer::Welcome) => {}
            Some(Answer::PasswordRefused) if after_first_login => {}
            Some(Answer::PasswordRefused) => {
                return Progress::Lacking(format!("node {number} has no role `cassandra` yet"));
            }
            None => return Progress::Lacking(format!("node {number} does not answer CQL")),
        }
        self.seen_both_ways(number)
    }

    fn seen_both_ways(&self, number: u8) -> Progress {
        let address = self.options.address(number);
        let mut running = self.nodes.iter().filter(|node| node.is_running());
        let Some(node) = running.clone().find(|node| node.number() == number) else {
            return Progress::Lacking(format!("node {number} does not run"));
        };
        let stranger = running.find_map(|other| {
            if other.number() == number {
                None
            } else if !other.log().up().contains(&address) {
                Some((other.number(), number))
            } else if !node.log().up().contains(&other.address()) {
                Some((number, other.number()))
            } else {
                None
            }
        });
        match stranger {
            Some((one, two)) => Progress::Lacking(format!("node {one} does not see node {two}")),
            None => Progress::Reached,
        }
    }

    fn seen_down(&self, number: u8) -> Progress {
        let address = self.options.address(number);
        let Some(node) = self.nodes.iter().find(|node| node.number() == number) else {
            return Progress::Hopeless(format!("there is no node {number}"));
        };
        if node.is_running() {
            return Progress::Hopeless(format!("node {number} runs, so nobody sees it down"));
        }
        let deceived = self
            .nodes
            .iter()
            .find(|other| other.is_running() && other.log().up().contains(&address));
        match deceived {
            Some(other) => Progress::Lacking(format!(
                "node {} still takes node {number} for alive",
                other.number()
            )),
            None => Progress::Reached,
        }
    }
}

/// Puts the directory of the cluster in the state the nodes start from.
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
    fs::write(
        configuration.join("logback-tools.xml"),
        config::LOGBACK_TOOLS,
    )?;
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

/// Data belongs to a number of nodes at certain addresses; other nodes would not find each other.
fn require_same_ring(place: &Place, options: &ClusterOptions) -> io::Result<()> {
    let text = match fs::read(place.options()) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let old: ClusterOptions = serde_json::from_slice(&text)?;
    if (old.nodes, old.first_host) == (options.nodes, options.first_host) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the data is of {} nodes from 127.0.0.{}; start the same again, or leave out --keep",
        old.nodes, old.first_host
    )))
}

fn not_alive(number: u8) -> ClusterError {
    ClusterError::Refused(format!("node {number} does not run: start it"))
}
