//! The options of a cluster, and the addresses derived from them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::ClusterError;

/// The port of the CQL native protocol, on each node's own address.
pub(crate) const CQL_PORT: u16 = 9042;
/// The port for messages between nodes.
pub(crate) const STORAGE_PORT: u16 = 7000;

/// The number of nodes, their addresses and their settings.
///
/// Two leases with the same name share a cluster only if all their options are equal.
///
/// ```
/// use cassandra_cluster::{ClusterOptions, CommitLog};
///
/// let options = ClusterOptions {
///     nodes: 3,
///     commit_log: CommitLog::Batch,
///     ..ClusterOptions::default()
/// };
/// assert_eq!(options.name, "default");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// The name by which processes find a shared cluster: 1 to 32 lower-case letters, digits and
    /// hyphens. Clusters with different names can run at the same time if their addresses differ.
    /// Default: `default`.
    pub name: String,
    /// The number of nodes, 1 to 5. Default: 1.
    pub nodes: u8,
    /// The last octet of the first node's address: with 11, the nodes are 127.0.0.11, 127.0.0.12
    /// and so on. Default: 1.
    pub first_host: u8,
    /// The number of data centres, from 1 to the number of nodes: the first node is in
    /// `datacenter1`, the second in `datacenter2`, and so on in turn. Default: 1.
    pub datacenters: u8,
    /// When a write reaches the disk. Default: [`CommitLog::Periodic`].
    pub commit_log: CommitLog,
    /// Which clients may connect. Default: [`Authentication::AllowAll`].
    pub authentication: Authentication,
    /// How the nodes reach each other. Default: [`Network::Direct`].
    pub network: Network,
    /// The heap size of each node in MiB, 256 to 4096. A node with a small heap often flushes its
    /// memtables. Default: 256.
    pub heap_mib: u16,
    /// How the nodes' Java compiles hot code. Default: [`Compiler::Quick`].
    pub compiler: Compiler,
    /// Whether nodes keep schema changes in memory instead of flushing them. Creating tables then
    /// takes less than half the time, but a killed node loses these changes and the rows of new
    /// tables. It can't be restarted, and a later cluster can't keep the data. Default: `false`.
    pub disposable: bool,
    /// Additional lines of `cassandra.yaml`: keys, and values in YAML syntax. They override this
    /// crate's own settings. Example: `paxos_variant` with the value `v2`. Default: none.
    pub settings: BTreeMap<String, String>,
    /// The nodes with settable clocks, by number, and by how many seconds their clocks are ahead,
    /// or behind if negative. Use 0 for a clock that is right until
    /// [`Cluster::set_clock`](crate::Cluster::set_clock) changes it. Settable clocks need the JDK's
    /// compiler. Default: none.
    pub clock_offsets: BTreeMap<u8, i32>,
}

/// Cassandra's `commitlog_sync`: when an acknowledged write is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitLog {
    /// Up to ten seconds after the acknowledgement: fast, and Cassandra's own default.
    #[default]
    Periodic,
    /// Before the acknowledgement, which waits up to a millisecond for other writes.
    Group,
    /// Before the acknowledgement, without waiting for other writes.
    Batch,
}

/// How a node's Java compiles hot code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compiler {
    /// In several stages of increasing optimisation, as in production. Use this for measurements.
    Full,
    /// Early and only once: startup and short tests take three fifths of the work, but the node
    /// never reaches full speed.
    #[default]
    Quick,
}

/// Which clients may connect to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authentication {
    /// All clients, without a password.
    #[default]
    AllowAll,
    /// Clients that log in with a role and its password; each role needs permissions. The superuser
    /// `cassandra` with the password `cassandra` can log in as soon as the cluster is up.
    Password,
}

/// How the nodes reach each other. This does not affect clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The nodes connect to each other directly.
    #[default]
    Direct,
    /// The nodes connect through the supervisor, which relays their messages, so that links can be
    /// [cut](crate::Cluster::cut). The other nodes, nodetool and `system.peers.peer` show the node
    /// 127.0.0.N as 127.1.0.N.
    Relayed,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            nodes: 1,
            first_host: 1,
            datacenters: 1,
            commit_log: CommitLog::default(),
            authentication: Authentication::default(),
            network: Network::default(),
            heap_mib: 256,
            compiler: Compiler::default(),
            disposable: false,
            settings: BTreeMap::new(),
            clock_offsets: BTreeMap::new(),
        }
    }
}

impl ClusterOptions {
    /// Rejects invalid options with a message that names the option.
    pub(crate) fn validate(&self) -> Result<(), ClusterError> {
        let reject = |message: String| Err(ClusterError::InvalidOptions(message));
        validate_name(&self.name)?;
        if !(1..=5).contains(&self.nodes) {
            return reject(format!("{} nodes: must be 1 to 5", self.nodes));
        }
        if self.first_host == 0 || u16::from(self.first_host) + u16::from(self.nodes) > 255 {
            return reject(format!(
                "first host {}: the addresses must be from 127.0.0.1 to 127.0.0.254",
                self.first_host
            ));
        }
        if !(1..=self.nodes).contains(&self.datacenters) {
            return reject(format!(
                "{} data centres: must be 1 to {}, the number of nodes",
                self.datacenters, self.nodes
            ));
        }
        if !(256..=4096).contains(&self.heap_mib) {
            return reject(format!("heap of {} MiB: must be 256 to 4096", self.heap_mib));
        }
        for (key, value) in &self.settings {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if key.is_empty() || !key.chars().all(is_plain) {
                return reject(format!("setting {key:?} is not a key of cassandra.yaml"));
            }
            if value.trim().is_empty() || value.contains(['\n', '\r']) {
                return reject(format!("setting {key} needs a single-line value"));
            }
        }
        if let Some(number) = self.clock_offsets.keys().find(|n| !(1..=self.nodes).contains(*n)) {
            return reject(format!("clock of node {number}: there are only {} nodes", self.nodes));
        }
        Ok(())
    }

    /// Describes how these options differ from the requested ones.
    pub(crate) fn differences(&self, wanted: &Self) -> String {
        let pairs = [
            ("nodes", self.nodes.to_string(), wanted.nodes.to_string()),
            ("first host", self.first_host.to_string(), wanted.first_host.to_string()),
            ("data centres", self.datacenters.to_string(), wanted.datacenters.to_string()),
            ("commit log", format!("{:?}", self.commit_log), format!("{:?}", wanted.commit_log)),
            (
                "authentication",
                format!("{:?}", self.authentication),
                format!("{:?}", wanted.authentication),
            ),
            ("network", format!("{:?}", self.network), format!("{:?}", wanted.network)),
            ("heap", format!("{} MiB", self.heap_mib), format!("{} MiB", wanted.heap_mib)),
            ("compiler", format!("{:?}", self.compiler), format!("{:?}", wanted.compiler)),
            ("disposable", self.disposable.to_string(), wanted.disposable.to_string()),
            ("settings", format!("{:?}", self.settings), format!("{:?}", wanted.settings)),
            (
                "clock offsets",
                format!("{:?}", self.clock_offsets),
                format!("{:?}", wanted.clock_offsets),
            ),
        ];
        let differing = pairs.into_iter().filter(|(_, old, new)| old != new);
        let descriptions = differing.map(|(what, old, new)| format!("{what} {old}, not {new}"));
        descriptions.collect::<Vec<_>>().join("; ")
    }

    /// The node numbers, from 1.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.nodes
    }

    /// The address of node `number`. Numbers start at 1.
    pub(crate) fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, self.first_host + number - 1)
    }

    /// The data centre of node `number`.
    pub(crate) fn datacenter(&self, number: u8) -> String {
        format!("datacenter{}", (number - 1) % self.datacenters + 1)
    }

    /// The address by which the other nodes know node `number`.
    pub(crate) fn peer_address(&self, number: u8) -> Ipv4Addr {
        let own = self.address(number);
        match self.network {
            Network::Direct => own,
            Network::Relayed => Ipv4Addr::new(127, 1, 0, own.octets()[3]),
        }
    }

    /// The address on which node `number` listens for other nodes.
    pub(crate) fn storage(&self, number: u8) -> SocketAddr {
        SocketAddr::from((self.address(number), STORAGE_PORT))
    }

    /// The address at which other nodes reach node `number`.
    pub(crate) fn peer(&self, number: u8) -> SocketAddr {
        SocketAddr::from((self.peer_address(number), STORAGE_PORT))
    }

    /// The CQL address of node `number`.
    pub(crate) fn cql(&self, number: u8) -> SocketAddr {
        SocketAddr::from((self.address(number), CQL_PORT))
    }

    /// The JMX address of node `number`. All nodes use 127.0.0.1, so the ports differ.
    pub(crate) fn jmx(&self, number: u8) -> SocketAddr {
        let host = u16::from(self.first_host + number - 1);
        SocketAddr::from((Ipv4Addr::LOCALHOST, 7199 + 100 * (host - 1)))
    }
}

/// Rejects names that are not plain directory names.
pub(crate) fn validate_name(name: &str) -> Result<(), ClusterError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=32).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(ClusterError::InvalidOptions(format!(
        "name {name:?}: must be 1 to 32 lower-case letters, digits and hyphens"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        ClusterOptions::default().validate().unwrap();
    }

    #[test]
    fn addresses_follow_first_host() {
        let options = ClusterOptions { nodes: 3, first_host: 11, ..ClusterOptions::default() };
        assert_eq!(options.cql(1).to_string(), "127.0.0.11:9042");
        assert_eq!(options.cql(3).to_string(), "127.0.0.13:9042");
        assert_eq!(options.jmx(1).to_string(), "127.0.0.1:8199");
        assert_eq!(options.jmx(3).to_string(), "127.0.0.1:8399");
        assert_eq!(ClusterOptions::default().jmx(1).port(), 7199);

        assert_eq!(options.peer(3), options.storage(3));
        let relayed = ClusterOptions { network: Network::Relayed, ..options };
        assert_eq!(relayed.storage(3).to_string(), "127.0.0.13:7000");
        assert_eq!(relayed.peer(3).to_string(), "127.1.0.13:7000");
    }

    #[test]
    fn nodes_are_spread_over_data_centres_in_turn() {
        let options = ClusterOptions { nodes: 3, datacenters: 2, ..ClusterOptions::default() };
        let datacenters = options.numbers().map(|number| options.datacenter(number));
        let expected = ["datacenter1", "datacenter2", "datacenter1"];
        assert_eq!(datacenters.collect::<Vec<_>>(), expected);
        assert_eq!(ClusterOptions { datacenters: 1, ..options }.datacenter(3), "datacenter1");
    }

    #[test]
    fn differences_are_listed() {
        let running = ClusterOptions { nodes: 3, ..ClusterOptions::default() };
        assert_eq!(running.differences(&running), "");
        let wanted = ClusterOptions { commit_log: CommitLog::Batch, ..ClusterOptions::default() };
        assert_eq!(running.differences(&wanted), "nodes 3, not 1; commit log Periodic, not Batch");
    }

    #[test]
    fn invalid_options_are_rejected() {
        let valid = ClusterOptions::default();
        let invalid = [
            ClusterOptions { nodes: 0, ..valid.clone() },
            ClusterOptions { nodes: 6, ..valid.clone() },
            ClusterOptions { first_host: 0, ..valid.clone() },
            ClusterOptions { datacenters: 0, ..valid.clone() },
            ClusterOptions { nodes: 2, datacenters: 3, ..valid.clone() },
            ClusterOptions { heap_mib: 255, ..valid.clone() },
            ClusterOptions { first_host: 254, nodes: 2, ..valid.clone() },
            ClusterOptions { name: String::new(), ..valid.clone() },
            ClusterOptions { name: "../x".to_owned(), ..valid.clone() },
            ClusterOptions { clock_offsets: BTreeMap::from([(2, 3)]), ..valid.clone() },
            ClusterOptions {
                settings: BTreeMap::from([("a: b".to_owned(), "c".to_owned())]),
                ..valid.clone()
            },
            ClusterOptions {
                settings: BTreeMap::from([("a".to_owned(), "b\nc: d".to_owned())]),
                ..valid
            },
        ];
        for options in invalid {
            let error = options.validate().unwrap_err();
            assert!(matches!(error, ClusterError::InvalidOptions(_)), "{options:?}: {error}");
        }
    }
}
