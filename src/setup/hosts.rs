//! The registry of host numbers.
//!
//! Every host that takes locks has a number. It is part of the rows of the host's clients, where it
//! breaks ties between equal tickets. A number belongs to one name permanently: a host that is
//! removed and added again gets its old number, and no failure gives a number to a second name.
//!
//! A client that changes the registry holds the registry's own lock: always in the table
//! `lock_table`, at QUORUM, as host 0, a number that no host has. A new number is first reserved in
//! a register that only grows, and used once the reservation is acknowledged while the lock is
//! still held. A client that dies in between spends a number; the next client continues above it,
//! at most one short TTL later, so the register is never below the number of a host, and adding a
//! host reads only the register and the host's own row, however many hosts there are. Only a row
//! written by hand can be above the register, until this module adds that host and raises the
//! register to its number.
//!
//! The tool `lock-hosts` does the same from a shell.

mod attempt;
mod error;
mod name;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use scylla::client::session::Session;
use tracing::debug;

use self::attempt::{Attempt, AttemptError, Written};
pub use self::error::RegistryError;
pub use self::name::{HostNameError, check_name, this_host};
use crate::client::{ClientSetup, LockClient};
use crate::clock::{Clock, SystemClock};
use crate::context::retry::answered_soon;
use crate::core::bakery::TTL_MIN;
use crate::driver::host::{RegisteredHost, SEEN_EVERY};
use crate::entropy::{Entropy, SystemEntropy};
use crate::options::{Consistency, MAX_CLOCK_SKEW, REGISTRY_LOCK};
use crate::setup::schema::{self, LockTableFacts};
#[cfg(feature = "redis")]
use crate::store::Masters;
use crate::store::{
    CassandraStore, Embedded, Extras, HOSTS_PER_PAGE, HostRow, HostTable, MemoryStore, Store,
};

/// The shortest unseen time that can be requested: a host in use is seen once a day, sometimes some
/// hours late.
pub const UNSEEN_MIN: Duration = Duration::from_secs(2 * SEEN_EVERY.as_secs());

/// The default timeout of a change of the registry: longer than a client killed during a change
/// blocks others.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// How long to wait for the release of the registry's lock; later it expires by its short TTL.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before a change is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The registry of host numbers of one keyspace.
///
/// ```no_run
/// # async fn example(session: std::sync::Arc<scylla::client::session::Session>)
/// # -> Result<(), bakery_lock::hosts::RegistryError> {
/// use bakery_lock::hosts::{HostRegistry, this_host};
///
/// let registry = HostRegistry::new(session, "bakery_lock").await?;
/// let host = registry.add(&this_host()).await?;
/// println!("{} has number {}", host.name(), host.number());
/// registry.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HostRegistry {
    table: Arc<dyn HostTable>,
    clock: Arc<dyn Clock>,
    client: LockClient,
    timeout: Duration,
}

impl HostRegistry {
    /// Opens the registry of `keyspace`. Checks the tables, and starts a task on the current
    /// runtime.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Schema`] when the tables are missing or unfit; [`RegistryError::Refused`]
    /// and [`RegistryError::Unanswered`]. Nothing was written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn new(
        session: impl Into<Arc<Session>>,
        keyspace: &str,
    ) -> Result<Self, RegistryError> {
        let session = session.into();
        let facts = schema::read_registry_facts(&session, keyspace).await?;
        let LockTableFacts { keyspace, lock_table, max_clock_skew, extras, .. } = facts;
        let quorum = Consistency::Quorum;
        // The registry has no use for peers.
        let extras = Extras { peers: false, ..extras };
        let store = CassandraStore::prepare(session, &keyspace, &lock_table, &quorum, extras);
        let store = Arc::new(store.await.map_err(RegistryError::unread)?);
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        Ok(Self::over(store.into(), clock, entropy, max_clock_skew))
    }

    /// The registry of a memory store, for examples and tests.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use]
    pub fn in_memory(store: &MemoryStore) -> Self {
        Self::embedded(store.embedded())
    }

    /// The registry of a lock table on masters. Each lock table has one of its own.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Masters`]. Nothing was written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[cfg(feature = "redis")]
    pub async fn on_masters(masters: &Masters, lock_table: &str) -> Result<Self, RegistryError> {
        let store = super::masters::open(masters, lock_table).await?;
        let max_clock_skew = store.settings().max_clock_skew;
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        Ok(Self::over(store.into(), clock, entropy, max_clock_skew))
    }

    /// The registry without a cluster.
    pub(crate) fn embedded(Embedded { store, clock, entropy, .. }: Embedded) -> Self {
        Self::over(store, clock, entropy, MAX_CLOCK_SKEW)
    }

    /// The registry in a store with the default lock table, read and written at QUORUM.
    fn over(
        store: Store,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        max_clock_skew: Duration,
    ) -> Self {
        let table = Arc::clone(&store.hosts);
        let client = LockClient::start(ClientSetup {
            store,
            clock: Arc::clone(&clock),
            entropy,
            // It serves a change or two, also on hosts that are not registered yet.
            registered: None,
            read_only: false,
            host_name: this_host(),
            prefix: String::new(),
            acquire_timeout: RELEASE_TIMEOUT,
            // Changes are short, and a client that dies during one should not block others for
            // long.
            ttl: TTL_MIN,
            local_handoff: true,
            keep_idle: Duration::ZERO,
            join: None,
            max_ttl: TTL_MIN,
            max_clock_skew,
            // It serves a change or two, and its bound is not the recorded one.
            lock_table: None,
        });
        HostRegistry { table, clock, client, timeout: TIMEOUT_DEFAULT }
    }

    /// The timeout of [`add`](Self::add) and [`remove`](Self::remove), 20 s by default. A client
    /// killed during a change of the registry blocks others for 6 s. A read that is not answered is
    /// repeated for 5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Adds a host and returns it, with its number. A removed host gets its old number back. If the
    /// host is already registered, it is returned and nothing is written.
    ///
    /// # Errors
    ///
    /// See [`RegistryError`], which states what each error leaves behind. A change with an unknown
    /// outcome is retried, from the start and under the lock, until the timeout.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the host may have been added or a number spent. Adding it again is
    /// safe. The registry's lock is released in the background.
    pub async fn add(&self, name: &str) -> Result<Host, RegistryError> {
        check_name(name)?;
        self.change(name, async |attempt: &mut Attempt<'_>| attempt.add().await).await
    }

    /// Adds a host unless it is registered, and returns it; `None` if it was removed, and stays so.
    ///
    /// Machines that share a name may all start at once and wait for the registry's lock, so a
    /// client that did not obtain it in time may find the host registered by another one.
    pub(crate) async fn register(&self, name: &str) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        let register = async |attempt: &mut Attempt<'_>| attempt.register().await;
        match self.change(name, register).await {
            Err(locked @ RegistryError::Locked(_)) => match self.get(name).await? {
                Some(host) => Ok(Some(host).filter(|host| host.removed_at.is_none())),
                None => Err(locked),
            },
            registered => registered,
        }
    }

    /// Removes a host: its new acquisitions fail within a minute, or, while its clients can't read
    /// the registry, as soon as they can; held locks stay held, and none of its clients can be
    /// built, not even one that registers its host, until it is [added](Self::add) again. The
    /// number stays with the name. Returns the host, or `None` if no host of that name was ever
    /// added. If the host is already removed, it is returned and nothing is written.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the host may have been removed. Removing it again is safe. The
    /// registry's lock is released in the background.
    pub async fn remove(&self, name: &str) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        self.change(name, async |attempt: &mut Attempt<'_>| attempt.remove().await).await
    }

    /// All hosts, except removed ones, with no client seen for `time`: at least [`UNSEEN_MIN`],
    /// because a client is seen once a day. For a host that was never seen, the time starts at its
    /// addition. For a registry of an earlier version, it starts at the completion by
    /// [`schema::create`]; clients built before are not seen. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnseenTooShort`], [`RegistryError::NotSeen`], [`RegistryError::Refused`]
    /// and [`RegistryError::Unanswered`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn inactive_for(&self, time: Duration) -> Result<Vec<Host>, RegistryError> {
        let limit = self.inactive_limit(time).await?;
        let mut hosts = self.list().await?;
        hosts.retain(|host| host.removed_at.is_none() && host.last_seen_millis < limit);
        Ok(hosts)
    }

    /// Removes a host if no client of it was seen for `time`, as in
    /// [`inactive_for`](Self::inactive_for), and returns it; `None` if it was seen, removed or
    /// never added.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add) and [`inactive_for`](Self::inactive_for).
    ///
    /// # Cancel safety
    ///
    /// As for [`remove`](Self::remove).
    pub async fn remove_inactive(
        &self,
        name: &str,
        time: Duration,
    ) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        let limit = self.inactive_limit(time).await?;
        let remove = async |attempt: &mut Attempt<'_>| attempt.remove_inactive(limit).await;
        self.change(name, remove).await
    }

    /// The limit for `time`, in milliseconds since the Unix epoch: a host last seen before it is
    /// unseen. No host is until hosts have been seen for that long.
    async fn inactive_limit(&self, time: Duration) -> Result<i64, RegistryError> {
        if time < UNSEEN_MIN {
            return Err(RegistryError::UnseenTooShort { time });
        }
        let begin = answered_soon(|| self.table.read_seen_since()).await;
        let begin = begin.map_err(RegistryError::unread)?;
        let begin = begin.ok_or(RegistryError::NotSeen)?;
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let limit = (self.clock.unix_micros() / 1000).saturating_sub(millis);
        Ok(if begin <= limit { limit } else { i64::MIN })
    }

    /// One host, removed or not; `None` if no host of that name was ever added. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Name`], [`RegistryError::Refused`] and [`RegistryError::Unanswered`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn get(&self, name: &str) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        let row = answered_soon(|| self.table.read_host(name)).await;
        let row = row.map_err(RegistryError::unread)?;
        Ok(row.map(Host::from))
    }

    /// All hosts in the order of their names, including removed ones. Takes no lock, and reads page
    /// by page: a host added or removed meanwhile may appear as it was before.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Refused`] and [`RegistryError::Unanswered`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(&self) -> Result<Vec<Host>, RegistryError> {
        let mut hosts = Vec::new();
        let mut last = String::new();
        loop {
            let page = answered_soon(|| self.table.read_hosts(&last)).await;
            let page = page.map_err(RegistryError::unread)?;
            let is_last = page.len() < HOSTS_PER_PAGE;
            hosts.extend(page.into_iter().map(Host::from));
            match hosts.last() {
                Some(host) if !is_last => last.clone_from(&host.name),
                Some(_) | None => return Ok(hosts),
            }
        }
    }

    /// Releases the registry's lock if a dropped future left it held, and waits at most 2 s for
    /// that. Call it before the program ends, or the next change may wait for the lock's TTL.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it continues in the background if the future is dropped.
    pub async fn close(&self) {
        if let Err(error) = self.client.shutdown().await {
            debug!(%error, "the lock of the registry expires by its ttl");
        }
    }

    /// Makes a change under the registry's lock, with retries until it is confirmed.
    async fn change<T>(
        &self,
        name: &str,
        make: impl AsyncFn(&mut Attempt<'_>) -> Result<T, AttemptError>,
    ) -> Result<T, RegistryError> {
        let began = self.clock.elapsed();
        let waited = || self.clock.elapsed().saturating_sub(began);
        let mut written = Written::Nothing;
        loop {
            let left = self.timeout.saturating_sub(waited());
            let request = self.client.request(REGISTRY_LOCK).timeout(left);
            let guard = match request.acquire().await {
                Ok(guard) => guard,
                Err(cause) => return Err(written.unlocked(name, waited(), cause)),
            };
            let mut attempt = Attempt { registry: self, guard: &guard, name, written };
            let made = make(&mut attempt).await;
            written = attempt.written;
            let last_error = match made {
                Ok(made) => {
                    // The change is made either way; an unreleased lock expires soon.
                    if let Err(error) = guard.unlock().await {
                        debug!(%error, "the lock of the registry was not given back in time");
                    }
                    return Ok(made);
                }
                Err(last_error) => last_error,
            };
            drop(guard);
            debug!(name, ?last_error, "the registry was not changed for certain");
            if last_error.is_final() || waited() + RETRY_PAUSE >= self.timeout {
                return Err(written.set_back(name, waited(), last_error));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// A host of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    number: i32,
    added_at: SystemTime,
    removed_at: Option<SystemTime>,
    seen_at_millis: Option<i64>,
    last_seen_millis: i64,
}

impl Host {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, 1 or more. No other name ever had it or will have it.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// When it was first added.
    #[must_use]
    pub fn added_at(&self) -> SystemTime {
        self.added_at
    }

    /// When it was removed; `None` if it is not removed.
    #[must_use]
    pub fn removed_at(&self) -> Option<SystemTime> {
        self.removed_at
    }

    /// When a client of it was last seen, to a day; `None` if none ever was. Clients without write
    /// permission on the registry are not seen.
    #[must_use]
    pub fn seen_at(&self) -> Option<SystemTime> {
        self.seen_at_millis.map(system_time)
    }

    /// The host as its clients know it.
    pub(crate) fn registered(&self) -> RegisteredHost {
        RegisteredHost { number: self.number, seen_at_millis: self.seen_at_millis }
    }
}

impl From<HostRow> for Host {
    fn from(row: HostRow) -> Self {
        Host {
            last_seen_millis: row.last_seen_millis(),
            name: row.name,
            number: row.number,
            added_at: system_time(row.added_at_millis),
            removed_at: row.removed_at_millis.map(system_time),
            seen_at_millis: row.seen_at_millis,
        }
    }
}

pub(crate) fn system_time(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if millis < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    // Only a forged row has a time that the system can't represent.
    time.unwrap_or(epoch)
}
