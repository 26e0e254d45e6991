//! Replication, and the quorums that it allows.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::options::Consistency;
use crate::store::{Identifier, KeyspaceFacts};

/// How many copies of each row a new keyspace keeps, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replication {
    /// This many in each data centre that the cluster has now.
    Factor(u32),
    /// This many in each named data centre, none elsewhere.
    PerDatacenter(BTreeMap<String, u32>),
}

impl Replication {
    /// The finding if a keyspace differs from this.
    pub(super) fn difference(
        &self,
        keyspace: &Identifier,
        facts: &KeyspaceFacts,
        datacenters: &BTreeMap<String, u32>,
    ) -> Option<Finding> {
        let wanted = self.strategy(datacenters);
        (Strategy::parse(&facts.replication) != wanted).then(|| {
            let wanted = self.per_datacenter(datacenters);
            let found = format!("its replication is {:?}, not {wanted:?}", facts.replication);
            let advice = "leave the replication away to use it as it is, or stop all clients for \
                          the longest ttl of the table, alter the keyspace and repair it";
            Finding::error(format!("keyspace {keyspace}"), found, advice)
        })
    }

    /// Findings about named data centres that the cluster does not have.
    pub(super) fn unknown(&self, datacenters: &BTreeMap<String, u32>) -> Vec<Finding> {
        let Replication::PerDatacenter(factors) = self else { return Vec::new() };
        let unknown = factors.keys().filter(|name| !datacenters.contains_key(*name));
        let finding = |name: &String| {
            let advice = "name those that there are: DC=N for each that keeps replicas";
            Finding::error("replication", no_datacenter(name, datacenters), advice)
        };
        unknown.map(finding).collect()
    }

    /// The map in CQL.
    pub(super) fn cql(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let factors = match self {
            Replication::Factor(factor) => vec![format!("'replication_factor': '{factor}'")],
            Replication::PerDatacenter(factors) => {
                factors.iter().map(|(name, n)| format!("{}: '{n}'", quoted(name))).collect()
            }
        };
        format!("{{'class': 'NetworkTopologyStrategy', {}}}", factors.join(", "))
    }

    /// The strategy of a keyspace with this replication.
    pub(super) fn strategy(&self, datacenters: &BTreeMap<String, u32>) -> Strategy {
        Strategy::PerDatacenter(self.per_datacenter(datacenters))
    }

    /// How many copies each data centre keeps.
    fn per_datacenter(&self, datacenters: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        match self {
            Replication::Factor(factor) => {
                datacenters.keys().map(|name| (name.clone(), *factor)).collect()
            }
            Replication::PerDatacenter(factors) => factors.clone(),
        }
    }
}

/// How a keyspace is replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// This many copies in each data centre.
    PerDatacenter(BTreeMap<String, u32>),
    /// This many copies, in any data centre.
    Simple(u32),
    /// A strategy without countable quorums.
    Other(String),
}

impl Strategy {
    /// Parses the map of the system tables.
    pub(super) fn parse(replication: &BTreeMap<String, String>) -> Self {
        let other = || Strategy::Other(format!("{replication:?}"));
        let class = replication.get("class").map_or("", String::as_str);
        let mut factors = replication.iter().filter(|(key, _)| *key != "class");
        match class.rsplit('.').next() {
            Some("NetworkTopologyStrategy") => {
                let factor =
                    |(name, factor): (&String, &String)| Some((name.clone(), factor.parse().ok()?));
                factors.map(factor).collect::<Option<_>>().map_or_else(other, Self::PerDatacenter)
            }
            Some("SimpleStrategy") => {
                let factor = factors.find(|(key, _)| *key == "replication_factor");
                let factor = factor.and_then(|(_, factor)| factor.parse().ok());
                factor.map_or_else(other, Self::Simple)
            }
            Some(_) | None => other(),
        }
    }
}

/// How many replicas are configured, how many have a node, and how many must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quorum {
    /// The replication factor, of all data centres or of the one that counts.
    pub(super) replicas: u32,
    /// How many of them there are nodes for.
    pub(super) placed: u32,
    /// How many must answer.
    pub(super) required: u32,
}

impl Quorum {
    /// The quorum of a keyspace, given the number of nodes of each data centre, or why it has none.
    pub(super) fn of(
        strategy: &Strategy,
        consistency: &Consistency,
        datacenters: &BTreeMap<String, u32>,
    ) -> Result<Self, String> {
        let nodes = |name: &String| datacenters.get(name).copied().unwrap_or(0);
        let (replicas, placed) = match (strategy, consistency) {
            (Strategy::Other(found), _) => return Err(format!("{found} has no quorums")),
            (Strategy::Simple(factor), Consistency::Quorum) => {
                (*factor, datacenters.values().sum::<u32>().min(*factor))
            }
            (Strategy::Simple(_), Consistency::LocalQuorum(_)) => {
                return Err("SimpleStrategy knows no data centres, so none has a quorum".to_owned());
            }
            (Strategy::PerDatacenter(factors), Consistency::Quorum) => {
                let placed = factors.iter().map(|(name, factor)| nodes(name).min(*factor));
                (factors.values().sum(), placed.sum())
            }
            (Strategy::PerDatacenter(factors), Consistency::LocalQuorum(name)) => {
                if !datacenters.contains_key(name) {
                    return Err(no_datacenter(name, datacenters));
                }
                let factor = factors.get(name).copied().unwrap_or(0);
                (factor, nodes(name).min(factor))
            }
        };
        if replicas == 0 {
            return Err(match consistency {
                Consistency::Quorum => "it has no replicas".to_owned(),
                Consistency::LocalQuorum(name) => format!("data centre {name:?} has no replicas"),
            });
        }
        let required = replicas / 2 + 1;
        if placed < required {
            return Err(format!(
                "{required} of {replicas} replicas must answer, but there are nodes for {placed}"
            ));
        }
        Ok(Quorum { replicas, placed, required })
    }

    /// The finding if there are too few nodes to make a table in a keyspace with tablets.
    pub(super) fn unplaced(self, keyspace: &Identifier) -> Option<Finding> {
        let Quorum { replicas, placed, .. } = self;
        (placed < replicas).then(|| {
            let found = format!(
                "{replicas} replicas need a node each, and there are nodes for {placed} of them \
                 only: with tablets ScyllaDB makes no table there"
            );
            let advice = format!(
                "add nodes, or use a lower replication factor (if keyspace {keyspace} is there, \
                 without tables, drop it first), or create the keyspace yourself, with tablets = \
                 {{'enabled': false}}"
            );
            Finding::error("replication", found, advice)
        })
    }

    /// The finding about the quorum.
    pub(super) fn finding(self) -> Finding {
        let Quorum { replicas, placed, required } = self;
        let found = format!("{required} of {replicas} replicas must answer");
        if placed < replicas {
            let found = format!("{found}, and there are nodes for {placed} of them only");
            let advice = "add nodes; or stop all clients, and lower the replication factor";
            Finding::warning("replication", found, advice)
        } else if replicas - required == 0 {
            let advice = "stop all clients, and raise the replication factor to 3, so that a node \
                          may fail";
            Finding::warning("replication", format!("{found}, so no node may fail"), advice)
        } else {
            Finding::ok("replication", found)
        }
    }
}

fn no_datacenter(name: &str, datacenters: &BTreeMap<String, u32>) -> String {
    let known = datacenters.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("there is no data centre {name:?}, only {known}")
}

/// The finding that no quorum is possible, and why.
pub(super) fn unserved(keyspace: &Identifier, found: String) -> Finding {
    let advice =
        format!("stop all clients and alter the replication of keyspace {keyspace}, or add nodes");
    Finding::error("replication", found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<T>(entries: impl IntoIterator<Item = (&'static str, T)>) -> BTreeMap<String, T> {
        entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn strategy(entries: &[(&'static str, &str)]) -> Strategy {
        Strategy::parse(&map(entries.iter().map(|(name, value)| (*name, (*value).to_owned()))))
    }

    const NETWORK: (&str, &str) = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");

    #[test]
    fn strategies_are_read() {
        let factors = map([("dc1", 3), ("dc2", 2)]);
        let read = strategy(&[NETWORK, ("dc1", "3"), ("dc2", "2")]);
        assert_eq!(read, Strategy::PerDatacenter(factors));
        let simple = ("class", "org.apache.cassandra.locator.SimpleStrategy");
        assert_eq!(strategy(&[simple, ("replication_factor", "3")]), Strategy::Simple(3));
        let transient = strategy(&[NETWORK, ("dc1", "3/1")]);
        assert!(matches!(transient, Strategy::Other(_)), "{transient:?}");
        let local = strategy(&[("class", "org.apache.cassandra.locator.LocalStrategy")]);
        assert!(matches!(local, Strategy::Other(_)), "{local:?}");
    }

    #[test]
    fn quorums_are_counted() {
        let nodes = map([("dc1", 3), ("dc2", 3)]);
        let both = strategy(&[NETWORK, ("dc1", "3"), ("dc2", "3")]);
        let local = |name: &str| Consistency::LocalQuorum(name.to_owned());
        let quorum = |replicas, placed, required| Ok(Quorum { replicas, placed, required });
        let of = |strategy: &Strategy, level: &Consistency| Quorum::of(strategy, level, &nodes);
        assert_eq!(of(&both, &Consistency::Quorum), quorum(6, 6, 4));
        assert_eq!(of(&both, &local("dc2")), quorum(3, 3, 2));
        assert_eq!(of(&Strategy::Simple(3), &Consistency::Quorum), quorum(3, 3, 2));
        let five = strategy(&[NETWORK, ("dc1", "5")]);
        assert_eq!(of(&five, &Consistency::Quorum), quorum(5, 3, 3));

        let refused = |strategy: &Strategy, level: &Consistency| {
            of(strategy, level).expect_err("this has no quorum")
        };
        assert!(refused(&both, &local("dc3")).contains("only dc1, dc2"));
        assert!(refused(&five, &local("dc2")).contains("no replicas"));
        assert!(refused(&Strategy::Simple(3), &local("dc1")).contains("SimpleStrategy"));
        let seven = strategy(&[NETWORK, ("dc1", "7")]);
        assert!(refused(&seven, &Consistency::Quorum).contains("nodes for 3"));
        assert!(refused(&strategy(&[NETWORK]), &Consistency::Quorum).contains("no replicas"));
    }

    // Goal: that nodes are too few for a table is found, with a way out for a new keyspace and for
    // one that was left without tables.
    // Method: fewer nodes than replicas, in one data centre and in one of two, and as many.
    #[test]
    fn replicas_without_nodes_are_found() {
        let keyspace = Identifier::keyspace("k").expect("k is an identifier");
        let nodes = map([("dc1", 2), ("dc2", 1)]);
        let unplaced = |factors| {
            let strategy = Strategy::PerDatacenter(map(factors));
            let quorum = Quorum::of(&strategy, &Consistency::Quorum, &nodes);
            quorum.expect("a quorum has nodes").unplaced(&keyspace)
        };
        assert_eq!(unplaced(vec![("dc1", 2), ("dc2", 1)]), None);
        let two = vec![("dc1", 2), ("dc2", 2)];
        for (factors, replicas, placed) in [(vec![("dc1", 3)], 3, 2), (two, 4, 3)] {
            let finding = unplaced(factors).expect("there are too few nodes");
            let counts = format!(
                "{replicas} replicas need a node each, and there are nodes for {placed} of them"
            );
            assert!(finding.found.starts_with(&counts), "{finding}");
            let advice = finding.advice.expect("what is wrong has an advice");
            for way in ["add nodes", "a lower replication factor", "drop it first", "'enabled'"] {
                assert!(advice.contains(way), "{advice}");
            }
        }
    }

    #[test]
    fn unknown_data_centres_are_named_with_known_ones() {
        let nodes = map([("dc1", 3), ("dc2", 3)]);
        let unknown = |factors| Replication::PerDatacenter(map(factors)).unknown(&nodes);
        assert_eq!(unknown([("dc1", 3), ("dc2", 1)]), []);
        assert_eq!(Replication::Factor(3).unknown(&nodes), []);
        let findings = unknown([("dc1", 3), ("DC2", 3)]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].found, "there is no data centre \"DC2\", only dc1, dc2");
    }

    #[test]
    fn replication_in_cql_stays_within_its_quotes() {
        assert_eq!(
            Replication::Factor(3).cql(),
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': '3'}"
        );
        let factors = map([("d'c", 3)]);
        assert_eq!(
            Replication::PerDatacenter(factors).cql(),
            "{'class': 'NetworkTopologyStrategy', 'd''c': '3'}"
        );
    }
}
