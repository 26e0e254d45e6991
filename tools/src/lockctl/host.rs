//! Clients that take locks.

use std::sync::Arc;

use bakery_lock::{LockClient, LockClientBuilder};
use clap::Args;
use scylla::client::session::Session;

use crate::connect::ConnectOptions;
use crate::output;

/// As which host locks are taken.
#[derive(Clone, Debug, Args)]
pub(super) struct HostOptions {
    /// The name under which this host is registered [default: this machine]
    #[arg(long, value_name = "NAME")]
    pub(super) host: Option<String>,

    /// Register the host if it is missing
    #[arg(long)]
    pub(super) register_host: bool,
}

impl HostOptions {
    /// A builder of clients that take locks.
    pub(super) fn builder(
        &self,
        session: &Arc<Session>,
        connection: &ConnectOptions,
    ) -> LockClientBuilder {
        let ConnectOptions { keyspace, lock_table, consistency, .. } = connection;
        let builder = LockClient::builder(Arc::clone(session), keyspace)
            .consistency(consistency.clone())
            .lock_table(lock_table)
            .register_host(self.register_host);
        match &self.host {
            Some(host) => builder.host(host),
            None => builder,
        }
    }
}

/// Ends the client; what is not released by then expires.
pub(super) async fn shut_down(client: &LockClient) {
    if let Err(error) = client.shutdown().await {
        output::warn(&error.to_string());
    }
}
