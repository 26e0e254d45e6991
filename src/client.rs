//! The lock client, its builder, and requests.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug_span;
use uuid::Uuid;

use crate::assumptions::{Assumptions, Watch};
use crate::clock::{Clock, Stamps, SystemClock};
use crate::dispatch::{Call, Dispatcher, Registration};
use crate::entropy::{Entropy, SystemEntropy};
use crate::error::{BuildError, LockError, ShutdownError};
use crate::guard::LockGuard;
use crate::hold::HoldTerms;
use crate::hosts::{self, Host, HostRegistry, RegistryError};
use crate::local::Caller;
use crate::options::{
    ACQUIRE_TIMEOUT_DEFAULT, Consistency, MAX_CLOCK_SKEW, TTL_DEFAULT, check_name, check_timeout,
    lease_terms, shown,
};
use crate::process::Process;
use crate::protocol::{Acquire, ContenderId, Mode, Patience};
use crate::runner::Shared;
use crate::schema;
use crate::store::{CassandraStore, Counted, MemoryStore, Statistics, Store};

/// Takes locks. Cheap to clone; clones are the same client.
///
/// Callers of one client who want the same object wait in a queue in memory; one of them at a time
/// stands in the queue in the database.
#[derive(Clone)]
pub struct LockClient {
    inner: Arc<Inner>,
}

struct Inner {
    calls: mpsc::UnboundedSender<Call>,
    ended: CancellationToken,
    store: Arc<Counted>,
    shared: Arc<Shared>,
    owner: String,
    acquire_timeout: Duration,
    ttl: Duration,
    max_ttl: Duration,
    max_clock_skew: Duration,
}

/// Why work of a client came to no end.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The acquire timeout was over.
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The client's task has ended.
    Closed,
    /// This process is a fork.
    Forked,
}

impl LockClient {
    /// Builds a client on a session; its tables are in `keyspace`.
    pub fn builder(
        session: impl Into<Arc<Session>>,
        keyspace: impl Into<String>,
    ) -> LockClientBuilder {
        LockClientBuilder::new(Backend::Cassandra {
            session: session.into(),
            keyspace: keyspace.into(),
        })
    }

    /// Builds a client on a store in memory, for examples and tests. All clients of one store
    /// exclude each other; nobody else does.
    pub fn builder_in_memory(store: &MemoryStore) -> LockClientBuilder {
        LockClientBuilder::new(Backend::Memory(store.clone()))
    }

    /// Acquires the lock of `name`, with the client's timeout and TTL.
    ///
    /// Those who wait are let in in the order in which they drew their tickets. Uncontended it
    /// costs two quorum operations.
    ///
    /// While locks are held, and once a minute when they are asked for, the client looks in the
    /// background whether clocks still agree and the lock table is still the same. If not, it gives
    /// out no lock any more: [`LockError::ClocksDiffer`], [`LockError::TableGone`].
    ///
    /// # Errors
    ///
    /// See [`LockError`]. In every case nothing is held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue and leaves nothing held and no row,
    /// at whatever point it is dropped: what was written is deleted in the background.
    pub async fn lock(&self, name: &str) -> Result<LockGuard, LockError> {
        self.request(name).acquire().await
    }

    /// Acquires the lock of `name` if nobody holds it or waits for it, without waiting for others.
    ///
    /// Of tries made at the same moment at most one wins, and it may be that none does: a try takes
    /// another one that is about to fail for a holder.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. That the lock is taken is no error but `None`.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self, name: &str) -> Result<Option<LockGuard>, LockError> {
        self.request(name).try_acquire().await
    }

    /// A request for the lock of `name` with options of its own.
    pub fn request(&self, name: impl Into<String>) -> LockRequest {
        LockRequest {
            inner: Arc::clone(&self.inner),
            name: name.into(),
            timeout: self.inner.acquire_timeout,
            ttl: self.inner.ttl,
            renew: true,
            max_hold: None,
            grace: None,
            label: None,
        }
    }

    /// Refuses new requests, ends waiting ones with [`LockError::Closed`], gives back what is held
    /// (guards become lost: the client was shut down) and waits until that is acknowledged.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] when that took longer than the acquire timeout; it goes on in the
    /// background, while the runtime lives.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown goes on in the background when the future is dropped.
    pub async fn shutdown(&self) -> Result<(), ShutdownError> {
        // The task may have ended before: then there is nothing to shut down.
        let _ = self.inner.calls.send(Call::Shutdown);
        let waited = self.inner.acquire_timeout;
        let ended = tokio::time::timeout(waited, self.inner.ended.cancelled());
        ended.await.map_err(|_| ShutdownError { waited })
    }

    /// How many operations this client has made since it was built.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.store.statistics()
    }

    /// Does work beside the acquisitions, as long as the client's task lives and the acquire
    /// timeout is not over.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        if !self.inner.shared.process.is_current() {
            return Err(Interruption::Forked);
        }
        let waited = self.inner.acquire_timeout;
        tokio::select! {
            biased;
            // Its connections may have ended with its runtime, and then nothing answers any more.
            () = self.inner.ended.cancelled() => Err(Interruption::Closed),
            done = tokio::time::timeout(waited, work) => {
                done.map_err(|_| Interruption::TimedOut { waited })
            }
        }
    }

    /// What the client shares with its task.
    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Host name and process id, for people.
    pub(crate) fn owner(&self) -> &str {
        &self.inner.owner
    }

    /// The longest TTL that the lock table allows.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.inner.max_ttl
    }

    /// Starts the task of a client.
    pub(crate) fn start(setup: ClientSetup) -> Self {
        let ClientSetup {
            store,
            clock,
            entropy,
            host,
            host_name,
            acquire_timeout,
            ttl,
            max_ttl,
            max_clock_skew,
            lock_table,
        } = setup;
        let (calls, receiver) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let shared = Arc::new(Shared {
            store: Arc::clone(&store) as Arc<dyn Store>,
            clock,
            stamps: Stamps::default(),
            id: ContenderId { host, client: entropy.client().as_u128(), slot: 0 },
            entropy,
            answer_timeout: acquire_timeout,
            process: Process::current(),
        });
        // The registry's own lock is taken by hosts that are not registered yet.
        let registration = (host != hosts::REGISTRAR)
            .then(|| Registration::new(host_name.clone(), host, shared.clock.elapsed()));
        let watch = lock_table.map(|lock_table| {
            Watch::new(Assumptions { max_clock_skew, lock_table }, ttl, shared.clock.elapsed())
        });
        let drop_guard = ended.clone().drop_guard();
        let dispatcher =
            Dispatcher::new(Arc::clone(&shared), receiver, registration, watch, drop_guard);
        tokio::spawn(dispatcher.run());
        let owner = format!("{host_name} pid {}", std::process::id());
        LockClient {
            inner: Arc::new(Inner {
                calls,
                ended,
                store,
                shared,
                owner,
                acquire_timeout,
                ttl,
                max_ttl,
                max_clock_skew,
            }),
        }
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("owner", &self.inner.owner)
            .field("acquire_timeout", &self.inner.acquire_timeout)
            .field("ttl", &self.inner.ttl)
            .finish_non_exhaustive()
    }
}

/// What a client is made of.
pub(crate) struct ClientSetup {
    /// Where the rows live.
    pub(crate) store: Arc<Counted>,
    /// The clock of everything that the client does.
    pub(crate) clock: Arc<dyn Clock>,
    /// The randomness of everything that the client does.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Number of the host, from the registry.
    pub(crate) host: i32,
    /// Name of the host.
    pub(crate) host_name: String,
    /// How long acquisitions, releases and a shutdown wait.
    pub(crate) acquire_timeout: Duration,
    /// How long rows live without renewal.
    pub(crate) ttl: Duration,
    /// The longest TTL that the lock table allows.
    pub(crate) max_ttl: Duration,
    /// How far clocks may differ, by the lock table's settings.
    pub(crate) max_clock_skew: Duration,
    /// The id of the lock table, if somebody shall look whether it and the clocks stay as they are.
    pub(crate) lock_table: Option<Uuid>,
}

/// A request for a lock, with options of its own.
#[derive(Clone)]
#[must_use = "a request does nothing until `acquire` or `try_acquire`"]
pub struct LockRequest {
    inner: Arc<Inner>,
    name: String,
    timeout: Duration,
    ttl: Duration,
    renew: bool,
    max_hold: Option<Duration>,
    grace: Option<Duration>,
    label: Option<String>,
}

impl LockRequest {
    /// How long to wait, instead of the client's acquire timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long rows live without renewal, instead of the client's TTL: whole seconds, from 5 to
    /// what the lock table was made for.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Whether to renew the lease while the lock is held; `true` by default. With `false` the lock
    /// is held for one lease at most, which is a second and the clock skew less than the TTL.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// How long the lock should be held at most; by default there is no limit, and a task that
    /// hangs while its process lives holds it for ever.
    ///
    /// When the time is over the guard says [`Expiring`](crate::GuardState::Expiring). When the
    /// [grace](Self::grace) is over too, the lock is lost and given to the next one.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long a holder that exceeds [`max_hold`](Self::max_hold) may take to come to an end; by
    /// default as long again, and a minute at least.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// What others see beside host name and process id when they look who holds the lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Acquires the lock: [`LockClient::lock`] with this request's options.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. In every case nothing is held.
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::lock`].
    #[expect(clippy::missing_panics_doc, reason = "only a bug of the runner gets there")]
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let guard = self.send(Patience::Wait).await?;
        Ok(guard.expect("only a try comes back without a guard"))
    }

    /// Acquires the lock if nobody holds it or waits for it: [`LockClient::try_lock`] with this
    /// request's options. The timeout bounds how long the database is waited for.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. That the lock is taken is no error but `None`.
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::lock`].
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        self.send(Patience::Try).await
    }

    async fn send(self, patience: Patience) -> Result<Option<LockGuard>, LockError> {
        check_name(&self.name)?;
        check_timeout(self.timeout)?;
        let terms = lease_terms(self.ttl, self.inner.max_ttl, self.inner.max_clock_skew)?;
        let hold_terms = HoldTerms::new(self.max_hold, self.grace)?;
        if !self.inner.shared.process.is_current() {
            return Err(LockError::Forked);
        }
        let owner = match &self.label {
            Some(label) => format!("{} {label}", self.inner.owner),
            None => self.inner.owner.clone(),
        };
        let acquire = Acquire { mode: Mode::Exclusive, terms, patience, renew: self.renew, owner };
        let asked = self.inner.shared.clock.elapsed();
        let deadline = asked.saturating_add(self.timeout);
        let span = debug_span!(parent: None, "lock", object = shown(&self.name), ?patience);
        let (reply, answer) = oneshot::channel();
        let caller = Caller { acquire, hold_terms, asked, deadline, reply, span };
        let call = Call::Acquire(Arc::from(self.name), caller);
        self.inner.calls.send(call).map_err(|_| LockError::Closed)?;
        answer.await.unwrap_or(Err(LockError::Closed))
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .field("ttl", &self.ttl)
            .field("renew", &self.renew)
            .field("max_hold", &self.max_hold)
            .field("grace", &self.grace)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

/// Builds a [`LockClient`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockClientBuilder {
    backend: Backend,
    host: Option<String>,
    register_host: bool,
    acquire_timeout: Duration,
    ttl: Duration,
    consistency: Consistency,
    lock_table: String,
}

#[derive(Clone, Debug)]
enum Backend {
    Cassandra { session: Arc<Session>, keyspace: String },
    Memory(MemoryStore),
}

impl LockClientBuilder {
    fn new(backend: Backend) -> Self {
        LockClientBuilder {
            backend,
            host: None,
            register_host: false,
            acquire_timeout: ACQUIRE_TIMEOUT_DEFAULT,
            ttl: TTL_DEFAULT,
            consistency: Consistency::default(),
            lock_table: schema::LOCK_TABLE_DEFAULT.to_owned(),
        }
    }

    /// The name under which this host is registered; the machine's own name by default. It may be a
    /// label that many machines share: clients tell themselves apart without it.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Whether to register the host when it is missing, for machines that come and go; `false` by
    /// default.
    pub fn register_host(mut self, register: bool) -> Self {
        self.register_host = register;
        self
    }

    /// How long an acquisition waits unless its request says otherwise; also how long
    /// [`LockGuard::unlock`] and [`LockClient::shutdown`] wait for acknowledgements. 5 s by
    /// default.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// How long rows live without renewal unless a request says otherwise: whole seconds, from 5 to
    /// what the lock table was made for; 60 by default. They are renewed at a third of it. A
    /// crashed holder blocks the lock for at most this long, and the clock skew.
    ///
    /// After a renewal is due, 5 s leave little more than a second for it, which is one try. Take
    /// 10 s or more where the database may stall for a moment.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Which replicas have to answer; [`Consistency::Quorum`] by default. All clients of a lock
    /// table have to say the same: what was recorded when the table was made. Another one is
    /// refused.
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// The lock table; `lock_table` by default.
    pub fn lock_table(mut self, name: impl Into<String>) -> Self {
        self.lock_table = name.into();
        self
    }

    /// Checks the options and the tables, looks the host up, prepares statements and starts the
    /// client's task on the current runtime.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]: each says what to do. Nothing was written, but the host's registration
    /// where it was asked for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind but perhaps the host's registration.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn build(self) -> Result<LockClient, BuildError> {
        check_timeout(self.acquire_timeout)?;
        let host_name = self.host.clone().unwrap_or_else(hosts::this_host);
        hosts::check_name(&host_name).map_err(RegistryError::from)?;
        let opened = self.backend.open(&self).await?;
        let Opened { store, clock, entropy, max_ttl, max_clock_skew, lock_table } = opened;
        lease_terms(self.ttl, max_ttl, max_clock_skew)?;
        let store = Arc::new(Counted::new(store));
        let host = match hosts::lookup(&*store, &host_name).await? {
            Some(host) => host,
            None if self.register_host => self.backend.register(&host_name).await?,
            None => return Err(self.backend.unknown_host(host_name)),
        };
        Ok(LockClient::start(ClientSetup {
            store,
            clock,
            entropy,
            host: host.number(),
            host_name,
            acquire_timeout: self.acquire_timeout,
            ttl: self.ttl,
            max_ttl,
            max_clock_skew,
            lock_table: Some(lock_table),
        }))
    }
}

struct Opened {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    max_ttl: Duration,
    max_clock_skew: Duration,
    lock_table: Uuid,
}

impl Backend {
    async fn open(&self, options: &LockClientBuilder) -> Result<Opened, BuildError> {
        match self {
            Backend::Cassandra { session, keyspace } => {
                let LockClientBuilder { lock_table, consistency, .. } = options;
                let facts = schema::inspect(session, keyspace, lock_table, consistency).await?;
                let store = CassandraStore::prepare(
                    Arc::clone(session),
                    &facts.keyspace,
                    &facts.lock_table,
                    consistency,
                );
                let store = store.await?;
                facts.confirm(&store).await?;
                Ok(Opened {
                    store: Arc::new(store),
                    clock: Arc::new(SystemClock::new()),
                    entropy: Arc::new(SystemEntropy),
                    max_ttl: facts.max_ttl,
                    max_clock_skew: facts.max_clock_skew,
                    lock_table: facts.id,
                })
            }
            Backend::Memory(store) => Ok(Opened {
                store: store.rows(),
                clock: store.clock(),
                entropy: store.entropy(),
                max_ttl: MemoryStore::max_ttl(),
                max_clock_skew: MAX_CLOCK_SKEW,
                lock_table: store.lock_table_id(),
            }),
        }
    }

    async fn register(&self, host_name: &str) -> Result<Host, BuildError> {
        let registry = match self {
            Backend::Cassandra { session, keyspace } => {
                HostRegistry::new(Arc::clone(session), keyspace).await?
            }
            Backend::Memory(store) => HostRegistry::in_memory(store),
        };
        let host = registry.add(host_name).await;
        registry.close().await;
        Ok(host?)
    }

    fn unknown_host(&self, host: String) -> BuildError {
        let keyspace = match self {
            Backend::Cassandra { keyspace, .. } => keyspace.clone(),
            Backend::Memory(_) => "(in memory)".to_owned(),
        };
        BuildError::UnknownHost { host, keyspace }
    }
}
