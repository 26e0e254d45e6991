//! The builder of a client.

mod backend;
mod error;
mod settings;

use std::sync::Arc;
use std::time::Duration;

#[doc(no_inline)]
pub use scylla::client::session::Session;

use self::backend::{Backend, Opened};
pub use self::error::BuildError;
pub use self::settings::{LockSettings, SettingsError};
use crate::client::{ClientSetup, LockClient, Registered};
use crate::context::retry::answered_soon;
use crate::driver::host::{self, Lookup, RegisteredHost};
use crate::options::{
    ACQUIRE_TIMEOUT_DEFAULT, Consistency, KEEP_IDLE_OF_PEERS, TTL_DEFAULT, check_prefix,
    check_timeout, lease_terms,
};
#[cfg(any(test, instrumented))]
use crate::peers::Entrance;
use crate::peers::{Join, PeerOptions};
use crate::setup::hosts::{self, RegistryError};
use crate::setup::schema;
#[cfg(feature = "redis")]
use crate::store::Masters;
use crate::store::{Embedded, HostTable, MemoryStore};

impl LockClient {
    /// Builds a client on a session. Its tables are in `keyspace`, created by `lock-hosts init` or
    /// [`schema::create`].
    ///
    /// Set the session's `keepalive_interval` and `keepalive_timeout` to a few seconds: by default
    /// the driver takes up to a minute to notice a frozen node, and no client is built meanwhile.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use bakery_lock::LockClient;
    /// use scylla::client::session_builder::SessionBuilder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = Arc::new(SessionBuilder::new().known_node("db1:9042").build().await?);
    /// let client = LockClient::builder(Arc::clone(&session), "bakery_lock").build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(
        session: impl Into<Arc<Session>>,
        keyspace: impl Into<String>,
    ) -> LockClientBuilder {
        LockClientBuilder::new(Backend::Cassandra {
            session: session.into(),
            keyspace: keyspace.into(),
        })
    }

    /// Builds a client on a store in memory, for examples and tests. The clients of one store
    /// exclude one another. Their hosts are registered by themselves.
    pub fn builder_in_memory(store: &MemoryStore) -> LockClientBuilder {
        LockClientBuilder::embedded(store.embedded())
    }

    /// Builds a client on independent Redis or Valkey servers, of which a majority decides. The
    /// lock table was created by `lock-hosts init --masters` or [`masters::init`].
    ///
    /// Its host is registered by itself, because a host's number has no part in who holds a lock
    /// there: [`register_host`](LockClientBuilder::register_host) can change that.
    ///
    /// [`masters::init`]: crate::masters::init
    #[cfg(feature = "redis")]
    pub fn builder_on_masters(masters: &Masters) -> LockClientBuilder {
        LockClientBuilder::new(Backend::Masters(masters.clone())).register_host(true)
    }
}

/// Builds a [`LockClient`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use bakery_lock::{LockClient, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let client = LockClient::builder_in_memory(&store)
///     .host("web1")
///     .acquire_timeout(Duration::from_secs(2))
///     .ttl(Duration::from_secs(30))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockClientBuilder {
    backend: Backend,
    host: Option<String>,
    register_host: bool,
    read_only: bool,
    acquire_timeout: Duration,
    ttl: Duration,
    local_handoff: bool,
    keep_idle: Option<Duration>,
    peers: Option<PeerOptions>,
    #[cfg(any(test, instrumented))]
    entrance: Option<Arc<dyn Entrance>>,
    consistency: Consistency,
    lock_table: String,
    prefix: String,
}

impl LockClientBuilder {
    /// Builds a client without a cluster. No operator registers hosts there.
    pub(crate) fn embedded(embedded: Embedded) -> Self {
        Self::new(Backend::Embedded(embedded)).register_host(true)
    }

    fn new(backend: Backend) -> Self {
        LockClientBuilder {
            backend,
            host: None,
            register_host: false,
            read_only: false,
            acquire_timeout: ACQUIRE_TIMEOUT_DEFAULT,
            ttl: TTL_DEFAULT,
            local_handoff: true,
            keep_idle: None,
            peers: None,
            #[cfg(any(test, instrumented))]
            entrance: None,
            consistency: Consistency::default(),
            lock_table: schema::LOCK_TABLE_DEFAULT.to_owned(),
            prefix: String::new(),
        }
    }

    /// The name under which this host is registered; the machine's own name by default. It may be a
    /// label that many machines share: clients are distinguished without it.
    ///
    /// The client records in the registry that the host is in use, when it is built and then once a
    /// day, in the background. A client without permission to write the registry works, but
    /// `lock-hosts remove --inactive-for` treats its host as unused.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Whether to register the host if it is missing, for machines that come and go; `false` by
    /// default, except on a store in memory. A removed host is not missing: it stays removed, and
    /// [`build`](Self::build) fails, until an operator adds it again (`lock-hosts add`).
    pub fn register_host(mut self, register: bool) -> Self {
        self.register_host = register;
        self
    }

    /// Whether to build a client that takes no locks, on a machine that is not registered, such as
    /// an operator's; `false` by default. It shows locks ([`LockClient::contenders`],
    /// [`LockClient::locks`], [`LockClient::queue`]) and revokes them. To show them it needs no
    /// right but to read. Its requests for locks fail before anything is written.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// How long an acquisition waits unless its request says otherwise; also how long
    /// [`LockGuard::unlock`](crate::LockGuard::unlock) and [`LockClient::shutdown`] wait for
    /// acknowledgements. 5 s by default.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// How long rows live without renewal unless a request says otherwise: whole seconds, from 5 to
    /// the longest TTL that the lock table allows; 60 by default. They are renewed at a third of
    /// it. A crashed holder blocks the lock for at most this long plus the clock skew; up to 15 s
    /// longer if a write of it was still under way in an overloaded database.
    ///
    /// A renewal is a read and a write. With 5 s it is due halfway through a lease of 3 s, and has
    /// the other half for both; use 10 s or more where the database may stall for a moment.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Whether the callers of this client use one place in the database in turn; `true` by default.
    ///
    /// Then a release passes the lock on to the client's next caller without any operation. To see
    /// whether other clients wait, the client reads the rows of one replica when it passes the lock
    /// on, every 50 ms at most. Once one is known to wait, the lock is passed on for another
    /// 100 ms; then the client releases its place, and its callers queue in the database again. So
    /// a waiter is overtaken by each client ahead for at most that long and one turn.
    ///
    /// With `false` each acquisition goes through the database: a client with many callers has no
    /// advantage over others, and each grant costs six operations or more.
    pub fn local_handoff(mut self, local_handoff: bool) -> Self {
        self.local_handoff = local_handoff;
        self
    }

    /// How long at most the client keeps an idle lock, so that the next request for it costs no
    /// operation of the database; 1 s by default with [`peers`](Self::peers), otherwise
    /// zero, which keeps none.
    ///
    /// A lock is kept if this client has used it before and the mean pause between two uses is
    /// below this time; for twice that pause, and never beyond half of its lease. Peers get a kept
    /// lock at once. A client without peers finds it taken meanwhile: the keeper looks for such
    /// clients after 50 ms, and each time that the pause has doubled. Once it sees one, it releases
    /// the lock, and keeps it no more for a second, or for up to a minute if they come again and
    /// again.
    ///
    /// If the client dies, the locks that it keeps are blocked until their [TTL](Self::ttl) has
    /// passed, like those that it holds: choose 10 s or so where that is too long. It keeps 10,000
    /// at most. [`LockGuard::unlock`](crate::LockGuard::unlock) of a lock that is kept returns at
    /// once, and [`LockClient::shutdown`] releases all. Without
    /// [`local_handoff`](Self::local_handoff) nothing is kept, and only locks held alone are.
    pub fn keep_idle(mut self, max: Duration) -> Self {
        self.keep_idle = Some(max);
        self
    }

    /// Passes locks on to other clients by message, and takes them over from others; off by
    /// default. All such peers need the table `lock_peers`, which `lock-hosts init` creates, and
    /// the rights to read and to write it.
    ///
    /// Where many processes want one name, each grant through the table costs 11 operations. With
    /// this, a client that finds the lock held asks the holder's client over a socket, and waits in
    /// its line; the holder passes the lock on by message. Connections are encrypted, and each
    /// client proves that it has published its row in `lock_peers`.
    ///
    /// If the client can't connect to its own advertised address, it warns and acts as a guest
    /// only, and tries again every minute. Without a connection, locks are taken through the table.
    #[cfg(feature = "peers")]
    pub fn peers(mut self, options: PeerOptions) -> Self {
        self.peers = Some(options);
        self
    }

    /// Takes turns of other clients over a simulated network.
    #[cfg(any(test, instrumented))]
    pub(crate) fn entrance(mut self, entrance: Arc<dyn Entrance>) -> Self {
        self.entrance = Some(entrance);
        self
    }

    /// Which replicas must answer; [`Consistency::Quorum`] by default. All clients of a lock table
    /// must use the consistency that was recorded when the table was created. Any other is refused.
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// The lock table; `lock_table` by default.
    pub fn lock_table(mut self, name: impl Into<String>) -> Self {
        self.lock_table = name.into();
        self
    }

    /// What the names of all locks of this client begin with in the table, such as `billing/`;
    /// nothing by default, and 1,024 bytes at most. Services that share a lock table can't take
    /// each other's locks, however they name them, if none of their prefixes begins with another
    /// one.
    ///
    /// Names that are given to the client, and those that it returns, are without it; errors, logs
    /// and the tools have all of the name. [`LockClient::locks`] yields only names that begin with
    /// it.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// let billing = LockClient::builder_in_memory(&store).prefix("billing/").build().await?;
    /// let shipping = LockClient::builder_in_memory(&store).prefix("shipping/").build().await?;
    /// let one = billing.lock("customers::7").await?;
    /// let other = shipping.lock("customers::7").await?;
    /// assert_eq!(one.name(), "customers::7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Checks the options and the tables, looks up the host, prepares statements and starts the
    /// client's task on the current runtime.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]: each error says what to do. Nothing was written, except the host's
    /// registration if requested. If the registry does not answer, it is read again for 5 s.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind, except perhaps the host's registration.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn build(self) -> Result<LockClient, BuildError> {
        check_timeout(self.acquire_timeout)?;
        check_prefix(&self.prefix)?;
        let host_name = self.host.clone().unwrap_or_else(hosts::this_host);
        hosts::check_name(&host_name).map_err(RegistryError::from)?;
        let takes_peers = self.peers.is_some();
        let opened = self.backend.open(&self.lock_table, &self.consistency, takes_peers);
        let opened = opened.await?;
        let Opened { store, clock, entropy, max_ttl, max_clock_skew, lock_table } = opened;
        lease_terms(self.ttl, max_ttl, max_clock_skew)?;
        let read = clock.now();
        let registered = if self.read_only {
            None
        } else {
            let host = self.registered(&*store.hosts, &host_name).await?;
            Some(Registered { host, read })
        };
        #[cfg(any(test, instrumented))]
        let entered = self.entrance.clone().map(|it| Box::new(move |id| it.join(id)) as Join);
        #[cfg(not(any(test, instrumented)))]
        let entered: Option<Join> = None;
        let join = match (entered, self.peers) {
            (Some(join), _) => Some(join),
            (None, Some(peers)) => {
                let of = (self.backend.keyspace(), self.lock_table);
                let nodes = self.backend.node_addresses();
                let join = peers.join(Arc::clone(&store.peers), &clock, of, &nodes, &host_name);
                Some(join.await?)
            }
            (None, None) => None,
        };
        let kept = if join.is_some() { KEEP_IDLE_OF_PEERS } else { Duration::ZERO };
        Ok(LockClient::start(ClientSetup {
            store,
            clock,
            entropy,
            registered,
            read_only: self.read_only,
            host_name,
            prefix: self.prefix,
            acquire_timeout: self.acquire_timeout,
            ttl: self.ttl,
            local_handoff: self.local_handoff,
            keep_idle: self.keep_idle.unwrap_or(kept),
            join,
            max_ttl,
            max_clock_skew,
            lock_table: Some(lock_table),
        }))
    }

    /// Looks up the host, and adds it if requested.
    async fn registered(
        &self,
        hosts: &dyn HostTable,
        host_name: &str,
    ) -> Result<RegisteredHost, BuildError> {
        let found = answered_soon(|| host::lookup(hosts, host_name)).await;
        let found = found.map_err(RegistryError::unread)?;
        let host = match found {
            Lookup::Registered(host) => Some(host),
            Lookup::Removed => None,
            Lookup::Missing if self.register_host => {
                self.backend.register(host_name, &self.lock_table).await?
            }
            Lookup::Missing => return Err(self.backend.unknown_host(host_name.to_owned())),
        };
        host.ok_or_else(|| self.backend.removed_host(host_name.to_owned()))
    }
}
