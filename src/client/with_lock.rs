//! Work under a lock that stops when the lock is lost.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_core::Stream;

use super::{LockClient, LockRequest, MultiLockRequest};
use crate::error::{LockError, UnlockError};
use crate::guard::grant::GuardState;
use crate::guard::{LockGuard, LockHandle};

impl LockClient {
    /// Acquires the lock of `name`, runs `body` under it, and releases it. Programs that hold a
    /// lock for more than a moment should use this.
    ///
    /// Before each poll of the body it checks the clock. Once the lock is lost, or revoked by
    /// another client, it drops the body instead of polling it again, so the body stops at its
    /// current `await`; a revoked lock is released after that. A poll that has begun may finish:
    /// work that blocks, or is paused with the whole process, continues to its next `await` after
    /// the lease has ended. Where even that must do no harm, use [fencing
    /// tokens](LockHandle::fencing_token).
    ///
    /// The output of the body is returned as it is, even if the release was not acknowledged; that
    /// continues in the background.
    ///
    /// # Errors
    ///
    /// Those of the lock. A body that can fail returns a `Result` as its output, so there are two
    /// question marks, as after `tokio::time::timeout`:
    ///
    /// [`LockError::WorkStopped`]: the lock was lost, or revoked, before the body was done; the
    /// body or its output was dropped.
    /// Any other [`LockError`]: the lock was not obtained, or was lost before the body could begin;
    /// nothing was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body at its current `await` and releases the lock.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{EnsureError, LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let total = client
    ///     .with_lock("accounts::1", async |lock| {
    ///         // Read and change the account. Before a step that takes long:
    ///         lock.ensure(std::time::Duration::from_secs(10)).await?;
    ///         Ok::<_, EnsureError>(42)
    ///     })
    ///     .await??;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A service may have a helper of its own:
    ///
    /// ```
    /// use bakery_lock::{LockClient, LockError, LockHandle};
    ///
    /// struct Service {
    ///     locks: LockClient,
    /// }
    ///
    /// impl Service {
    ///     async fn locked<T, E: From<LockError>>(
    ///         &self,
    ///         name: &str,
    ///         body: impl AsyncFnOnce(LockHandle) -> Result<T, E>,
    ///     ) -> Result<T, E> {
    ///         self.locks.with_lock(name, body).await?
    ///     }
    /// }
    /// ```
    ///
    /// Where the future of a helper is declared to be `Send`, the helper names that of its body,
    /// `impl FnOnce(LockHandle) -> W + Send` with `W: Future + Send`, and passes `|lock|
    /// body(lock)`.
    pub async fn with_lock<T>(
        &self,
        name: impl AsRef<str>,
        body: impl AsyncFnOnce(LockHandle) -> T,
    ) -> Result<T, LockError> {
        self.request(name).with_lock(body).await
    }

    /// Runs `body` under the lock of `name` if no client holds it or waits for it, as
    /// [`try_lock`](Self::try_lock) decides; `None` if one does. For a job that several machines
    /// start at the same time, and one is to do: see [`LockRequest::min_hold`] too.
    ///
    /// # Errors
    ///
    /// As for [`with_lock`](Self::with_lock). A lock that is taken is not an error but `None`.
    ///
    /// # Cancel safety
    ///
    /// As for [`with_lock`](Self::with_lock).
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let report = client.try_with_lock("reports::daily", async |_| "the report").await?;
    /// match report {
    ///     Some(report) => println!("{report}"),
    ///     None => println!("another process writes it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_with_lock<T>(
        &self,
        name: impl AsRef<str>,
        body: impl AsyncFnOnce(LockHandle) -> T,
    ) -> Result<Option<T>, LockError> {
        self.request(name).try_with_lock(body).await
    }
}

impl LockRequest {
    /// Runs `body` under the lock: [`LockClient::with_lock`] with this request's options.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::with_lock`].
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::with_lock`].
    pub async fn with_lock<T>(
        self,
        body: impl AsyncFnOnce(LockHandle) -> T,
    ) -> Result<T, LockError> {
        work_under(self.acquire().await?, body).await
    }

    /// Runs `body` under the lock if it is free: [`LockClient::try_with_lock`] with this request's
    /// options.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::try_with_lock`].
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::with_lock`].
    pub async fn try_with_lock<T>(
        self,
        body: impl AsyncFnOnce(LockHandle) -> T,
    ) -> Result<Option<T>, LockError> {
        match self.try_acquire().await? {
            Some(guard) => work_under(guard, body).await.map(Some),
            None => Ok(None),
        }
    }
}

impl MultiLockRequest {
    /// Runs `body` under all the locks, as [`LockClient::with_lock`] does under one: it gets their
    /// handles in the order of the names' bytes, and stops when the first lock is lost.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::lock_all`], and [`LockError::WorkStopped`] as for
    /// [`LockClient::with_lock`].
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::with_lock`].
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let accounts = client.request_all(["accounts::7", "accounts::3"]);
    /// let moved = accounts.with_lock(async |locks| locks.len()).await?;
    /// assert_eq!(moved, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_lock<T>(
        self,
        body: impl AsyncFnOnce(Vec<LockHandle>) -> T,
    ) -> Result<T, LockError> {
        let guard = self.acquire().await?;
        let locks: Vec<_> = guard.guards().iter().map(LockGuard::handle).collect();
        let output = while_held(&locks, body(locks.clone())).await;
        output_of(output, guard.unlock().await)
    }
}

/// Runs `body` under the lock of `guard`, and releases it.
pub(crate) async fn work_under<T>(
    guard: LockGuard,
    body: impl AsyncFnOnce(LockHandle) -> T,
) -> Result<T, LockError> {
    let work = body(guard.handle());
    finish(guard, work).await
}

/// Does work under the lock of `guard`, and releases it.
pub(crate) async fn finish<T>(
    guard: LockGuard,
    work: impl Future<Output = T>,
) -> Result<T, LockError> {
    let output = while_held(&[guard.handle()], work).await;
    output_of(output, guard.unlock().await)
}

/// What comes of work after its lock was given back: it does not count if the lock was lost, not
/// even if only the release found that.
pub(crate) fn output_of<T>(
    output: Result<T, LockError>,
    released: Result<(), UnlockError>,
) -> Result<T, LockError> {
    match (output, released) {
        (Ok(_), Err(UnlockError::Lost { name, reason })) => {
            Err(LockError::WorkStopped { name, reason })
        }
        (output, _) => output,
    }
}

/// Polls `work` while all the locks are held and their leases are renewed, and drops it then.
async fn while_held<T>(
    locks: &[LockHandle],
    work: impl Future<Output = T>,
) -> Result<T, LockError> {
    let mut work = pin!(work);
    let mut states: Vec<_> = locks.iter().map(LockHandle::states).collect();
    poll_fn(|cx| {
        // These wake the task when a state changes, by their own timers. The clock decides.
        for states in &mut states {
            while let Poll::Ready(Some(_)) = Pin::new(&mut *states).poll_next(cx) {}
        }
        match locks.iter().find_map(stops_work) {
            Some(error) => Poll::Ready(Err(error)),
            None => work.as_mut().poll(cx).map(Ok),
        }
    })
    .await
}

/// Why work under this lock must not continue, if so.
fn stops_work(lock: &LockHandle) -> Option<LockError> {
    let reason = match lock.state() {
        GuardState::Lost(reason) => reason,
        GuardState::Expiring { reason, .. } => reason.loss()?,
        GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Released => return None,
    };
    Some(LockError::WorkStopped { name: lock.table_name().to_owned(), reason })
}
