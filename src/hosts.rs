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

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use scylla::client::session::Session;
use thiserror::Error;
use tracing::debug;

use crate::client::{ClientSetup, LockClient};
use crate::clock::{Clock, SystemClock};
use crate::error::{DatabaseError, LockError};
use crate::guard::{GuardState, LockGuard};
use crate::options::{Consistency, MAX_CLOCK_SKEW, shown};
use crate::protocol::TTL_MIN;
use crate::schema::{self, LockTableFacts, SchemaError};
use crate::store::{CassandraStore, Counted, HostRow, MemoryStore, Registry, Store};

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

/// The longest host name, in bytes.
const NAME_BYTES_MAX: usize = 255;

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
        let store = Arc::new(store.map_err(unread)?);
        Ok(Self::over(store, Arc::new(SystemClock::new()), max_clock_skew))
    }

    /// The registry of a memory store, for examples and tests.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use]
    pub fn in_memory(store: &MemoryStore) -> Self {
        Self::over(Arc::new(store.clone()), store.clock(), MAX_CLOCK_SKEW)
    }

    /// The registry in a store, whose lock table is the default one, read and written at QUORUM.
    fn over(store: Arc<dyn Store>, clock: Arc<dyn Clock>, max_clock_skew: Duration) -> Self {
        let client = LockClient::start(ClientSetup {
            store: Arc::new(Counted::new(Arc::clone(&store))),
            clock: Arc::clone(&clock),
            host: REGISTRAR,
            host_name: this_host(),
            acquire_timeout: RELEASE_TIMEOUT,
            // Changes are short, and who dies in the middle of one should not keep others long.
            ttl: TTL_MIN,
            max_ttl: TTL_MIN,
            max_clock_skew,
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
        let registry = self.store.read_registry().await.map_err(unread)?;
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

/// Why the registry could not be read or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name can't be used. Nothing was sent.
    #[error(transparent)]
    Name(#[from] HostNameError),
    /// The tables are missing, or not as they must be. Nothing was changed.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Somebody else changes the registry, or the database does not answer. Nothing was changed.
    #[error("the registry of hosts could not be locked, so nothing was changed; try again")]
    Locked(#[source] LockError),
    /// The database did not answer. Nothing was changed, but a number may have been spent.
    #[error("the registry of hosts did not answer, so nothing was changed; try again")]
    Unanswered(#[source] DatabaseError),
    /// The database refuses a statement: a table is missing, or access is denied. Nothing was
    /// changed, but a number may have been spent.
    #[error("the database refuses to read or write the registry of hosts; run `lock-hosts check`")]
    Refused(#[source] DatabaseError),
    /// The time was over before the change was known to be made. It may be made, or be made later;
    /// and numbers may have been spent, which does no harm. Doing the same again is safe.
    #[error(
        "host {name:?} may or may not have been changed in the registry, as that was not confirmed \
         within {waited:?}; do the same again"
    )]
    Unconfirmed {
        /// The host's name.
        name: String,
        /// How long was tried.
        waited: Duration,
        /// The last error of the database, if it said one.
        #[source]
        cause: Option<DatabaseError>,
    },
    /// All 2,147,483,647 numbers are spent, or somebody wrote the largest one. Nothing was changed.
    #[error("no host number is left in the registry")]
    NoNumberLeft,
}

/// A name that a host can't have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("host name {name:?} {problem}; use 1 to {NAME_BYTES_MAX} bytes of visible text")]
pub struct HostNameError {
    name: String,
    problem: String,
}

/// Checks a host name: 1 to 255 bytes of visible text, without blanks and commas.
///
/// # Errors
///
/// [`HostNameError`] says what is wrong with it.
pub fn check_name(name: &str) -> Result<(), HostNameError> {
    let problem = match name.chars().find(|&c| is_unfit(c)) {
        _ if name.is_empty() => "is empty".to_owned(),
        _ if name.len() > NAME_BYTES_MAX => format!("has {} bytes", name.len()),
        Some(unfit) => format!("contains {unfit:?}"),
        None => return Ok(()),
    };
    Err(HostNameError { name: shown(name), problem })
}

/// The name of this machine, under which it is registered unless told otherwise.
#[must_use]
pub fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Reads the registration of a host; `None` when it has none or was removed. One try.
pub(crate) async fn lookup(store: &dyn Store, name: &str) -> Result<Option<Host>, RegistryError> {
    let registry = store.read_registry().await.map_err(unread)?;
    let row = registry.hosts.into_iter().find(|host| host.name == name);
    Ok(row.filter(|host| host.removed_at_millis.is_none()).map(Host::from))
}

/// One try of a change, under the registry's lock.
struct Attempt<'a> {
    registry: &'a HostRegistry,
    guard: &'a LockGuard,
    name: &'a str,
    written: Written,
}

impl Attempt<'_> {
    async fn add(&mut self) -> Result<Host, Setback> {
        let registry = self.registry.store.read_registry().await?;
        let row = registry.hosts.iter().find(|host| host.name == self.name);
        let row = match row {
            Some(row) if row.removed_at_millis.is_none() => return Ok(Host::from(row.clone())),
            Some(row) => HostRow { removed_at_millis: None, ..self.rewritten(row) },
            None => self.new_row(&registry).await?,
        };
        self.write(row).await
    }

    async fn remove(&mut self) -> Result<Option<Host>, Setback> {
        let registry = self.registry.store.read_registry().await?;
        let row = registry.hosts.iter().find(|host| host.name == self.name);
        match row {
            Some(row) if row.removed_at_millis.is_none() => {
                let row =
                    HostRow { removed_at_millis: Some(self.now_millis()), ..self.rewritten(row) };
                self.write(row).await.map(Some)
            }
            row => Ok(row.cloned().map(Host::from)),
        }
    }

    /// A row with a number that nobody ever had.
    ///
    /// The number is ours if its reservation was acknowledged while we held the lock: whoever gets
    /// the lock later reads it, and continues above. Otherwise it is spent.
    async fn new_row(&self, registry: &Registry) -> Result<HostRow, Setback> {
        let numbers = registry.hosts.iter().map(|host| host.number);
        let largest = numbers.fold(registry.next.max(REGISTRAR), i32::max);
        let number = largest.checked_add(1).ok_or(Setback::NoNumberLeft)?;
        self.registry.store.raise_next(number).await?;
        self.still_locked()?;
        Ok(HostRow {
            name: self.name.to_owned(),
            number,
            added_at_millis: self.now_millis(),
            removed_at_millis: None,
            stamp: self.registry.clock.unix_micros(),
        })
    }

    /// A row with a stamp that beats what it is made of, also when a host with a fast clock wrote
    /// that.
    fn rewritten(&self, row: &HostRow) -> HostRow {
        let stamp = self.registry.clock.unix_micros();
        HostRow { stamp: stamp.max(row.stamp.saturating_add(1)), ..row.clone() }
    }

    /// Writes a host's row, and reads it back.
    async fn write(&mut self, row: HostRow) -> Result<Host, Setback> {
        let store = &self.registry.store;
        self.still_locked()?;
        self.written = Written::Perhaps;
        store.write_host(&row).await?;
        let seen = store.read_registry().await?;
        if seen.hosts.contains(&row) { Ok(Host::from(row)) } else { Err(Setback::Overwritten) }
    }

    fn still_locked(&self) -> Result<(), Setback> {
        match self.guard.state() {
            GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Expiring { .. } => {
                Ok(())
            }
            GuardState::Lost(_) | GuardState::Released => Err(Setback::LockLost),
        }
    }

    fn now_millis(&self) -> i64 {
        self.registry.clock.unix_micros() / 1000
    }
}

/// Why a try did not end with a change that is known to be made.
#[derive(Clone, Debug)]
enum Setback {
    /// The database failed.
    Database(DatabaseError),
    /// The registry's lock was lost on the way.
    LockLost,
    /// Somebody overwrote what we wrote: a late write of one who had lost the lock.
    Overwritten,
    /// All numbers are spent.
    NoNumberLeft,
}

impl Setback {
    /// Whether another try is bound to fail as well.
    fn is_final(&self) -> bool {
        match self {
            Setback::Database(error) => error.is_permanent(),
            Setback::NoNumberLeft => true,
            Setback::LockLost | Setback::Overwritten => false,
        }
    }
}

impl From<DatabaseError> for Setback {
    fn from(error: DatabaseError) -> Self {
        Setback::Database(error)
    }
}

/// Whether any try sent a change of the host's row. A reserved number is none: it does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Nothing,
    Perhaps,
}

impl Written {
    /// The error when the lock was not obtained.
    fn unlocked(self, name: &str, waited: Duration, cause: LockError) -> RegistryError {
        match self {
            Written::Nothing => RegistryError::Locked(cause),
            Written::Perhaps => unconfirmed(name, waited, None),
        }
    }

    /// The error when the last try was set back.
    fn set_back(self, name: &str, waited: Duration, setback: Setback) -> RegistryError {
        match (self, setback) {
            (Written::Nothing, Setback::Database(cause)) => unread(cause),
            (_, Setback::NoNumberLeft) => RegistryError::NoNumberLeft,
            (Written::Perhaps, Setback::Database(cause)) => unconfirmed(name, waited, Some(cause)),
            (_, Setback::LockLost | Setback::Overwritten) => unconfirmed(name, waited, None),
        }
    }
}

fn unconfirmed(name: &str, waited: Duration, cause: Option<DatabaseError>) -> RegistryError {
    RegistryError::Unconfirmed { name: name.to_owned(), waited, cause }
}

fn unread(cause: DatabaseError) -> RegistryError {
    if cause.is_permanent() {
        RegistryError::Refused(cause)
    } else {
        RegistryError::Unanswered(cause)
    }
}

/// Whether a character makes a name hard to read, type or list: commas, blanks, control characters,
/// and what is not seen at all.
fn is_unfit(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    c == ',' || c.is_whitespace() || c.is_control() || invisible
}

fn system_time(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if millis < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    // Only a row that somebody made up has a time that the system can't hold.
    time.unwrap_or(epoch)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::task::Poll;

    use super::*;
    use crate::error::Outcome;
    use crate::protocol::{ContenderId, Read, StoredRow, Write};
    use crate::store::{Answer, RowStamp};

    /// What happens to a call of the registry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fate {
        /// It is answered.
        Answered,
        /// It is applied, but nobody learns of it.
        AppliedUnknown,
        /// It is lost, and nobody learns of it.
        LostUnknown,
        /// It is refused for good.
        Refused,
        /// It is answered after a minute in which all writes of lock rows are lost.
        AfterTheLease,
    }

    /// A memory store whose calls of the registry fail as planned, and succeed afterwards.
    #[derive(Debug)]
    struct Planned {
        memory: MemoryStore,
        fates: Mutex<VecDeque<Fate>>,
        writes: Mutex<Vec<String>>,
        rows_are_lost: AtomicBool,
    }

    impl Planned {
        fn new(fates: &[Fate]) -> Arc<Self> {
            Arc::new(Planned {
                memory: MemoryStore::with_tokio_clock(),
                fates: Mutex::new(fates.iter().copied().collect()),
                writes: Mutex::default(),
                rows_are_lost: AtomicBool::new(false),
            })
        }

        fn registry(self: &Arc<Self>) -> HostRegistry {
            let store = Arc::clone(self) as Arc<dyn Store>;
            HostRegistry::over(store, self.memory.clock(), MAX_CLOCK_SKEW)
        }

        fn writes(&self) -> Vec<String> {
            std::mem::take(&mut *self.writes.lock().unwrap_or_else(PoisonError::into_inner))
        }

        fn written(&self, what: String) {
            self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        }

        async fn meet<T>(&self, call: Answer<'_, T>) -> Result<T, DatabaseError> {
            let fates = self.fates.lock().map(|mut fates| fates.pop_front());
            let unknown = || DatabaseError::new(Outcome::Unknown, "nobody knows");
            match fates.unwrap_or_else(|_| panic!("a test failed before")) {
                None | Some(Fate::Answered) => call.await,
                Some(Fate::AppliedUnknown) => call.await.and(Err(unknown())),
                Some(Fate::LostUnknown) => Err(unknown()),
                Some(Fate::Refused) => Err(DatabaseError::permanent("no such table")),
                Some(Fate::AfterTheLease) => {
                    self.rows_are_lost.store(true, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    self.rows_are_lost.store(false, Ordering::Relaxed);
                    call.await
                }
            }
        }
    }

    impl Store for Planned {
        fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> Answer<'a, ()> {
            if self.rows_are_lost.load(Ordering::Relaxed) {
                return Box::pin(async { Err(DatabaseError::new(Outcome::Unknown, "cut off")) });
            }
            self.memory.write(object, write)
        }

        fn read<'a>(&'a self, object: &'a str, read: Read) -> Answer<'a, Vec<StoredRow>> {
            self.memory.read(object, read)
        }

        fn read_stamps<'a>(
            &'a self,
            object: &'a str,
            contender: ContenderId,
        ) -> Answer<'a, Vec<RowStamp>> {
            self.memory.read_stamps(object, contender)
        }

        fn read_fence<'a>(&'a self, object: &'a str) -> Answer<'a, Option<i64>> {
            self.memory.read_fence(object)
        }

        fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> Answer<'a, ()> {
            self.memory.write_fence(object, value)
        }

        fn read_registry(&self) -> Answer<'_, Registry> {
            Box::pin(self.meet(self.memory.read_registry()))
        }

        fn raise_next(&self, next: i32) -> Answer<'_, ()> {
            self.written(format!("next {next}"));
            Box::pin(self.meet(self.memory.raise_next(next)))
        }

        fn write_host<'a>(&'a self, host: &'a HostRow) -> Answer<'a, ()> {
            self.written(format!("{} {}", host.name, host.number));
            Box::pin(self.meet(self.memory.write_host(host)))
        }
    }

    /// Polls a future whenever it is woken, so often at most, and drops it; whether it was ready.
    async fn poll_at_most(polls: usize, future: impl Future) -> bool {
        let mut future = Box::pin(future);
        let mut left = polls;
        poll_fn(|cx| {
            let ready = left > 0 && future.as_mut().poll(cx).is_ready();
            left = left.saturating_sub(1);
            if ready || left == 0 { Poll::Ready(ready) } else { Poll::Pending }
        })
        .await
    }

    async fn add(registry: &HostRegistry, name: &str) -> i32 {
        registry.add(name).await.expect("the host is added").number()
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_belongs_to_one_name_for_ever() {
        let store = Planned::new(&[]);
        let registry = store.registry();
        assert_eq!(add(&registry, "a").await, 1);
        assert_eq!(add(&registry, "b").await, 2);
        let removed = registry.remove("a").await.expect("the host is removed");
        assert_eq!(removed.as_ref().map(Host::number), Some(1));
        assert!(removed.is_some_and(|host| host.removed_at().is_some()));
        assert_eq!(add(&registry, "c").await, 3);
        assert_eq!(add(&registry, "a").await, 1);
        let list = registry.list().await.expect("the registry is listed");
        let list: Vec<_> = list.iter().map(|h| (h.name(), h.number(), h.removed_at())).collect();
        assert_eq!(list, [("a", 1, None), ("b", 2, None), ("c", 3, None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_already_writes_nothing() {
        let store = Planned::new(&[]);
        let registry = store.registry();
        add(&registry, "a").await;
        assert_eq!(store.writes(), ["next 1", "a 1"]);
        assert_eq!(add(&registry, "a").await, 1);
        assert!(registry.remove("b").await.expect("nobody is removed").is_none());
        assert_eq!(store.writes(), [""; 0]);
        let first = registry.remove("a").await.expect("the host is removed");
        assert_eq!(store.writes(), ["a 1"]);
        assert_eq!(registry.remove("a").await.expect("it was removed before"), first);
        assert_eq!(store.writes(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_hosts_that_are_not_removed_are_looked_up() {
        let store = Planned::new(&[]);
        let registry = store.registry();
        let lookup = async |name| lookup(&*store, name).await.map(|host| host.map(|h| h.number()));
        assert_eq!(lookup("a").await.ok(), Some(None));
        add(&registry, "a").await;
        assert_eq!(lookup("a").await.ok(), Some(Some(1)));
        registry.remove("a").await.expect("the host is removed");
        assert_eq!(lookup("a").await.ok(), Some(None));
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_call_fails_the_change_is_made_in_the_end() {
        // Adding is: read, raise next, write the row, read it back.
        for failing in 0..4 {
            for fate in [Fate::AppliedUnknown, Fate::LostUnknown] {
                let mut fates = [Fate::Answered; 5];
                fates[failing] = fate;
                let store = Planned::new(&fates);
                let registry = store.registry();
                let number = add(&registry, "a").await;
                let context = format!("call {failing} meets {fate:?}");
                assert!((1..=2).contains(&number), "{context}: number {number}");
                assert_eq!(
                    registry.list().await.map(|hosts| hosts.len()).ok(),
                    Some(1),
                    "{context}"
                );
                assert!(add(&registry, "b").await > number, "{context}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_reserved_by_somebody_who_died_is_spent() {
        let store = Planned::new(&[]);
        store.memory.raise_next(7).await.expect("the number is reserved");
        assert_eq!(add(&store.registry(), "a").await, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_whose_reservation_outlived_the_lock_is_spent() {
        let store = Planned::new(&[Fate::Answered, Fate::AfterTheLease]);
        let registry = store.registry().timeout(Duration::from_secs(120));
        assert_eq!(add(&registry, "a").await, 2);
        assert_eq!(store.writes(), ["next 1", "next 2", "a 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_with_a_stamp_from_the_future_is_overwritten() {
        let store = Planned::new(&[]);
        let row = HostRow {
            name: "a".to_owned(),
            number: 4,
            added_at_millis: 0,
            removed_at_millis: None,
            stamp: store.memory.clock().unix_micros() + 3_600_000_000,
        };
        store.memory.write_host(&row).await.expect("the row is written");
        let registry = store.registry();
        assert!(registry.remove("a").await.is_ok_and(|host| host.is_some()));
        assert_eq!(add(&registry, "a").await, 4);
        assert_eq!(add(&registry, "b").await, 5, "above the numbers of all rows");
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_add_at_once_get_different_numbers() {
        let store = Planned::new(&[]);
        let adding = (0..20).map(|i| {
            let registry = store.registry();
            tokio::spawn(async move { add(&registry, &format!("host{i}")).await })
        });
        let mut numbers = Vec::new();
        for added in adding.collect::<Vec<_>>() {
            numbers.push(added.await.expect("adding does not panic"));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(1..=20));
    }

    #[tokio::test(start_paused = true)]
    async fn errors_say_what_may_be_left_behind() {
        let silent = [Fate::LostUnknown; 1000];
        let error = Planned::new(&silent).registry().add("a").await;
        assert!(matches!(error, Err(RegistryError::Unanswered(_))), "{error:?}");

        let mut unconfirmed = silent;
        unconfirmed[..2].fill(Fate::Answered);
        let error = Planned::new(&unconfirmed).registry().add("a").await;
        assert!(matches!(error, Err(RegistryError::Unconfirmed { .. })), "{error:?}");

        let error = Planned::new(&[Fate::Refused]).registry().add("a").await;
        assert!(matches!(error, Err(RegistryError::Refused(_))), "{error:?}");

        let store = Planned::new(&[]);
        store.memory.raise_next(i32::MAX).await.expect("the last number is reserved");
        let error = store.registry().add("a").await;
        assert!(matches!(error, Err(RegistryError::NoNumberLeft)), "{error:?}");

        let store = Planned::new(&[]);
        store.rows_are_lost.store(true, Ordering::Relaxed);
        let error = store.registry().add("a").await;
        assert!(matches!(error, Err(RegistryError::Locked(_))), "{error:?}");
        assert_eq!(store.writes(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_addition_may_be_dropped_at_any_poll() {
        let mut polls = 0;
        loop {
            let store = Planned::new(&[]);
            store.memory.delay_calls(Duration::from_millis(10));
            let registry = store.registry();
            let done = poll_at_most(polls, registry.add("a")).await;
            let number = add(&store.registry().timeout(Duration::from_secs(3)), "b").await;
            assert!(number <= 2, "dropped after {polls} polls");
            if done {
                break;
            }
            polls += 1;
        }
        assert!(polls > 1, "adding takes more than one poll");
    }

    #[test]
    fn names_are_visible_text() {
        let longest = "é".repeat(127) + "x";
        for name in ["a", "web-1.example.org", "größe", "主机", "a;b", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = longest.clone() + "x";
        let unfit = ["", "a b", "a,b", "a\t", "\n", "a\0", "\u{200b}", "a\u{202e}b", "\u{a0}"];
        for name in unfit.into_iter().chain([too_long.as_str()]) {
            let error = check_name(name).expect_err("the name is refused").to_string();
            assert!(error.contains("use 1 to 255 bytes of visible text"), "{error}");
        }
        assert!(check_name(&this_host()).is_ok());
    }
}
