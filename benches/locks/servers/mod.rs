//! The servers that sides run on: started, warmed by use, made to fail, and stopped by the bench.

pub(crate) mod cassandra;
pub(crate) mod etcd;
pub(crate) mod facts;
pub(crate) mod process;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod zookeeper;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use common::cluster::TestCluster;

use crate::arguments::Arguments;
use crate::servers::facts::Facts;
use crate::servers::process::ServerProcess;
use crate::servers::relay::Relay;
use crate::sides::{Kind, System};

/// How many of each kind.
const SERVERS: usize = 3;

/// All servers of a run.
pub(crate) struct Servers {
    cassandra: Option<TestCluster>,
    etcd: Vec<ServerProcess>,
    zookeeper: Vec<ServerProcess>,
    redis: Vec<ServerProcess>,
    /// In front of each Redis server, where it is to be farther away.
    relays: Vec<Relay>,
    facts: Vec<Facts>,
}

/// A server that can be made to fail.
pub(crate) enum Member<'a> {
    /// A node of the cluster, by its place from 0.
    Node(&'a mut TestCluster, usize),
    Process(&'a mut ServerProcess),
}

impl Member<'_> {
    /// Kills it with `SIGKILL`.
    pub(crate) fn kill(self) -> Result<()> {
        match self {
            Member::Node(cluster, node) => cluster.kill(node),
            Member::Process(process) => process.kill(),
        }
    }

    /// Starts it again once it is killed, and does not wait until it answers.
    pub(crate) fn start_again(self) -> Result<()> {
        match self {
            Member::Node(cluster, node) => cluster.start_again(node),
            Member::Process(process) => process.start_again(),
        }
    }

    /// Freezes it: its connections stay open, and nothing answers.
    pub(crate) fn pause(self) -> Result<()> {
        match self {
            Member::Node(cluster, node) => cluster.pause(node),
            Member::Process(process) => process.pause(),
        }
    }

    /// Lets it continue.
    pub(crate) fn resume(self) -> Result<()> {
        match self {
            Member::Node(cluster, node) => cluster.resume(node),
            Member::Process(process) => process.resume(),
        }
    }
}

/// Fails if the servers of a kind are not installed.
pub(crate) fn check_installed(kind: Kind) -> Result<()> {
    let file = match kind.system() {
        // Its tools fetch it.
        System::Cassandra => return Ok(()),
        System::Etcd => etcd::PROGRAM,
        System::Zookeeper => zookeeper::JAR,
        System::Redis => redis::PROGRAM,
    };
    let label = kind.label();
    ensure!(Path::new(file).exists(), "{label}: no {file}; install it: scripts/benchmark-servers");
    Ok(())
}

impl Servers {
    /// Starts what these kinds need, with their data below a directory.
    pub(crate) async fn start(
        kinds: &[Kind],
        arguments: &Arguments,
        directory: &Path,
    ) -> Result<Self> {
        let &Arguments { ref nodes, durability, redis_delay, .. } = arguments;
        let needs = |system| kinds.iter().any(|kind| kind.system() == system);
        let mut servers = Servers {
            cassandra: None,
            etcd: Vec::new(),
            zookeeper: Vec::new(),
            redis: Vec::new(),
            relays: Vec::new(),
            facts: Vec::new(),
        };
        if needs(System::Cassandra) {
            let cassandra = cassandra::open(nodes, durability).await?;
            let (version, number) = (cassandra.version().await?, cassandra.nodes().len());
            servers.facts.push(if cassandra.is_own() {
                Facts::of(System::Cassandra, version, number, durability)
            } else {
                Facts::of_given(version, number)
            });
            servers.cassandra = Some(cassandra);
        }
        if needs(System::Etcd) {
            servers.etcd = etcd::start(directory, SERVERS).await?;
            let version = etcd::installed_version()?;
            servers.facts.push(Facts::of(System::Etcd, version, SERVERS, durability));
        }
        if needs(System::Zookeeper) {
            servers.zookeeper = zookeeper::start(directory, SERVERS).await?;
            let version = zookeeper::version(&servers.zookeeper[0]).await?;
            servers.facts.push(Facts::of(System::Zookeeper, version, SERVERS, durability));
        }
        if needs(System::Redis) {
            servers.redis = redis::start(directory, SERVERS, durability).await?;
            let version = redis::installed_version()?;
            let mut facts = Facts::of(System::Redis, version, SERVERS, durability);
            if !redis_delay.is_zero() {
                servers.relays = redis::relays(&servers.redis, redis_delay)?;
                let [direct, relayed] = redis::round_trips(&servers.redis[0], &servers.relays[0])?;
                facts.settings.push_str(&format!(
                    "; relays make each round trip {redis_delay:?} longer: a PING takes \
                     {direct:.0?}, with a relay {relayed:.0?}"
                ));
            }
            servers.facts.push(facts);
        }
        Ok(servers)
    }

    pub(crate) fn facts(&self) -> &[Facts] {
        &self.facts
    }

    pub(crate) fn cassandra(&self) -> Option<&TestCluster> {
        self.cassandra.as_ref()
    }

    /// Where the servers of a kind of lock are.
    pub(crate) fn addresses(&self, kind: Kind) -> Vec<String> {
        let of = |servers: &[ServerProcess]| {
            servers.iter().map(|server| server.listens().to_string()).collect()
        };
        match kind.system() {
            System::Cassandra => {
                self.cassandra.as_ref().map(|it| it.nodes().to_vec()).unwrap_or_default()
            }
            System::Etcd => of(&self.etcd),
            System::Zookeeper => of(&self.zookeeper),
            System::Redis if !self.relays.is_empty() => {
                self.relays.iter().map(|relay| relay.listens().to_string()).collect()
            }
            System::Redis => of(&self.redis),
        }
    }

    /// Makes a lock table of our lock on Redis; the default one without a name.
    pub(crate) async fn make_lock_table(&self, name: Option<&str>) -> Result<()> {
        redis::make_lock_table(&self.redis, name).await
    }

    /// The processor time that the servers have used; `None` if they are not the bench's own.
    pub(crate) fn processor_time(&self, system: System) -> Result<Option<Duration>> {
        match (system, &self.cassandra) {
            (System::Cassandra, Some(cassandra)) => cassandra.processor_time(),
            (System::Cassandra, None) => Ok(None),
            (System::Etcd | System::Zookeeper | System::Redis, _) => self
                .processes(system)
                .iter()
                .map(ServerProcess::processor_time)
                .sum::<Result<_>>()
                .map(Some),
        }
    }

    /// The processor time that the servers have used, and how many requests they have had, where
    /// only they can tell.
    pub(crate) async fn load(&self, system: System) -> Result<(Option<Duration>, Option<u64>)> {
        let mut requests = None;
        for server in self.processes(system) {
            let asked = match system {
                System::Zookeeper => zookeeper::requests(server).await?,
                System::Redis => redis::requests(server).await?,
                System::Cassandra | System::Etcd => break,
            };
            requests = Some(requests.unwrap_or(0) + asked);
        }
        Ok((self.processor_time(system)?, requests))
    }

    /// The server whose failure weighs most: the leader where there is one.
    pub(crate) async fn victim(&self, system: System) -> Result<usize> {
        let leader = match system {
            System::Cassandra | System::Redis => Some(0),
            System::Etcd => etcd::leader(&self.etcd).await?,
            System::Zookeeper => zookeeper::leader(&self.zookeeper).await?,
        };
        leader.with_context(|| format!("{} has no leader", system.label()))
    }

    /// Whether servers can be made to fail: only the bench's own ones.
    pub(crate) fn can_fail(&self, system: System) -> bool {
        system != System::Cassandra || self.cassandra.as_ref().is_some_and(TestCluster::is_own)
    }

    /// One of the servers, to make it fail.
    pub(crate) fn member(&mut self, system: System, server: usize) -> Result<Member<'_>> {
        let servers = match system {
            System::Cassandra => return Ok(Member::Node(self.own()?, server)),
            System::Etcd => &mut self.etcd,
            System::Zookeeper => &mut self.zookeeper,
            System::Redis => &mut self.redis,
        };
        Ok(Member::Process(servers.get_mut(server).context("there are three servers")?))
    }

    /// Waits until all servers answer and have a leader.
    pub(crate) async fn heal(&mut self, system: System) -> Result<()> {
        match system {
            System::Cassandra => self.own()?.heal().await,
            System::Etcd => {
                process::until("etcd has a leader", async || {
                    Ok(etcd::leader(&self.etcd).await?.is_some())
                })
                .await
            }
            System::Zookeeper => {
                process::until("ZooKeeper has a leader", async || {
                    Ok(zookeeper::leader(&self.zookeeper).await?.is_some())
                })
                .await
            }
            System::Redis => {
                process::until("Redis answers", async || {
                    for server in &self.redis {
                        redis::requests(server).await?;
                    }
                    Ok(true)
                })
                .await
            }
        }
    }

    /// Stops all servers, and leaves nothing on those that are not the bench's own.
    pub(crate) async fn stop(self) -> Result<()> {
        if let Some(cassandra) = &self.cassandra {
            cassandra.drop_keyspace().await?;
        }
        Ok(())
    }

    fn processes(&self, system: System) -> &[ServerProcess] {
        match system {
            System::Cassandra => &[],
            System::Etcd => &self.etcd,
            System::Zookeeper => &self.zookeeper,
            System::Redis => &self.redis,
        }
    }

    fn own(&mut self) -> Result<&mut TestCluster> {
        self.cassandra.as_mut().context("Cassandra was started")
    }
}
