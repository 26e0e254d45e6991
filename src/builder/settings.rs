//! The settings of a client, as files and the environment give them.

use std::env::{self, VarError};
use std::fmt::Display;
use std::time::Duration;

use thiserror::Error;

use super::LockClientBuilder;
#[cfg(feature = "peers")]
use super::PeerOptions;
use crate::options::{Consistency, parse_duration};

/// The keyspace that `lock-hosts` creates unless another one is named.
const KEYSPACE_DEFAULT: &str = "bakery_lock";

/// The options of a client, for programs that read them from the environment or, with the feature
/// `serde`, from a file. What is `None` is as by default.
///
/// In a file, durations are numbers of seconds or text ([`parse_duration`]), and a consistency is
/// text, as it is read by [`Consistency`]. An unknown name is an error.
///
/// There is no login in it: that belongs to the session.
///
/// # Example
///
/// ```
/// use bakery_lock::{LockClient, LockSettings, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = MemoryStore::new();
/// let mut settings = LockSettings::from_env()?;
/// settings.register_host = Some(true);
/// // On a cluster: LockClient::builder(session, settings.keyspace())
/// let client = LockClient::builder_in_memory(&store).settings(&settings).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct LockSettings {
    /// The keyspace of the tables: see [`keyspace`](Self::keyspace).
    pub keyspace: Option<String>,
    /// See [`LockClientBuilder::lock_table`].
    pub lock_table: Option<String>,
    /// See [`LockClientBuilder::prefix`].
    pub prefix: Option<String>,
    /// See [`LockClientBuilder::host`].
    pub host: Option<String>,
    /// See [`LockClientBuilder::register_host`].
    pub register_host: Option<bool>,
    /// See [`LockClientBuilder::acquire_timeout`].
    #[cfg_attr(feature = "serde", serde(with = "crate::options::files::duration"))]
    pub acquire_timeout: Option<Duration>,
    /// See [`LockClientBuilder::ttl`].
    #[cfg_attr(feature = "serde", serde(with = "crate::options::files::duration"))]
    pub ttl: Option<Duration>,
    /// See [`LockClientBuilder::local_handoff`].
    pub local_handoff: Option<bool>,
    /// See [`LockClientBuilder::keep_idle`].
    #[cfg_attr(feature = "serde", serde(with = "crate::options::files::duration"))]
    pub keep_idle: Option<Duration>,
    /// See [`LockClientBuilder::consistency`].
    pub consistency: Option<Consistency>,
    /// See [`LockClientBuilder::peers`]. In the environment it is text, as [`PeerOptions`] reads
    /// it; in a file it has the names `bind`, `advertised`, `serve_guests`, `max_guests`
    /// and `max_guest_hold`.
    #[cfg(feature = "peers")]
    pub peers: Option<PeerOptions>,
}

impl LockSettings {
    /// Reads the variables `BAKERY_LOCK_KEYSPACE`, `BAKERY_LOCK_HOST`, `BAKERY_LOCK_TTL` and so on,
    /// one for each field. A variable that is unset or empty leaves its field `None`.
    ///
    /// Durations are read by [`parse_duration`], switches are `true` or `false`. The tools
    /// `lock-hosts` and `lockctl` read these variables by this function, and others of their own,
    /// such as `BAKERY_LOCK_NODES`, which it ignores.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] names the variable that can't be read.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_variables(|name| env::var(name))
    }

    fn from_variables(
        variable: impl Fn(&str) -> Result<String, VarError>,
    ) -> Result<Self, SettingsError> {
        let environment = Environment { variable };
        let text = |value: &str| Ok::<_, std::convert::Infallible>(value.to_owned());
        Ok(LockSettings {
            keyspace: environment.read("BAKERY_LOCK_KEYSPACE", text)?,
            lock_table: environment.read("BAKERY_LOCK_LOCK_TABLE", text)?,
            prefix: environment.read("BAKERY_LOCK_PREFIX", text)?,
            host: environment.read("BAKERY_LOCK_HOST", text)?,
            register_host: environment.read("BAKERY_LOCK_REGISTER_HOST", switch)?,
            acquire_timeout: environment.read("BAKERY_LOCK_ACQUIRE_TIMEOUT", parse_duration)?,
            ttl: environment.read("BAKERY_LOCK_TTL", parse_duration)?,
            local_handoff: environment.read("BAKERY_LOCK_LOCAL_HANDOFF", switch)?,
            keep_idle: environment.read("BAKERY_LOCK_KEEP_IDLE", parse_duration)?,
            consistency: environment.read("BAKERY_LOCK_CONSISTENCY", str::parse::<Consistency>)?,
            #[cfg(feature = "peers")]
            peers: environment.read("BAKERY_LOCK_PEERS", str::parse::<PeerOptions>)?,
        })
    }

    /// The keyspace to build the client on: `bakery_lock` unless another one is set.
    #[must_use]
    pub fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or(KEYSPACE_DEFAULT)
    }
}

impl LockClientBuilder {
    /// Sets all options that the settings have, except the keyspace, which the builder has already.
    /// [`build`](Self::build) checks them.
    pub fn settings(mut self, settings: &LockSettings) -> Self {
        let set = settings.clone();
        self.lock_table = set.lock_table.unwrap_or(self.lock_table);
        self.prefix = set.prefix.unwrap_or(self.prefix);
        self.host = set.host.or(self.host);
        self.register_host = set.register_host.unwrap_or(self.register_host);
        self.acquire_timeout = set.acquire_timeout.unwrap_or(self.acquire_timeout);
        self.ttl = set.ttl.unwrap_or(self.ttl);
        self.local_handoff = set.local_handoff.unwrap_or(self.local_handoff);
        self.keep_idle = set.keep_idle.or(self.keep_idle);
        self.consistency = set.consistency.unwrap_or(self.consistency);
        #[cfg(feature = "peers")]
        {
            self.peers = set.peers.or(self.peers);
        }
        self
    }
}

/// A variable of the environment that can't be used. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the variable {variable} can't be used: {reason}")]
pub struct SettingsError {
    variable: &'static str,
    reason: String,
}

impl SettingsError {
    /// Which variable.
    #[must_use]
    pub fn variable(&self) -> &'static str {
        self.variable
    }
}

struct Environment<F> {
    variable: F,
}

impl<F: Fn(&str) -> Result<String, VarError>> Environment<F> {
    fn read<T, E: Display>(
        &self,
        variable: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, SettingsError> {
        let error = |reason| SettingsError { variable, reason };
        match (self.variable)(variable) {
            Ok(value) if value.is_empty() => Ok(None),
            Ok(value) => parse(&value).map(Some).map_err(|cause| error(cause.to_string())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(error("it is not UTF-8".to_owned())),
        }
    }
}

fn switch(value: &str) -> Result<bool, &'static str> {
    value.parse().map_err(|_| "use true or false")
}

#[cfg(test)]
mod tests;
