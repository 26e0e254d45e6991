//! The registry of host numbers.
//!
//! Every host that takes locks has a number. It goes into the rows of the host's clients, where it
//! breaks ties between equal tickets. Numbers are given out once and for ever: a host that is
//! removed and added again gets its old one, and no number is ever given to a second name, whatever
//! fails in between.
//!
//! A client that changes the registry holds the registry's own lock: always in the table
//! `lock_table`, at QUORUM, as host 0, which no host has. A new number is first reserved in a
//! register that only grows, and used once that was acknowledged while the lock was still held. A
//! client that dies in between spends a number; the next one continues above it, at most one short
//! TTL later. So the register is never below the number of a host, and nothing but it and the
//! host's own row is read to add one, however many hosts there are. Only a row that was written by
//! hand can be above it, until that host is added by this module, which raises the register to it.
//!
//! The tool `lock-hosts` does from a shell what this module does from a program.

mod attempt;
mod error;
mod name;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use scylla::client::session::Session;
use tracing::debug;

use self::attempt::{Attempt, Setback, Written};
pub use self::error::RegistryError;
pub use self::name::{HostNameError, check_name, this_host};
use crate::client::{ClientSetup, LockClient};
use crate::clock::{Clock, SystemClock};
use crate::engine::host::{RegisteredHost, SIGHTING_PAUSE};
use crate::entropy::{Entropy, SystemEntropy};
use crate::options::{Consistency, MAX_CLOCK_SKEW};
use crate::protocol::TTL_MIN;
use crate::schema::{self, LockTableFacts};
use crate::store::{
    CassandraStore, Counted, Embedded, HOSTS_PER_PAGE, HostRow, MemoryStore, Store,
};

/// The shortest time for which a host can be asked not to have been seen: one that is in use is
/// seen once a day, and may miss that for some hours.
pub const UNSEEN_MIN: Duration = Duration::from_secs(2 * SIGHTING_PAUSE.as_secs());

/// The object that is locked while the registry is changed.
const REGISTRY_LOCK: &str = "bakery-lock::hosts";

/// How long a change of the registry may take unless told otherwise: longer than a client that was
/// killed while changing it keeps others waiting.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// How long the release of the registry's lock is waited for; later it expires by its short TTL.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before a change is tried again.
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
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    client: LockClient,
    timeout: Duration,
}

impl HostRegistry {
    /// The registry of `keyspace`. Checks the tables, and starts a task on the current runtime.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Schema`] when the tables are missing or not as they must be;
    /// [`RegistryError::Refused`] and [`RegistryError::Unanswered`]. Nothing was written.
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
        let facts = schema::inspect_registry(&session, keyspace).await?;
        let LockTableFacts { keyspace, lock_table, max_clock_skew, hosts_are_seen, .. } = facts;
        let quorum = Consistency::Quorum;
        let store =
            CassandraStore::prepare(session, &keyspace, &lock_table, &quorum, hosts_are_seen);
        let store = Arc::new(store.await.map_err(RegistryError::unread)?);
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        Ok(Self::over(store, clock, entropy, max_clock_skew))
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

    /// The registry without a cluster.
    pub(crate) fn embedded(Embedded { store, clock, entropy, .. }: Embedded) -> Self {
        Self::over(store, clock, entropy, MAX_CLOCK_SKEW)
    }

    /// The registry in a store, whose lock table is the default one, read and written at QUORUM.
    fn over(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        max_clock_skew: Duration,
    ) -> Self {
        let client = LockClient::start(ClientSetup {
            store: Arc::new(Counted::new(Arc::clone(&store))),
            clock: Arc::clone(&clock),
            entropy,
            // It is made for a change or two, and by hosts that are not registered yet.
            registered: None,
            host_name: this_host(),
            acquire_timeout: RELEASE_TIMEOUT,
            // Changes are short, and a client that dies in one should not keep others long.
            ttl: TTL_MIN,
            max_ttl: TTL_MIN,
            max_clock_skew,
            // It is made for a change or two, and its bound is not the recorded one.
            lock_table: None,
        });
        HostRegistry { store, clock, client, timeout: TIMEOUT_DEFAULT }
    }

    /// How long [`add`](Self::add) and [`remove`](Self::remove) try, 20 s by default. A client that
    /// was killed while changing the registry keeps others waiting for 6 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Adds a host and returns it, with its number. A host that was removed gets its old number
    /// back. When the host is there already, it is returned and nothing is written.
    ///
    /// # Errors
    ///
    /// See [`RegistryError`], which says what each leaves behind. An outcome that is not known is
    /// tried again, from the start and under the lock, until the timeout.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the host may have been added or a number been spent. Adding it
    /// again is safe. The registry's lock is given back in the background.
    pub async fn add(&self, name: &str) -> Result<Host, RegistryError> {
        check_name(name)?;
        self.change(name, async |attempt: &mut Attempt<'_>| attempt.add().await).await
    }

    /// Adds a host unless it is there, and returns it; `None` when it was removed, and stays so.
    pub(crate) async fn register(&self, name: &str) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        self.change(name, async |attempt: &mut Attempt<'_>| attempt.register().await).await
    }

    /// Removes a host: its new acquisitions fail within a minute, held locks stay held, and none of
    /// its clients is built any more, not even one that would register it, until it is
    /// [added](Self::add) again. The number stays with the name. Returns the host, or `None` if no
    /// host of that name was ever added. When the host was removed before, it is returned and
    /// nothing is written.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the host may have been removed. Removing it again is safe. The
    /// registry's lock is given back in the background.
    pub async fn remove(&self, name: &str) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        self.change(name, async |attempt: &mut Attempt<'_>| attempt.remove().await).await
    }

    /// The hosts that are not removed and that no client was seen of for `time`: at least
    /// [`UNSEEN_MIN`], because a client is seen once a day. A host that was never seen counts from
    /// when it was added. A registry that an earlier version made counts from when it was completed
    /// by [`schema::create`]; clients that were built before are not seen. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnseenTooShort`], [`RegistryError::NotSeen`], [`RegistryError::Refused`]
    /// and [`RegistryError::Unanswered`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn unseen_for(&self, time: Duration) -> Result<Vec<Host>, RegistryError> {
        let limit = self.unseen_limit(time).await?;
        let mut hosts = self.list().await?;
        hosts.retain(|host| host.removed_at.is_none() && host.last_seen_millis < limit);
        Ok(hosts)
    }

    /// Removes a host if no client of it was seen for `time`, as for
    /// [`unseen_for`](Self::unseen_for), and returns it; `None` when it was seen, removed or never
    /// added.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add) and [`unseen_for`](Self::unseen_for).
    ///
    /// # Cancel safety
    ///
    /// As for [`remove`](Self::remove).
    pub async fn remove_unseen(
        &self,
        name: &str,
        time: Duration,
    ) -> Result<Option<Host>, RegistryError> {
        check_name(name)?;
        let limit = self.unseen_limit(time).await?;
        let remove = async |attempt: &mut Attempt<'_>| attempt.remove_unseen(limit).await;
        self.change(name, remove).await
    }

    /// Hosts that were seen last before this, in milliseconds since the Unix epoch, were not seen
    /// for `time`. None are as long as that time was not watched.
    async fn unseen_limit(&self, time: Duration) -> Result<i64, RegistryError> {
        if time < UNSEEN_MIN {
            return Err(RegistryError::UnseenTooShort { time });
        }
        let begin = self.store.read_sightings_begin().await.map_err(RegistryError::unread)?;
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
        let row = self.store.read_host(name).await.map_err(RegistryError::unread)?;
        Ok(row.map(Host::from))
    }

    /// All hosts in the order of their names, removed ones too. Takes no lock, and reads page by
    /// page: a host that is added or removed meanwhile may be told as it was before.
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
            let page = self.store.read_hosts(&last).await.map_err(RegistryError::unread)?;
            let is_last = page.len() < HOSTS_PER_PAGE;
            hosts.extend(page.into_iter().map(Host::from));
            match hosts.last() {
                Some(host) if !is_last => last.clone_from(&host.name),
                Some(_) | None => return Ok(hosts),
            }
        }
    }

    /// Gives back the registry's lock, should a dropped future have left it held, and waits at most
    /// 2 s for that. Programs end with it, or else the next change may wait for the lock's TTL.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it goes on in the background when the future is dropped.
    pub async fn close(&self) {
        if let Err(error) = self.client.shutdown().await {
            debug!(%error, "the lock of the registry expires by its ttl");
        }
    }

    /// Makes a change under the registry's lock, again and again until it is known to be made.
    async fn change<T>(
        &self,
        name: &str,
        make: impl AsyncFn(&mut Attempt<'_>) -> Result<T, Setback>,
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
            let setback = match made {
                Ok(made) => {
                    // What was changed stays changed; the lock expires soon if it must.
                    if let Err(error) = guard.unlock().await {
                        debug!(%error, "the lock of the registry was not given back in time");
                    }
                    return Ok(made);
                }
                Err(setback) => setback,
            };
            drop(guard);
            debug!(name, ?setback, "the registry was not changed for certain");
            if setback.is_final() || waited() + RETRY_PAUSE >= self.timeout {
                return Err(written.set_back(name, waited(), setback));
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

    /// Its number, 1 or more, which no other name ever had or will have.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// When it was added first.
    #[must_use]
    pub fn added_at(&self) -> SystemTime {
        self.added_at
    }

    /// When it was removed, if it is.
    #[must_use]
    pub fn removed_at(&self) -> Option<SystemTime> {
        self.removed_at
    }

    /// When a client of it was seen, to a day; `None` when none ever was. Clients that may not
    /// write the registry are not seen.
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
    // Only a row that was made up has a time that the system can't hold.
    time.unwrap_or(epoch)
}
