//! How to reach a cluster: the options that all tools share, and the session from them.

mod error;
mod race;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::Consistency;
use bakery_lock::schema::{self, SchemaError};
use clap::Args;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement;

use self::error::{Cause, ConnectError, Refusal};
use self::race::first_success;
use crate::failure::Failure;
use crate::options;

/// The environment variable that holds the password. There is no option for it, because every user
/// of the machine can read the arguments of a process.
pub const PASSWORD_VARIABLE: &str = "BAKERY_LOCK_PASSWORD";

/// How long one node may take to accept a connection.
const CONNECTION_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// How long a slow node may delay an attempt at the next one.
const HEAD_START: Duration = Duration::from_millis(500);

/// Interval between checks for schema agreement, which takes about 100 ms.
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(20);

/// The minimum silence before a connection is probed, and the minimum timeout of the probe.
///
/// A frozen machine's kernel still accepts connections. The driver waits for the first one to each
/// node, and by default takes a minute to notice that it is silent.
const KEEPALIVE_INTERVAL_MIN: Duration = Duration::from_secs(1);
const KEEPALIVE_TIMEOUT_MIN: Duration = Duration::from_millis(1_500);

/// The same as shares of the timeout, if these are longer: a longer timeout is also for slow nodes.
const KEEPALIVE_INTERVALS: u32 = 20;
const KEEPALIVE_TIMEOUTS: u32 = 13;

/// How to reach a cluster and its tables.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectOptions {
    /// Nodes to ask for the rest of the cluster; the default port is 9042
    #[arg(
        long,
        global = true,
        value_name = "HOST[:PORT],...",
        env = "BAKERY_LOCK_NODES",
        value_delimiter = ',',
        value_parser = node,
        default_value = "127.0.0.1:9042"
    )]
    pub nodes: Vec<String>,

    /// Keyspace of the lock table and of the registry of hosts
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "BAKERY_LOCK_KEYSPACE",
        value_parser = keyspace,
        default_value = "bakery_lock"
    )]
    pub keyspace: String,

    /// Lock table
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        value_parser = lock_table,
        default_value = schema::LOCK_TABLE_DEFAULT
    )]
    pub lock_table: String,

    /// Which replicas answer for a lock: quorum, or local-quorum:DC, the same for all clients
    #[arg(long, global = true, value_name = "LEVEL", default_value = "quorum")]
    pub consistency: Consistency,

    /// Log in as this user; the password comes from the environment variable
    /// `BAKERY_LOCK_PASSWORD`, or from a file
    #[arg(long, global = true, value_name = "NAME", env = "BAKERY_LOCK_USER")]
    pub user: Option<String>,

    /// Read the password from the first line of this file
    #[arg(long, global = true, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Use TLS, and trust nodes whose certificate this authority signed (PEM); it has to name the
    /// node's IP address
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Show this certificate to the nodes (PEM); needs --tls-ca and --tls-key
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// How long to try to connect, and then each step: 20, 20s, 500ms, 2m. A connected node
    /// that is silent counts as down after a part of it, at least 2.5s
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = options::timeout,
        default_value = "20s"
    )]
    pub timeout: Duration,
}

impl ConnectOptions {
    /// Connects to the first node that accepts the session. If one is slow, the next is tried in
    /// parallel.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] when the options don't fit together or a file can't be read; nothing was
    /// sent then. [`Failure::Unreachable`] when no node answers in time or none accepts the
    /// session; it gives the reason of each.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections.
    pub async fn connect(&self) -> Result<Session, Failure> {
        let builder = self.session_builder()?;
        let attempts = self.nodes.iter().cloned().map(|node| {
            let (builder, timeout) = (builder.clone().known_node(&node), self.timeout);
            async move {
                let session = tokio::time::timeout(timeout, builder.build()).await;
                session
                    .map_or(Err(Cause::Silent), |built| built.map_err(Cause::Failed))
                    .map_err(|cause| Refusal { node, cause })
            }
        });
        first_success(attempts, HEAD_START).await.map_err(|refusals| {
            let error = ConnectError::of(refusals, self.user.as_deref(), self.timeout);
            Failure::Unreachable(Box::new(error))
        })
    }

    /// These options as arguments of another process of the tool, which inherits the environment.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let consistency = match &self.consistency {
            Consistency::LocalQuorum(datacenter) => format!("local-quorum:{datacenter}"),
            // There is no other level.
            Consistency::Quorum | _ => "quorum".to_owned(),
        };
        let mut arguments: Vec<OsString> = vec![
            format!("--nodes={}", self.nodes.join(",")).into(),
            format!("--keyspace={}", self.keyspace).into(),
            format!("--lock-table={}", self.lock_table).into(),
            format!("--consistency={consistency}").into(),
            format!("--timeout={}ms", self.timeout.as_millis()).into(),
        ];
        arguments.extend(self.user.as_ref().map(|user| format!("--user={user}").into()));
        let files = [
            ("--password-file", &self.password_file),
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
        ];
        for (option, file) in files {
            if let Some(file) = file {
                arguments.extend([OsString::from(option), file.into()]);
            }
        }
        arguments
    }

    /// A builder of sessions, without nodes.
    fn session_builder(&self) -> Result<SessionBuilder, Failure> {
        let profile = ExecutionProfile::builder()
            .consistency(statement::Consistency::Quorum)
            .request_timeout(Some(self.timeout))
            .build();
        let builder = SessionBuilder::new()
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(self.timeout.min(CONNECTION_TIMEOUT_MAX))
            .keepalive_interval(KEEPALIVE_INTERVAL_MIN.max(self.timeout / KEEPALIVE_INTERVALS))
            .keepalive_timeout(KEEPALIVE_TIMEOUT_MIN.max(self.timeout / KEEPALIVE_TIMEOUTS))
            // By default the driver reads all keyspaces, and a cluster may have hundreds.
            .keyspaces_to_fetch([&self.keyspace])
            .schema_agreement_interval(AGREEMENT_INTERVAL)
            .schema_agreement_timeout(self.timeout)
            .tls_context(self.tls()?);
        Ok(match self.credentials()? {
            Some((user, password)) => builder.user(user, password),
            None => builder,
        })
    }

    fn credentials(&self) -> Result<Option<(&str, String)>, Failure> {
        let password = match &self.password_file {
            Some(file) => Some(first_line(file)?),
            None => std::env::var(PASSWORD_VARIABLE).ok(),
        };
        match (self.user.as_deref(), password) {
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(OptionsError::PasswordMissing.into()),
            (None, Some(_)) => Err(OptionsError::UserMissing.into()),
        }
    }

    fn tls(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let Some(authority) = &self.tls_ca else {
            let needless = self.tls_cert.is_some() || self.tls_key.is_some();
            return if needless { Err(OptionsError::AuthorityMissing.into()) } else { Ok(None) };
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authority)? {
            roots.add(certificate).map_err(|error| unusable(authority, error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(authority, error))?
            .with_root_certificates(roots);
        let config = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key_file)) => {
                let key = PrivateKeyDer::from_pem_file(key_file);
                let key = key.map_err(|error| unusable(key_file, PemError(error)))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, key)
                    .map_err(|error| unusable(certificate, error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) | (None, Some(_)) => return Err(OptionsError::HalfIdentity.into()),
        };
        Ok(Some(Arc::new(config)))
    }
}

/// Options that don't fit together.
#[derive(Debug, thiserror::Error)]
enum OptionsError {
    #[error(
        "a user without a password: set {PASSWORD_VARIABLE}, or name a file with --password-file"
    )]
    PasswordMissing,
    #[error("a password without a user: name the user with --user, or drop the password")]
    UserMissing,
    #[error("--tls-cert and --tls-key need --tls-ca, which switches TLS on")]
    AuthorityMissing,
    #[error("--tls-cert and --tls-key go together: give both or none")]
    HalfIdentity,
    #[error("{} can't be used", file.display())]
    File {
        file: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<OptionsError> for Failure {
    fn from(error: OptionsError) -> Self {
        Failure::Usage(Box::new(error))
    }
}

/// Words for a [`pem::Error`], which itself prints Rust code or a prefix of its own.
#[derive(Debug)]
struct PemError(pem::Error);

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let pem::Error::Io(error) = &self.0 {
            error.fmt(f)
        } else if matches!(self.0, pem::Error::NoItemsFound) {
            f.write_str("it holds no such item in PEM format")
        } else {
            self.0.fmt(f)
        }
    }
}

impl std::error::Error for PemError {}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| unusable(file, PemError(error)))?;
    if certificates.is_empty() {
        return Err(unusable(file, PemError(pem::Error::NoItemsFound)));
    }
    Ok(certificates)
}

fn first_line(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|error| unusable(file, error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn unusable(file: &Path, cause: impl std::error::Error + Send + Sync + 'static) -> Failure {
    OptionsError::File { file: file.to_owned(), cause: Box::new(cause) }.into()
}

fn keyspace(text: &str) -> Result<String, SchemaError> {
    schema::check_names(text, schema::LOCK_TABLE_DEFAULT).map(|()| text.to_owned())
}

fn lock_table(text: &str) -> Result<String, SchemaError> {
    schema::check_names("keyspace", text).map(|()| text.to_owned())
}

fn node(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a node's name is empty".to_owned()),
        node => Ok(node.to_owned()),
    }
}
