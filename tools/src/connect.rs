//! How to reach a cluster: the options that all tools share, and the session from them.

mod arguments;
mod database;
mod error;
mod node;
mod race;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::hosts::this_host;
use bakery_lock::{Consistency, LockSettings, Masters};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement;

pub use self::arguments::ConnectArguments;
pub use self::database::Database;
use self::error::{Cause, ConnectError, Refusal};
use self::node::Node;
use self::race::first_success;
use crate::environment::variable;
use crate::failure::Failure;
use crate::output;

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
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    nodes: Vec<Node>,
    /// Redis servers, which are used instead of nodes if there are some.
    masters: Vec<Node>,
    /// Keyspace of the lock table and of the registry of hosts.
    pub keyspace: String,
    /// Lock table.
    pub lock_table: String,
    /// Which replicas answer for a lock.
    pub consistency: Consistency,
    /// What clients are built with: keyspace, lock table and consistency are those here.
    pub settings: LockSettings,
    user: Option<String>,
    password_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    /// How long to try to connect, and then each step.
    pub timeout: Duration,
}

impl ConnectOptions {
    /// Connects to the first node that accepts the session, or to all masters. If a node is slow,
    /// the next is tried in parallel.
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
    pub async fn connect(&self) -> Result<Database, Failure> {
        if self.is_on_masters() {
            return Ok(Database::Masters(self.masters().await?));
        }
        self.connected().await.map(|(session, _)| Database::Cassandra(Arc::new(session)))
    }

    async fn masters(&self) -> Result<Masters, Failure> {
        let needless = [&self.tls_ca, &self.tls_cert, &self.tls_key].iter().any(|it| it.is_some());
        if needless {
            return Err(OptionsError::TlsToMasters.into());
        }
        let password = self.password()?;
        let (user, password) = (self.user.as_deref(), password.as_deref());
        Ok(Masters::connect(self.masters.iter().map(|it| it.url(user, password))).await?)
    }

    /// Whether it connects to masters.
    pub(crate) fn is_on_masters(&self) -> bool {
        !self.masters.is_empty()
    }

    /// The options that lead `lock-hosts` to the same registry.
    pub(crate) fn registry_options(&self) -> String {
        if self.is_on_masters() {
            return format!("--masters {}", listed(&self.masters));
        }
        format!("--keyspace {}", self.keyspace)
    }

    /// The same, with a note for people about what is connected to, if it is wanted.
    pub(crate) async fn connect_with_note(&self, verbose: bool) -> Result<Database, Failure> {
        if self.is_on_masters() {
            let masters = self.masters().await?;
            if verbose {
                let (lock_table, addresses) = (&self.lock_table, listed(&self.masters));
                output::note(&format!("lockctl: uses lock table {lock_table} on {addresses}"));
            }
            return Ok(Database::Masters(masters));
        }
        let (session, node) = self.connected().await?;
        if verbose {
            let ConnectOptions { keyspace, lock_table, .. } = self;
            output::note(&format!(
                "lockctl: connected to {node}, uses lock table {keyspace}.{lock_table}"
            ));
        }
        Ok(Database::Cassandra(Arc::new(session)))
    }

    async fn connected(&self) -> Result<(Session, Node), Failure> {
        let builder = self.session_builder()?;
        let attempts = self.nodes.iter().cloned().map(|node| {
            let (builder, timeout) = (builder.clone().known_node(node.to_string()), self.timeout);
            async move {
                let session = tokio::time::timeout(timeout, builder.build()).await;
                match session.map_or(Err(Cause::Silent), |built| built.map_err(Cause::Failed)) {
                    Ok(session) => Ok((session, node)),
                    Err(cause) => Err(Refusal { node, cause }),
                }
            }
        });
        first_success(attempts, HEAD_START).await.map_err(|refusals| {
            let error = ConnectError::of(refusals, self.user.as_deref(), self.timeout);
            Failure::Unreachable(Box::new(error))
        })
    }

    /// The name of a host: the given one, that of the environment, or this machine's.
    pub(crate) fn host(&self, given: Option<&str>) -> String {
        given.or(self.settings.host.as_deref()).map_or_else(this_host, str::to_owned)
    }

    /// These options as arguments of another process of the tool, which inherits the environment.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let consistency = match &self.consistency {
            Consistency::LocalQuorum(datacenter) => format!("local-quorum:{datacenter}"),
            // There is no other level.
            Consistency::Quorum | _ => "quorum".to_owned(),
        };
        let (option, nodes) = if self.is_on_masters() {
            ("masters", listed(&self.masters))
        } else {
            ("nodes", listed(&self.nodes))
        };
        let mut arguments: Vec<OsString> = vec![
            format!("--{option}={nodes}").into(),
            format!("--keyspace={}", self.keyspace).into(),
            format!("--lock-table={}", self.lock_table).into(),
            format!("--consistency={consistency}").into(),
            format!("--timeout={}ms", self.timeout.as_millis()).into(),
        ];
        let prefix = self.settings.prefix.as_ref();
        arguments.extend(prefix.map(|prefix| format!("--name-prefix={prefix}").into()));
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

    fn password(&self) -> Result<Option<String>, Failure> {
        match &self.password_file {
            Some(file) => first_line(file).map(Some),
            None => variable(PASSWORD_VARIABLE),
        }
    }

    fn credentials(&self) -> Result<Option<(&str, String)>, Failure> {
        match (self.user.as_deref(), self.password()?) {
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
                let key = private_key(key_file)?;
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

fn listed(nodes: &[Node]) -> String {
    nodes.iter().map(Node::to_string).collect::<Vec<_>>().join(",")
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
    #[error("connections to masters have no TLS: leave the --tls options out, and use a tunnel")]
    TlsToMasters,
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

/// The certificates of a PEM file, of which there is one at least.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| unusable(file, PemError(error)))?;
    if certificates.is_empty() {
        return Err(unusable(file, PemError(pem::Error::NoItemsFound)));
    }
    Ok(certificates)
}

/// The private key of a PEM file.
pub(crate) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| unusable(file, PemError(error)))
}

fn first_line(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|error| unusable(file, error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The failure of a file that an option names.
pub(crate) fn unusable(
    file: &Path,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    OptionsError::File { file: file.to_owned(), cause: Box::new(cause) }.into()
}
