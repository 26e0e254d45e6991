//! What every test on a cluster needs: a session, clients, and a look at the rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bakery_lock::schema::CreateOptions;
use bakery_lock::{LockClient, LockClientBuilder};
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

/// How long a busy cluster may take to answer at all.
const ANSWER_MAX: Duration = Duration::from_secs(20);

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
        self.execute(&format!("DROP KEYSPACE \"{}\"", self.keyspace)).await;
    }

    /// Executes a statement that has no values.
    pub async fn execute(&self, statement: &str) {
        let mut statement = Statement::new(statement);
        statement.set_consistency(Consistency::Quorum);
        self.session.query_unpaged(statement, ()).await.expect("the cluster answers");
    }

    /// A builder of clients with the defaults.
    pub fn builder(&self) -> LockClientBuilder {
        let builder = LockClient::builder(Arc::clone(&self.session), self.keyspace.clone());
        builder.host("test-host").register_host(true)
    }

    /// A client with the defaults.
    pub async fn client(&self) -> LockClient {
        self.builder().build().await.expect("the cluster is ready")
    }

    /// The names of the live rows of an object. A node that is too busy is asked again.
    pub async fn rows(&self, object: &str) -> Vec<String> {
        let began = Instant::now();
        loop {
            match self.try_rows(object).await {
                Ok(rows) => return rows,
                Err(error) if began.elapsed() > ANSWER_MAX => panic!("no answer: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn try_rows(&self, object: &str) -> Result<Vec<String>, ExecutionError> {
        let table = format!("\"{}\".lock_table", self.keyspace);
        let select = format!("SELECT row_name, round FROM {table} WHERE object_name = ?");
        let mut select = Statement::new(select);
        select.set_consistency(Consistency::Quorum);
        let rows = self.session.query_unpaged(select, (object,)).await?;
        let rows = rows.into_rows_result().expect("a select has rows");
        let rows = rows.rows::<(Option<String>, Option<i64>)>().expect("these are the columns");
        let names = rows.map(|row| row.expect("this is a row").0);
        // A partition may have a static part only.
        Ok(names.flatten().collect())
    }

    /// Waits until an object has `count` rows, and says how long that took.
    pub async fn wait_for_rows(&self, object: &str, count: usize, at_most: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let rows = self.rows(object).await;
            if rows.len() == count {
                return began.elapsed();
            }
            assert!(began.elapsed() < at_most, "after {at_most:?} there are the rows {rows:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
