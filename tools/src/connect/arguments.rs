//! The arguments from which [`ConnectOptions`] come, together with the environment.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bakery_lock::schema::{self, SchemaError};
use bakery_lock::{Consistency, LockSettings};
use clap::Args;

use super::ConnectOptions;
use super::node::{MasterNodes, Nodes};
use crate::environment::variable;
use crate::failure::Failure;
use crate::options;

/// The variables that stand in for options which the library does not have.
const NODES_VARIABLE: &str = "BAKERY_LOCK_NODES";
const MASTERS_VARIABLE: &str = "BAKERY_LOCK_MASTERS";
const USER_VARIABLE: &str = "BAKERY_LOCK_USER";

/// How to reach a cluster and its tables, as the command line says it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArguments {
    /// Nodes to ask for the rest of the cluster; the default port is 9042
    /// [env: `BAKERY_LOCK_NODES`] [default: 127.0.0.1]
    ///
    /// Each is a host name or an IP address. An IPv6 address with a port is written in brackets, as
    /// in `[fd00::1]:9042`; without brackets all of it is the address.
    #[arg(long, global = true, value_name = "HOST[:PORT],...")]
    nodes: Vec<Nodes>,

    /// Use these Redis or Valkey servers instead of a cluster, all of them: a majority decides; the
    /// default port is 6379 [env: `BAKERY_LOCK_MASTERS`]
    #[arg(long, global = true, value_name = "HOST[:PORT],...", conflicts_with = "nodes")]
    masters: Option<MasterNodes>,

    /// Keyspace of the lock table and of the registry of hosts [env: `BAKERY_LOCK_KEYSPACE`]
    /// [default: `bakery_lock`]
    #[arg(long, global = true, value_name = "NAME", value_parser = keyspace)]
    keyspace: Option<String>,

    /// Lock table [env: `BAKERY_LOCK_LOCK_TABLE`] [default: `lock_table`]
    #[arg(long, global = true, value_name = "NAME", value_parser = lock_table)]
    lock_table: Option<String>,

    /// What the names of all locks begin with in the table, as clients with
    /// `LockClientBuilder::prefix` have it: names are given and shown without it
    /// [env: `BAKERY_LOCK_PREFIX`]
    #[arg(long, global = true, value_name = "TEXT")]
    name_prefix: Option<String>,

    /// Which replicas answer for a lock: quorum, or local-quorum:DC, the same for all clients
    /// [env: `BAKERY_LOCK_CONSISTENCY`] [default: quorum]
    #[arg(long, global = true, value_name = "LEVEL")]
    consistency: Option<Consistency>,

    /// Log in as this user; the password comes from the environment variable
    /// `BAKERY_LOCK_PASSWORD`, or from a file [env: `BAKERY_LOCK_USER`]
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,

    /// Read the password from the first line of this file
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Use TLS, and trust nodes whose certificate this authority signed (PEM); it must name the
    /// node's IP address
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// Show this certificate to the nodes (PEM); needs --tls-ca and --tls-key
    #[arg(long, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// How long to try to connect, and then each step: 20, 20s, 500ms, 2m. A connected node
    /// that is silent counts as down after a part of it, at least 2.5s
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = options::timeout,
        default_value = "20s"
    )]
    timeout: Duration,
}

impl ConnectArguments {
    /// The arguments, and what the environment says where they say nothing.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] names the variable that can't be used.
    pub fn options(self) -> Result<ConnectOptions, Failure> {
        let mut settings =
            LockSettings::from_env().map_err(|error| Failure::Usage(Box::new(error)))?;
        settings.keyspace = self.keyspace.or(settings.keyspace);
        settings.lock_table = self.lock_table.or(settings.lock_table);
        settings.prefix = self.name_prefix.or(settings.prefix);
        settings.consistency = self.consistency.or(settings.consistency);
        // A command takes its place itself, so that it does not depend on another process.
        settings.peers = None;
        let keyspace = settings.keyspace().to_owned();
        let lock_table = settings.lock_table.as_deref().unwrap_or(schema::LOCK_TABLE_DEFAULT);
        let lock_table = lock_table.to_owned();
        schema::check_names(&keyspace, &lock_table)?;
        let masters = match self.masters {
            Some(masters) => masters,
            None if self.nodes.is_empty() => of_environment(MASTERS_VARIABLE)?.unwrap_or_default(),
            None => MasterNodes::default(),
        };
        let nodes = if self.nodes.is_empty() {
            vec![of_environment(NODES_VARIABLE)?.unwrap_or_default()]
        } else {
            self.nodes
        };
        Ok(ConnectOptions {
            masters: masters.0,
            nodes: nodes.into_iter().flat_map(|Nodes(nodes)| nodes).collect(),
            keyspace,
            lock_table,
            consistency: settings.consistency.clone().unwrap_or_default(),
            settings,
            user: match self.user {
                Some(user) => Some(user),
                None => variable(USER_VARIABLE)?,
            },
            password_file: self.password_file,
            tls_ca: self.tls_ca,
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            timeout: self.timeout,
        })
    }
}

/// The addresses in a variable, if it is set.
fn of_environment<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>, Failure> {
    let Some(text) = variable(name)? else { return Ok(None) };
    let unusable = |error| format!("the variable {name} can't be used: {error}");
    text.parse().map(Some).map_err(|error| Failure::Usage(unusable(error).into()))
}

fn keyspace(text: &str) -> Result<String, SchemaError> {
    schema::check_names(text, schema::LOCK_TABLE_DEFAULT).map(|()| text.to_owned())
}

fn lock_table(text: &str) -> Result<String, SchemaError> {
    schema::check_names("keyspace", text).map(|()| text.to_owned())
}
