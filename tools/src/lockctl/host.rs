//! Clients that take locks.

use std::sync::Arc;

use bakery_lock::{BuildError, LockClient, LockClientBuilder};
use clap::Args;
use scylla::client::session::Session;

use crate::connect::ConnectOptions;
use crate::failure::Failure;
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

/// The host can't take locks. The library's own errors name calls where these name options.
#[derive(Debug, thiserror::Error)]
enum HostError {
    #[error(
        "host {host:?} is not registered: run `lock-hosts --keyspace {keyspace} add {host}`, or \
         give --register-host"
    )]
    Unknown { host: String, keyspace: String },
    #[error(
        "host {host:?} was removed from the registry: run `lock-hosts --keyspace {keyspace} add \
         {host}` to let it take locks again, or give the name of another one with --host"
    )]
    Removed { host: String, keyspace: String },
}

impl HostError {
    fn of(error: &BuildError) -> Option<Self> {
        if let BuildError::UnknownHost { host, keyspace } = error {
            return Some(HostError::Unknown { host: host.clone(), keyspace: keyspace.clone() });
        }
        if let BuildError::HostRemoved { host, keyspace } = error {
            return Some(HostError::Removed { host: host.clone(), keyspace: keyspace.clone() });
        }
        None
    }
}

/// What to say of a client that can't be built: of a host that is not registered, what to do about
/// it with the tools.
pub(super) fn not_built(error: BuildError) -> Failure {
    match HostError::of(&error) {
        Some(error) => Failure::No(Box::new(error)),
        None => error.into(),
    }
}

/// Ends the client; what is not released by then expires.
pub(super) async fn shut_down(client: &LockClient) {
    if let Err(error) = client.shutdown().await {
        output::warn(&error.to_string());
    }
}
