//! The lock client and its requests.
//!
//! This file has the operations of a client; those for operators are in [`admin`](crate::admin).
//! [`start`] assembles a client and starts its task. [`request`] checks a request and sends it to
//! that task, [`at_least`] waits until its lease lasts; [`lock_all`] makes several at once.

mod at_least;
mod lock_all;
mod request;
mod start;
mod with_lock;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::lock_all::{MultiGuard, MultiLockRequest, MultiLostFuture};
pub use self::request::LockRequest;
pub(crate) use self::start::{ClientSetup, Registered};
pub(crate) use self::with_lock::finish;
#[cfg(feature = "blocking")]
pub(crate) use self::with_lock::output_of;
use crate::context::{ClientContext, with_timers};
use crate::driver::client_task::Call;
use crate::driver::objects::Objects;
use crate::error::{LockError, ShutdownError, TableError};
use crate::guard::{LockGuard, LockHandle};
use crate::owner::Owner;
use crate::statistics::Statistics;
use crate::store::{Counted, DatabaseError};

/// Acquires locks. Cheap to clone; clones are the same client.
///
/// Callers of one client that request the same name wait in a line in memory; one contender stands
/// for all of them in the queue in the database, and they use its place in turn, so share one
/// client: a lock that passes between its callers costs no operation. The
/// [builder](crate::LockClientBuilder::local_handoff) says how that is bounded.
///
/// # Example
///
/// ```
/// use bakery_lock::{LockClient, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
/// let store = MemoryStore::new();
/// let client = LockClient::builder_in_memory(&store).build().await?;
///
/// let guard = client.lock("users::snap").await?;
/// assert!(client.try_lock("users::snap").await?.is_none(), "the lock is held");
/// guard.unlock().await?;
/// client.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) calls: mpsc::UnboundedSender<Call>,
    pub(crate) objects: Arc<Objects>,
    /// The client's runtime: it has the timers of calls that are polled outside any.
    pub(crate) runtime: Handle,
    pub(crate) ended: CancellationToken,
    /// Whether it takes no locks.
    pub(crate) read_only: bool,
    pub(crate) counted: Arc<Counted>,
    pub(crate) shared: Arc<ClientContext>,
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) max_clock_skew: Duration,
    /// The number of callers so far, which numbers the next one.
    pub(crate) callers: AtomicU64,
}

/// Why work of a client did not finish.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The acquire timeout passed.
    TimedOut {
        /// How long the client waited.
        waited: Duration,
    },
    /// The client's task has ended.
    Closed,
    /// This process is a fork.
    Forked,
}

impl Interruption {
    /// The error of a request to the lock table, about one lock or about all. `cause` is the last
    /// error of the database.
    pub(crate) fn on_table(self, name: Option<&str>, cause: Option<DatabaseError>) -> TableError {
        match self {
            Interruption::TimedOut { waited } => {
                TableError::TimedOut { name: name.map(str::to_owned), waited, cause }
            }
            Interruption::Closed => TableError::Closed,
            Interruption::Forked => TableError::Forked,
        }
    }
}

impl LockClient {
    /// Acquires the lock of `name`, with the client's timeout and TTL.
    ///
    /// Clients are admitted in the order in which they drew their tickets, and the callers of one
    /// client in the order in which they asked. An uncontended lock costs two quorum operations. If
    /// the host's registration was read more than a minute ago, it is first read again, by one more
    /// operation; the caller waits for that, but not for longer than two seconds. A registry that
    /// does not answer by then stops no lock: [`health`](Self::health) warns of it.
    ///
    /// While locks are held, and once a minute when they are requested, the client checks in the
    /// background that clocks still agree and that the lock table is still the same. If not, it
    /// acquires no more locks: [`LockError::ClocksDiffer`], [`LockError::TableGone`].
    ///
    /// The last check, as the future completes, is that the lock is held: a future that was not
    /// polled for longer than the lease lasts returns [`LockError::Lost`].
    ///
    /// # Errors
    ///
    /// See [`LockError`]. In every case nothing is held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point gives up the place in the queue, and leaves no lock held
    /// and no row: rows already written are deleted in the background.
    ///
    /// # Example
    ///
    /// ```
    /// use bakery_lock::LockError;
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// match client.lock("users::snap").await {
    ///     Ok(guard) => {
    ///         // No other client holds "users::snap" here.
    ///         guard.unlock().await?;
    ///     }
    ///     Err(LockError::TimedOut { ahead, .. }) => println!("busy; ahead of us: {ahead:?}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&self, name: impl AsRef<str>) -> Result<LockGuard, LockError> {
        self.request(name).acquire().await
    }

    /// Acquires the lock of `name` if no client holds it or waits for it, without waiting for
    /// others.
    ///
    /// Of several tries at the same moment at most one succeeds, and possibly none: a try may
    /// mistake for a holder another try that is about to fail.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. A lock that is taken is not an error but `None`.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// if let Some(guard) = client.try_lock("reports::daily").await? {
    ///     // Write the report.
    ///     guard.unlock().await?;
    /// } else {
    ///     println!("another process writes it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock(&self, name: impl AsRef<str>) -> Result<Option<LockGuard>, LockError> {
        self.request(name).try_acquire().await
    }

    /// A request for the lock of `name` with options of its own; [`LockRequest`] has an example.
    pub fn request(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(Arc::clone(&self.inner), self.shared().table_name(name.as_ref()))
    }

    /// The id of this client: [`ContenderInfo::client`](crate::ContenderInfo::client) of its rows.
    #[must_use]
    pub fn id(&self) -> Uuid {
        Uuid::from_u128(self.inner.shared.id.client)
    }

    /// What this client holds now, in the order of names: a handle of each guard whose lock is
    /// held, in whichever task it is. For reports, and to look before a shutdown.
    ///
    /// It asks the tasks of the client's objects, and does no I/O. A lock that is granted or given
    /// back meanwhile may be in it or not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let guard = client.lock("users::snap").await?;
    /// for lock in client.held().await {
    ///     println!("{}: {}", lock.name(), lock.state());
    /// }
    /// # assert_eq!(client.held().await.len(), 1);
    /// # guard.unlock().await?;
    /// # assert!(client.held().await.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn held(&self) -> Vec<LockHandle> {
        let (sender, mut reports) = mpsc::unbounded_channel();
        if self.inner.shared.process.is_current() {
            self.inner.objects.report_held(&sender);
        }
        drop(sender);
        let mut held = Vec::new();
        while let Some(lock) = reports.recv().await {
            held.push(lock);
        }
        held.sort_by(|one, other| one.name().cmp(other.name()));
        held
    }

    /// Refuses new requests, fails waiting ones with [`LockError::Closed`], releases the locks that
    /// are held (guards become lost: the client was shut down) and waits until that is
    /// acknowledged.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] if that took longer than the acquire timeout; the shutdown continues in
    /// the background while the runtime lives.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown continues in the background if the future is dropped.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// client.shutdown().await?;
    /// assert!(client.lock("users::snap").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self) -> Result<(), ShutdownError> {
        // If the task has already ended, there is nothing to shut down.
        let _ = self.inner.calls.send(Call::Shutdown);
        let waited = self.inner.shared.acquire_timeout;
        let ended = async { tokio::time::timeout(waited, self.inner.ended.cancelled()).await };
        with_timers(&self.inner.runtime, ended).await.map_err(|_| ShutdownError { waited })
    }

    /// What this client has done since it was built: locks granted and lost, operations.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let guard = client.lock("users::snap").await?;
    /// // On the fast path: one write, and one read of the whole object.
    /// assert_eq!(client.statistics().writes, 1);
    /// assert_eq!(client.statistics().object_reads, 1);
    /// assert_eq!((client.statistics().grants, client.statistics().held), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let network = self.inner.shared.network.as_ref();
        let messages = network.map_or(0, |network| network.messages_sent());
        let counts = self.inner.shared.tally.counts().with_calls(self.inner.counted.calls());
        Statistics { messages, ..counts }
    }

    /// Runs work other than acquisitions, until it is done, the client's task ends or the acquire
    /// timeout passes.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        if !self.inner.shared.process.is_current() {
            return Err(Interruption::Forked);
        }
        let waited = self.inner.shared.acquire_timeout;
        let unless_ended = async {
            tokio::select! {
                biased;
                // The connections may have ended with the task's runtime; then no request is
                // answered.
                () = self.inner.ended.cancelled() => Err(Interruption::Closed),
                done = tokio::time::timeout(waited, work) => {
                    done.map_err(|_| Interruption::TimedOut { waited })
                }
            }
        };
        with_timers(&self.inner.runtime, unless_ended).await
    }

    /// Waits until this time has passed, or the client's task ends.
    pub(crate) async fn pause(&self, pause: Duration) {
        let pausing = async {
            tokio::select! {
                biased;
                () = self.inner.ended.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        };
        with_timers(&self.inner.runtime, pausing).await;
    }

    /// What the client shares with its task.
    pub(crate) fn shared(&self) -> &ClientContext {
        &self.inner.shared
    }

    /// Host name and process id, for display.
    pub(crate) fn owner(&self) -> &Owner {
        &self.inner.shared.owner
    }

    /// The longest TTL that the lock table allows.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.inner.max_ttl
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("owner", &self.inner.shared.owner)
            .field("acquire_timeout", &self.inner.shared.acquire_timeout)
            .field("ttl", &self.inner.ttl)
            .finish_non_exhaustive()
    }
}
