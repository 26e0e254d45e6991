//! The registry of host numbers.
//!
//! Every host that takes locks has a number. It goes into the rows of the host's clients, where it
//! breaks ties between equal tickets. Numbers are given out once and for ever: a host that is
//! removed and added again gets its old one, and no number is ever given to a second name, whatever
//! fails in between.
//!
//! Whoever changes the registry holds the registry's own lock: always in the table `lock_table`, at
//! QUORUM, as host 0, which no host has. A new number is first reserved in a register that only
//! grows, and used once that was acknowledged while the lock was still held. Somebody who dies in
//! between spends a number; the next one continues above it, at most one short TTL later.
//!
//! The tool `lock-hosts` does from a shell what this module does from a program.

mod attempt;
mod error;
mod name;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use scylla::client::session::Session;
use tracing::debug;

use self::attempt::{Attempt, Setback, Written};
pub use self::error::RegistryError;
pub use self::name::{HostNameError, check_name, this_host};
use crate::client::{ClientSetup, LockClient};
use crate::clock::{Clock, SystemClock};
use crate::entropy::{Entropy, SystemEntropy};
use crate::options::{Consistency, MAX_CLOCK_SKEW};
use crate::protocol::TTL_MIN;
use crate::schema::{self, LockTableFacts};
use crate::store::{CassandraStore, Counted, HostRow, MemoryStore, Store};

/// The host number under which the registry itself is locked; hosts have larger ones.
pub(crate) const REGISTRAR: i32 = 0;

/// The object that is locked while the registry is changed.
const REGISTRY_LOCK: &str = "bakery-lock::hosts";

/// How long a change of the registry may take unless told otherwise: longer than somebody who was
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
        let LockTableFacts { keyspace, lock_table, max_clock_skew, .. } = facts;
        let quorum = Consistency::Quorum;
        let store = CassandraStore::prepare(session, &keyspace, &lock_table, &quorum).await;
        let store = Arc::new(store.map_err(RegistryError::unread)?);
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
        Self::over(store.rows(), store.clock(), store.entropy(), MAX_CLOCK_SKEW)
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
            host: REGISTRAR,
            host_name: this_host(),
            acquire_timeout: RELEASE_TIMEOUT,
            // Changes are short, and who dies in the middle of one should not keep others long.
            ttl: TTL_MIN,
            max_ttl: TTL_MIN,
            max_clock_skew,
            // It is made for a change or two, and its bound is not the recorded one.
            lock_table: None,
        });
        HostRegistry { store, clock, client, timeout: TIMEOUT_DEFAULT }
    }

    /// How long [`add`](Self::add) and [`remove`](Self::remove) try, 20 s by default. Somebody who
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

    /// Removes a host: its new acquisitions fail within a minute, held locks stay held. The number
    /// stays with the name. Returns the host, or `None` if no host of that name was ever added.
    /// When the host was removed before, it is returned and nothing is written.
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

    /// All hosts in the order of their names, removed ones too. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Refused`] and [`RegistryError::Unanswered`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(&self) -> Result<Vec<Host>, RegistryError> {
        let registry = self.store.read_registry().await.map_err(RegistryError::unread)?;
        Ok(registry.hosts.into_iter().map(Host::from).collect())
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
}

impl From<HostRow> for Host {
    fn from(row: HostRow) -> Self {
        Host {
            name: row.name,
            number: row.number,
            added_at: system_time(row.added_at_millis),
            removed_at: row.removed_at_millis.map(system_time),
        }
    }
}

/// Reads the registration of a host; `None` when it has none or was removed. One try.
pub(crate) async fn lookup(store: &dyn Store, name: &str) -> Result<Option<Host>, RegistryError> {
    let registry = store.read_registry().await.map_err(RegistryError::unread)?;
    let row = registry.hosts.into_iter().find(|host| host.name == name);
    Ok(row.filter(|host| host.removed_at_millis.is_none()).map(Host::from))
}

fn system_time(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if millis < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    // Only a row that somebody made up has a time that the system can't hold.
    time.unwrap_or(epoch)
}
