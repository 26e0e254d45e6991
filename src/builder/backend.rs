//! What a client is built on: a cluster or memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use uuid::Uuid;

use super::error::BuildError;
use crate::clock::{Clock, SystemClock};
use crate::driver::host::RegisteredHost;
use crate::entropy::{Entropy, SystemEntropy};
use crate::options::{Consistency, MAX_CLOCK_SKEW};
use crate::setup::hosts::{Host, HostRegistry};
use crate::setup::schema;
#[cfg(feature = "redis")]
use crate::store::Masters;
use crate::store::{CassandraStore, Embedded, Extras, Store};

/// Where the rows live.
#[derive(Clone, Debug)]
pub(super) enum Backend {
    Cassandra {
        session: Arc<Session>,
        keyspace: String,
    },
    Embedded(Embedded),
    #[cfg(feature = "redis")]
    Masters(Masters),
}

/// What a client takes from its backend.
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) max_ttl: Duration,
    pub(super) max_clock_skew: Duration,
    pub(super) lock_table: Uuid,
}

impl Backend {
    /// Opens the store and its surroundings, once the tables have passed their checks.
    pub(super) async fn open(
        &self,
        lock_table: &str,
        consistency: &Consistency,
        peers: bool,
    ) -> Result<Opened, BuildError> {
        match self {
            Backend::Cassandra { session, keyspace } => {
                let facts = schema::read_facts(session, keyspace, lock_table, consistency).await?;
                // Nodes keep a limited number of prepared statements.
                let extras = Extras { peers: peers && facts.extras.peers, ..facts.extras };
                let store = CassandraStore::prepare(
                    Arc::clone(session),
                    &facts.keyspace,
                    &facts.lock_table,
                    consistency,
                    extras,
                );
                let store = store.await?;
                facts.confirm(&store).await?;
                Ok(Opened {
                    store: Arc::new(store).into(),
                    clock: Arc::new(SystemClock::new()),
                    entropy: Arc::new(SystemEntropy),
                    max_ttl: facts.max_ttl,
                    max_clock_skew: facts.max_clock_skew,
                    lock_table: facts.id,
                })
            }
            Backend::Embedded(Embedded { store, clock, entropy, lock_table }) => Ok(Opened {
                store: store.clone(),
                clock: Arc::clone(clock),
                entropy: Arc::clone(entropy),
                max_ttl: Embedded::MAX_TTL,
                max_clock_skew: MAX_CLOCK_SKEW,
                lock_table: *lock_table,
            }),
            #[cfg(feature = "redis")]
            Backend::Masters(masters) => {
                let store = crate::setup::masters::open(masters, lock_table).await?;
                let settings = store.settings();
                Ok(Opened {
                    lock_table: store.id(),
                    store: store.into(),
                    clock: Arc::new(SystemClock::new()),
                    entropy: Arc::new(SystemEntropy),
                    max_ttl: settings.max_ttl,
                    max_clock_skew: settings.max_clock_skew,
                })
            }
        }
    }

    /// Adds a host to the registry; `None` if it was removed from it.
    pub(super) async fn register(
        &self,
        host_name: &str,
        lock_table: &str,
    ) -> Result<Option<RegisteredHost>, BuildError> {
        #[cfg(not(feature = "redis"))]
        let _ = lock_table;
        let registry = match self {
            Backend::Cassandra { session, keyspace } => {
                HostRegistry::new(Arc::clone(session), keyspace).await?
            }
            Backend::Embedded(embedded) => HostRegistry::embedded(embedded.clone()),
            #[cfg(feature = "redis")]
            Backend::Masters(masters) => HostRegistry::on_masters(masters, lock_table).await?,
        };
        let host = registry.register(host_name).await;
        registry.close().await;
        Ok(host?.as_ref().map(Host::registered))
    }

    /// The error for a client on an unregistered host.
    pub(super) fn unknown_host(&self, host: String) -> BuildError {
        BuildError::UnknownHost { host, keyspace: self.keyspace() }
    }

    /// The error for a client on a removed host.
    pub(super) fn removed_host(&self, host: String) -> BuildError {
        BuildError::HostRemoved { host, keyspace: self.keyspace() }
    }

    /// Where the driver reaches the nodes, those with a connection first. A store in memory has
    /// none.
    pub(super) fn node_addresses(&self) -> Vec<SocketAddr> {
        let session = match self {
            Backend::Cassandra { session, .. } => session,
            Backend::Embedded(_) => return Vec::new(),
            #[cfg(feature = "redis")]
            Backend::Masters(masters) => return masters.socket_addresses().to_vec(),
        };
        let state = session.get_cluster_state();
        let mut nodes: Vec<_> = state.get_nodes_info().iter().collect();
        nodes.sort_by_key(|node| !node.is_connected());
        let addresses = nodes.iter().map(|node| &node.address);
        addresses.map(|address| SocketAddr::new(address.ip(), address.port())).collect()
    }

    /// The keyspace, for display.
    pub(super) fn keyspace(&self) -> String {
        match self {
            Backend::Cassandra { keyspace, .. } => keyspace.clone(),
            Backend::Embedded(_) => "(in memory)".to_owned(),
            #[cfg(feature = "redis")]
            Backend::Masters(_) => super::error::ON_MASTERS.to_owned(),
        }
    }
}
