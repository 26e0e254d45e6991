//! What every test on a cluster needs: a session, clients, and a look at the rows.

use std::error::Error;
use std::iter::successors;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bakery_lock::schema::{self, CreateOptions, Created, SchemaError};
use bakery_lock::{BuildError, DatabaseError, LockClient, LockClientBuilder};
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

use crate::cluster::turn_to_change_the_schema;
use crate::pace;
use crate::program::Program;
use crate::rows::{self, RowAndLife};

/// How many reads an uncontended lock costs, beside a write.
pub const READS_OF_A_LOCK: u64 = 1;

/// Builds a client. A database that is too busy to answer in time is asked again.
pub async fn built(builder: LockClientBuilder) -> LockClient {
    let built = build(builder).await;
    built.unwrap_or_else(|error| panic!("the cluster is ready: {error:?}"))
}

/// Why a client is not built, other than that the database is too busy to answer in time.
pub async fn refusal(builder: LockClientBuilder) -> BuildError {
    build(builder).await.expect_err("this is refused")
}

async fn build(builder: LockClientBuilder) -> Result<LockClient, BuildError> {
    let built = async {
        loop {
            match Box::pin(builder.clone().build()).await {
                Err(error) if passes(&error) => println!("built again: {error}"),
                built => return built,
            }
        }
    };
    pace::within_limit("a client, or its refusal", built).await
}

/// Whether the database failed in a way that passes.
fn passes(error: &BuildError) -> bool {
    let causes = successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    let mut failures = causes.filter_map(|cause| cause.downcast_ref::<DatabaseError>());
    failures.any(|failure| !failure.is_permanent())
}

/// A session on the cluster, and a keyspace with the tables.
#[derive(Clone)]
pub struct Scene {
    pub session: Arc<Session>,
    pub keyspace: String,
}

impl Scene {
    /// The scene that all tests share; their objects have names of their own.
    pub async fn new() -> Self {
        Scene { session: crate::session().await, keyspace: crate::keyspace().await }
    }

    /// The scene of a program that [`Scene::start`] started, and its order.
    pub async fn of(order: &str) -> (Self, &str) {
        let (keyspace, order) = order.split_once(' ').expect("an order begins with a keyspace");
        (Scene::in_keyspace(keyspace).await, order)
    }

    /// Starts a test of this binary as a program that has the same scene.
    pub fn start(&self, test: &str, order: &str) -> Program {
        Program::start(test, &format!("{} {order}", self.keyspace), &self.nodes())
    }

    /// The addresses of the nodes.
    pub fn nodes(&self) -> Vec<SocketAddr> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter().map(|node| node.address);
        nodes.map(|node| SocketAddr::new(node.ip(), node.port())).collect()
    }

    /// A scene in the keyspace of another one.
    pub async fn in_keyspace(keyspace: &str) -> Self {
        Scene { session: crate::session().await, keyspace: keyspace.to_owned() }
    }

    /// A scene with a keyspace of its own, for tests whose subject is the schema.
    pub async fn of_its_own(tag: &str) -> Self {
        let keyspace = crate::unique_keyspace(tag);
        crate::create_keyspace(&keyspace, CreateOptions::new()).await;
        Scene { session: crate::session().await, keyspace }
    }

    /// The same session, another keyspace, which need not exist.
    pub fn elsewhere(&self, keyspace: &str) -> Self {
        Scene { session: Arc::clone(&self.session), keyspace: keyspace.to_owned() }
    }

    /// Drops a keyspace that was made for one test.
    pub async fn drop_keyspace(&self) {
        self.change_schema(&format!("DROP KEYSPACE \"{}\"", self.keyspace)).await;
    }

    /// Creates what is missing in the keyspace.
    pub async fn create(&self, options: &CreateOptions) -> Result<Created, SchemaError> {
        let _turn = turn_to_change_the_schema().await;
        schema::create(&self.session, &self.keyspace, options).await
    }

    /// Executes a statement that changes the schema, and waits until the nodes agree on it.
    pub async fn change_schema(&self, statement: &str) {
        let _turn = turn_to_change_the_schema().await;
        self.execute(statement).await;
        self.session.await_schema_agreement().await.expect("the nodes agree");
    }

    /// Whether the nodes are those of ScyllaDB.
    pub async fn is_scylla(&self) -> bool {
        let select = "SELECT table_name FROM system_schema.tables \
                      WHERE keyspace_name = 'system_schema' AND table_name = 'scylla_tables'";
        let rows = self.session.query_unpaged(select, ()).await.expect("the cluster answers");
        rows.into_rows_result().expect("a select has rows").rows_num() > 0
    }

    /// Executes a statement that has no values.
    pub async fn execute(&self, statement: &str) {
        let mut statement = Statement::new(statement);
        statement.set_consistency(Consistency::Quorum);
        self.session.query_unpaged(statement, ()).await.expect("the cluster answers");
    }

    /// Deletes all rows of an object, as a person may do by hand.
    pub async fn delete_rows(&self, object: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
        let delete = format!(
            "DELETE FROM \"{}\".lock_table USING TIMESTAMP {} WHERE object_name = '{object}'",
            self.keyspace,
            now.as_micros(),
        );
        self.execute(&delete).await;
    }

    /// A builder of clients with the defaults, but that callers wait as long as tests do.
    pub fn builder(&self) -> LockClientBuilder {
        self.builder_on(&self.session)
    }

    /// The same on another session.
    pub fn builder_on(&self, session: &Arc<Session>) -> LockClientBuilder {
        let builder = LockClient::builder(Arc::clone(session), self.keyspace.clone());
        builder.host("test-host").register_host(true).acquire_timeout(pace::limit())
    }

    /// A client of [`Scene::builder`].
    pub async fn client(&self) -> LockClient {
        built(self.builder()).await
    }

    /// The names of the live rows of an object. A node that is too busy is asked again.
    pub async fn rows(&self, object: &str) -> Vec<String> {
        self.rows_and_lives(object).await.into_iter().map(|(name, _)| name).collect()
    }

    /// The live rows of an object: the names, and how many seconds each must live.
    async fn rows_and_lives(&self, object: &str) -> Vec<RowAndLife> {
        let answered = async {
            loop {
                match Box::pin(self.try_rows(object)).await {
                    Ok(rows) => return rows,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        pace::within_limit("a read of an object", answered).await
    }

    async fn try_rows(&self, object: &str) -> Result<Vec<RowAndLife>, ExecutionError> {
        let table = format!("\"{}\".lock_table", self.keyspace);
        let select = format!("SELECT row_name, TTL(state) FROM {table} WHERE object_name = ?");
        let mut select = Statement::new(select);
        select.set_consistency(Consistency::Quorum);
        let rows = self.session.query_unpaged(select, (object,)).await?;
        let rows = rows.into_rows_result().expect("a select has rows");
        let rows = rows.rows::<(Option<String>, Option<i32>)>().expect("these are the columns");
        let rows = rows.map(|row| row.expect("this is a row"));
        // A partition may have a static part only.
        Ok(rows.filter_map(|(name, life)| Some((name?, life))).collect())
    }

    /// Waits until an object has `count` rows, whatever ends the others.
    pub async fn wait_for_rows(&self, object: &str, count: usize) {
        rows::wait_for(object, count, || self.rows_and_lives(object)).await;
    }

    /// Waits until all rows of an object are deleted.
    ///
    /// # Panics
    ///
    /// If one is about to expire instead.
    pub async fn wait_until_deleted(&self, object: &str) {
        rows::wait_until_deleted(|| self.rows_and_lives(object)).await;
    }
}
