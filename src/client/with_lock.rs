//! Work under a lock that stops when the lock is lost.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_core::Stream;

use super::{LockClient, LockRequest};
use crate::error::{LostReason, UnlockError, WithLockError};
use crate::guard::LockHandle;
use crate::guard::grant::GuardState;

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
    /// The output of the body is returned whatever becomes of the release, which continues in the
    /// background if needed.
    ///
    /// # Errors
    ///
    /// The errors of the body come back as they are. The lock's own become the same type by `From`,
    /// which `anyhow::Error`, `Box<dyn Error>` and enums of an application offer:
    ///
    /// [`WithLockError::Lock`]: the lock was not obtained, or was lost before the body could begin;
    /// nothing was done.
    /// [`WithLockError::Lost`]: the lock was lost, or revoked, before the body was done; the body
    /// or its output was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body at its current `await` and releases the lock.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).register_host(true).build().await?;
    /// let total = client
    ///     .with_lock("accounts::1", async |lock| {
    ///         // Read and change the account. Before a step that takes long:
    ///         lock.ensure(std::time::Duration::from_secs(10)).await?;
    ///         Ok::<_, Box<dyn std::error::Error>>(42)
    ///     })
    ///     .await?;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A service may have a helper of its own. Its future is `Send` if the body's is:
    ///
    /// ```
    /// use std::future::Future;
    ///
    /// use bakery_lock::{LockClient, LockHandle, WithLockError};
    ///
    /// struct Service {
    ///     locks: LockClient,
    /// }
    ///
    /// impl Service {
    ///     fn locked<T, E, W>(
    ///         &self,
    ///         name: &str,
    ///         body: impl FnOnce(LockHandle) -> W + Send,
    ///     ) -> impl Future<Output = Result<T, E>> + Send
    ///     where
    ///         T: Send,
    ///         E: From<WithLockError> + Send,
    ///         W: Future<Output = Result<T, E>> + Send,
    ///     {
    ///         self.locks.with_lock(name, body)
    ///     }
    /// }
    /// ```
    pub async fn with_lock<T, E, W>(
        &self,
        name: &str,
        body: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        E: From<WithLockError>,
        W: Future<Output = Result<T, E>>,
    {
        self.request(name).with_lock(body).await
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
    pub async fn with_lock<T, E, W>(self, body: impl FnOnce(LockHandle) -> W) -> Result<T, E>
    where
        E: From<WithLockError>,
        W: Future<Output = Result<T, E>>,
    {
        let guard = self.acquire().await.map_err(WithLockError::Lock)?;
        let work = body(guard.handle());
        let output = while_held(&guard, work).await;
        let released = guard.unlock().await;
        let output = output.map_err(WithLockError::Lost)?;
        match released {
            Err(UnlockError::Lost(reason)) => Err(WithLockError::Lost(reason).into()),
            Ok(()) | Err(UnlockError::Unacknowledged { .. } | UnlockError::Closed) => output,
        }
    }
}

/// Polls `work` while the lock is held and its lease is renewed, and drops it then.
async fn while_held<T>(lock: &LockHandle, work: impl Future<Output = T>) -> Result<T, LostReason> {
    let mut work = pin!(work);
    let mut states = lock.states();
    poll_fn(|cx| {
        // This wakes the task when the state changes, by its own timer. The clock decides.
        while let Poll::Ready(Some(_)) = Pin::new(&mut states).poll_next(cx) {}
        let ends = match lock.state() {
            GuardState::Lost(reason) => Some(reason),
            GuardState::Expiring { reason, .. } => reason.loss(),
            GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Released => None,
        };
        ends.map_or_else(|| work.as_mut().poll(cx).map(Ok), |reason| Poll::Ready(Err(reason)))
    })
    .await
}
