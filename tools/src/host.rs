//! Clients that take locks.

use std::time::Duration;

use bakery_lock::admin::shell_operand;

use bakery_lock::{BuildError, LockClient, LockClientBuilder};
use clap::Args;

use crate::connect::{ConnectOptions, Database};
use crate::failure::Failure;
use crate::output;

/// As which host locks are taken.
#[derive(Clone, Debug, Args)]
pub(crate) struct HostOptions {
    /// The name under which this host is registered [env: `BAKERY_LOCK_HOST`]
    /// [default: this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Register the host if it is missing [env: `BAKERY_LOCK_REGISTER_HOST`] [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) register_host: Option<bool>,
}

impl HostOptions {
    /// A builder of clients that take locks, with another TTL than that of the environment if one
    /// is given.
    pub(crate) fn builder(
        &self,
        database: &Database,
        connection: &ConnectOptions,
        ttl: Option<Duration>,
    ) -> LockClientBuilder {
        let mut settings = connection.settings.clone();
        settings.host = self.host.clone().or(settings.host);
        settings.ttl = ttl.or(settings.ttl);
        settings.register_host = self.register_host.or(settings.register_host);
        database.builder(connection, &settings)
    }
}

/// The host can't take locks. The library's own errors name calls where these name options.
#[derive(Debug, thiserror::Error)]
enum HostError {
    #[error(
        "host {host:?} is not registered: run `lock-hosts {} add {}`, or give --register-host",
        registry_options(keyspace),
        shell_operand(host)
    )]
    Unknown { host: String, keyspace: String },
    #[error(
        "host {host:?} was removed from the registry: run `lock-hosts {} add {}` to let it take \
         locks again, or give the name of another one with --host",
        registry_options(keyspace),
        shell_operand(host)
    )]
    Removed { host: String, keyspace: String },
}

/// The options that lead to the registry. On masters there is no keyspace.
fn registry_options(keyspace: &str) -> String {
    if keyspace == "(masters)" {
        return "--masters HOST,...".to_owned();
    }
    format!("--keyspace {keyspace}")
}

impl HostError {
    fn of(error: &BuildError) -> Option<Self> {
        if let BuildError::UnknownHost { host, keyspace, .. } = error {
            return Some(HostError::Unknown { host: host.clone(), keyspace: keyspace.clone() });
        }
        if let BuildError::HostRemoved { host, keyspace, .. } = error {
            return Some(HostError::Removed { host: host.clone(), keyspace: keyspace.clone() });
        }
        None
    }
}

/// What to say of a client that can't be built: of a host that is not registered, what to do about
/// it with the tools.
pub(crate) fn not_built(error: BuildError) -> Failure {
    match HostError::of(&error) {
        Some(error) => Failure::No(Box::new(error)),
        None => error.into(),
    }
}

/// Ends the client; what is not released by then expires.
pub(crate) async fn shut_down(client: &LockClient) {
    if let Err(error) = client.shutdown().await {
        output::warn(&error.to_string());
    }
}
