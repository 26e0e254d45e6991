//! A real cluster of three nodes, which are as far apart as they are told to be.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bakery_lock_instrumented::schema::{self, CreateOptions, Replication};
use bakery_lock_instrumented::{LockClient, LockClientBuilder};
use cassandra_cluster::{Cluster, ClusterOptions, Compiler, Network};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const KEYSPACE: &str = "bakery_lock_latency";

/// How long the schema may take on a busy machine.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct TestCluster {
    cluster: Arc<Cluster>,
    session: Arc<Session>,
    write: PreparedStatement,
    row_read: PreparedStatement,
    object_read: PreparedStatement,
}

impl TestCluster {
    pub(super) async fn start() -> Result<Self> {
        let options = ClusterOptions {
            name: "latency".to_owned(),
            nodes: 3,
            first_host: 71,
            network: Network::Relayed,
            heap_mib: 512,
            compiler: Compiler::Full,
            ..ClusterOptions::default()
        };
        let cluster = tokio::task::spawn_blocking(|| Cluster::lease(options)).await??;
        let session = SessionBuilder::new()
            .known_nodes_addr(cluster.nodes())
            .schema_agreement_timeout(SCHEMA_TIMEOUT)
            .build()
            .await?;
        session.query_unpaged(format!("DROP KEYSPACE IF EXISTS {KEYSPACE}"), ()).await?;
        let options = CreateOptions::new().replication(Replication::Factor(3));
        schema::create(&session, KEYSPACE, &options).await?;
        let prepare = async |cql: &str| -> Result<PreparedStatement> {
            let cql = cql.replace("{table}", &format!("{KEYSPACE}.lock_table"));
            let mut statement = session.prepare(cql).await?;
            statement.set_consistency(Consistency::Quorum);
            Ok(statement)
        };
        // The rows of a contender, as the library writes and reads them.
        let write = prepare(
            "INSERT INTO {table} (object_name, row_name, host, client, slot, state, about) \
             VALUES (?, 'entering::', 1, ?, 0, (1, 0, null, null, null), ('bench', null, null)) \
             USING TTL 60",
        );
        let row_read = prepare(
            "SELECT row_name, state, about FROM {table} WHERE object_name = ? \
             AND row_name = 'entering::' AND host = 1 AND client = ? AND slot = 0",
        );
        let object_read = prepare(
            "SELECT row_name, host, client, slot, state, about FROM {table} WHERE object_name = ?",
        );
        let (write, row_read, object_read) = (write.await?, row_read.await?, object_read.await?);
        let (cluster, session) = (Arc::new(cluster), Arc::new(session));
        Ok(TestCluster { cluster, session, write, row_read, object_read })
    }

    pub(super) fn client_builder(&self) -> LockClientBuilder {
        LockClient::builder(Arc::clone(&self.session), KEYSPACE)
    }

    /// Lets a round trip between each two nodes take this many milliseconds.
    pub(super) async fn set_delays(&self, round_trips: [[f64; 3]; 3]) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        let set = move || {
            for (from, row) in (1..).zip(round_trips) {
                for (to, round_trip) in (1..).zip(row).filter(|(to, _)| *to != from) {
                    cluster.delay(from, to, Duration::from_secs_f64(round_trip / 2_000.0))?;
                }
            }
            anyhow::Ok(())
        };
        tokio::task::spawn_blocking(set).await??;
        // What was on its way has arrived, and nodes have noticed who is near.
        sleep(Duration::from_millis(500)).await;
        Ok(())
    }

    /// The times of writes, of reads of a row and of reads of an object with this one row, one
    /// after the other.
    pub(super) async fn work(&self, times: u32) -> Result<[Vec<Duration>; 3]> {
        let mut taken = <[Vec<Duration>; 3]>::default();
        for _ in 0..times {
            let client = Uuid::new_v4();
            let object = client.to_string();
            let begun = Instant::now();
            self.session.execute_unpaged(&self.write, (&object, client)).await?;
            let written = begun.elapsed();
            self.session.execute_unpaged(&self.row_read, (&object, client)).await?;
            let row_read = begun.elapsed();
            self.session.execute_unpaged(&self.object_read, (&object,)).await?;
            let object_read = begun.elapsed();
            taken[0].push(written);
            taken[1].push(row_read - written);
            taken[2].push(object_read - row_read);
        }
        Ok(taken)
    }

    /// Drops what was made.
    pub(super) async fn end(self) -> Result<()> {
        self.session.query_unpaged(format!("DROP KEYSPACE {KEYSPACE}"), ()).await?;
        Ok(())
    }
}
