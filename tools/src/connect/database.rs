//! What a command works on: a cluster, or masters.

use std::sync::Arc;

use bakery_lock::hosts::{HostRegistry, RegistryError};
use bakery_lock::schema::{self, Finding};
use bakery_lock::{LockClient, LockClientBuilder, LockSettings, Masters, masters};
use scylla::client::session::Session;

use super::ConnectOptions;
use crate::failure::Failure;

/// What a command works on.
#[derive(Clone, Debug)]
pub enum Database {
    /// A cluster of Cassandra or ScyllaDB.
    Cassandra(Arc<Session>),
    /// Redis or Valkey servers.
    Masters(Masters),
}

impl Database {
    /// A builder of clients with these settings.
    pub(crate) fn builder(
        &self,
        connection: &ConnectOptions,
        settings: &LockSettings,
    ) -> LockClientBuilder {
        let builder = match self {
            Database::Cassandra(session) => {
                LockClient::builder(Arc::clone(session), &connection.keyspace)
            }
            Database::Masters(masters) => LockClient::builder_on_masters(masters),
        };
        builder.settings(settings)
    }

    /// The registry of hosts.
    pub(crate) async fn registry(
        &self,
        connection: &ConnectOptions,
    ) -> Result<HostRegistry, RegistryError> {
        match self {
            Database::Cassandra(session) => {
                HostRegistry::new(Arc::clone(session), &connection.keyspace).await
            }
            Database::Masters(masters) => {
                HostRegistry::on_masters(masters, &connection.lock_table).await
            }
        }
    }

    /// What there is to say about it.
    pub(crate) async fn check(&self, connection: &ConnectOptions) -> Result<Vec<Finding>, Failure> {
        let ConnectOptions { keyspace, lock_table, consistency, .. } = connection;
        let report = match self {
            Database::Cassandra(session) => {
                schema::check(session, keyspace, lock_table, consistency).await?
            }
            Database::Masters(masters) => masters::check(masters, lock_table).await?,
        };
        Ok(report.findings)
    }
}
