//! A cluster that is hurt.

use std::net::SocketAddr;
use std::sync::Arc;

use bakery_lock::schema::{self, CreateOptions, Replication};
use cassandra_cluster::{Cluster, ClusterError, ClusterOptions};
use tokio::task::spawn_blocking;

use support::scene::Scene;
use support::{failure, pace, session_on};

/// Leases a cluster without blocking the runtime.
pub(crate) async fn lease(options: ClusterOptions) -> Cluster {
    failure::explain();
    let cluster =
        spawn_blocking(|| Cluster::lease(options)).await.expect("the task does not panic");
    cluster.unwrap_or_else(|error| panic!("no cluster can be had: {error}"))
}

/// What is seen in the end: a node that is too busy answers too late at first.
pub(crate) async fn seen<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let mut seen = None;
    pace::until(what, async || {
        seen = Box::pin(look()).await;
        seen.is_some()
    })
    .await;
    seen.expect("it was waited for")
}

/// A lease of a cluster, for asynchronous tests.
#[derive(Clone)]
pub(crate) struct Hurt(Arc<Cluster>);

impl Hurt {
    pub(crate) async fn lease(options: ClusterOptions) -> Self {
        Hurt(Arc::new(lease(options).await))
    }

    /// Does something with the cluster that blocks.
    pub(crate) async fn on<T: Send + 'static>(
        &self,
        action: impl FnOnce(&Cluster) -> Result<T, ClusterError> + Send + 'static,
    ) -> T {
        let cluster = Arc::clone(&self.0);
        let done = spawn_blocking(move || action(&cluster)).await.expect("the task does not panic");
        done.unwrap_or_else(|error| panic!("the cluster did not do it: {error}"))
    }

    /// Returns when all nodes run and see each other.
    pub(crate) async fn heal(&self) {
        self.on(Cluster::heal).await;
    }

    /// Where the nodes are.
    pub(crate) fn nodes(&self) -> Vec<SocketAddr> {
        self.0.nodes()
    }

    /// A session, and a keyspace with the tables on all three nodes.
    pub(crate) async fn scene(&self, keyspace: &str, options: CreateOptions) -> Scene {
        let session = session_on(&self.nodes()).await;
        let options = options.replication(Replication::Factor(3));
        schema::create(&session, keyspace, &options).await.expect("the keyspace can be made");
        Scene { session, keyspace: keyspace.to_owned() }
    }
}
