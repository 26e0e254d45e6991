//! The guard of a held lock.
//!
//! A guard shares the state of its [`grant`] with the task of its object, which ends it. Its
//! [`token_issuer`] issues fencing tokens.

mod alarm;
mod expiring;
pub(crate) mod grant;
mod handle;
mod lost;
mod states;
pub(crate) mod token_issuer;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::oneshot;

pub use self::expiring::ExpiringFuture;
use self::grant::{End, Grant, GuardRequest, Requests};
pub use self::handle::LockHandle;
pub(crate) use self::handle::Tokens;
pub use self::lost::LostFuture;
pub use self::states::GuardStates;
use crate::error::{EnsureError, UnlockError};

/// A held lock. Dropping it releases the lock.
///
/// The lock is kept by a lease that is renewed in the background. A holder that is paused for
/// longer than the lease, or cut off from the database, loses the lock. What a guard knows of that
/// its [`LockHandle`] shows, to which it dereferences; a clone of the [handle](Self::handle) is for
/// those who must know as well, and must not release the lock.
///
/// # Dropping
///
/// Dropping passes the release to the client's task: it neither blocks nor spawns, and works
/// outside a runtime, as long as the runtime on which the client was built lives. Nothing waits for
/// the release: a guard that is dropped as `main` ends, or not dropped at all
/// (`std::process::exit`, `panic=abort`, a killed process), leaves its rows until their TTL passes.
/// End programs with [`unlock`](Self::unlock) or
/// [`LockClient::shutdown`](crate::LockClient::shutdown).
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
/// println!("held for {:?} without a renewal", guard.remaining());
/// tokio::select! {
///     reason = guard.lost() => eprintln!("stopped: {reason:?}"),
///     () = async { /* the work */ } => guard.unlock().await?,
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the lock is given back immediately"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    handle: LockHandle,
}

impl LockGuard {
    /// The guard of a grant, whose holder receives the guard's requests.
    pub(crate) fn new(grant: Arc<Grant>, tokens: Tokens, requests: Requests) -> Self {
        LockGuard { handle: LockHandle::new(grant, tokens, requests) }
    }

    /// Its caller has it.
    pub(crate) fn collect(&self) {
        self.handle.grant().collect();
    }

    /// A handle for those who must know of the lock and must not release it, such as tasks that
    /// work under it. It outlives the guard, and reports then that the lock is released.
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
    /// let handle = guard.handle();
    /// let part = tokio::spawn(async move { handle.state().is_held() });
    /// assert!(part.await?);
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.handle.clone()
    }

    /// Shares the lock with others from now on, which this guard has held alone: what a writer has
    /// written it can go on reading, without a moment in which another writer has the lock. Waits
    /// until the rows say so.
    ///
    /// From this call on the lock counts as [shared](crate::LockRequest::shared), also if the call
    /// fails or is dropped: readers of this client join at once, those of other clients once they
    /// read it. Take a [fencing token](LockHandle::fencing_token) before; afterwards there is none.
    /// There is no way back: to write again, release the lock and request it.
    ///
    /// # Errors
    ///
    /// As for [`ensure`](LockHandle::ensure), except [`EnsureError::TooLong`]; and
    /// [`EnsureError::Unchangeable`], after which the lock is held as before: it is not held alone,
    /// has a [minimum hold](crate::LockRequest::min_hold), is not renewed, is
    /// [expiring](crate::GuardState::Expiring), or is a turn at the place of another client.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the lock is shared even if the future is dropped.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let guard = client.lock("settings").await?;
    /// // Write the settings.
    /// guard.downgrade().await?;
    /// // Read them back, while others read them too.
    /// let reader = client.request("settings").shared().acquire().await?;
    /// assert!(client.try_lock("settings").await?.is_none(), "a writer must wait");
    /// # reader.unlock().await?;
    /// # guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(&self) -> Result<(), EnsureError> {
        self.handle.share().await
    }

    /// Releases the lock. If another caller of this client waits for it, the lock passes on to that
    /// caller, and this returns at once; otherwise it waits until a quorum has acknowledged the
    /// release: one operation.
    ///
    /// A lock that was passed on has its rows until the last caller releases it, so a program that
    /// ends while its other tasks use locks calls
    /// [`LockClient::shutdown`](crate::LockClient::shutdown).
    ///
    /// # Errors
    ///
    /// [`UnlockError::Lost`]: the lock had been lost before, perhaps by the end of the client's
    /// runtime; or it was found to be lost before the release was sent.
    /// [`UnlockError::Unacknowledged`]: no quorum answered within the client's acquire timeout; the
    /// release continues in the background. [`UnlockError::Closed`]: the client's runtime ended
    /// meanwhile; the rows expire by their TTL.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the release continues in the background if the future is dropped. Dropped
    /// before that, it drops the guard, which releases the lock as well.
    ///
    /// # Example
    ///
    /// ```
    /// use bakery_lock::UnlockError;
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// match guard.unlock().await {
    ///     Ok(()) => println!("the next client can have it"),
    ///     Err(UnlockError::Lost { reason, .. }) => println!("another may have had it: {reason}"),
    ///     Err(error) => println!("it continues in the background, or expires: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unlock(self) -> Result<(), UnlockError> {
        let (reply, answer) = oneshot::channel();
        if let Err(ended) = self.handle.grant().end(End::Released) {
            return Err(ended.into_unlock_error(self.table_name()));
        }
        // If the client lost the lock before it learned of the release, there is no answer.
        self.handle.requests().send(GuardRequest::Release { reply: Some(reply) });
        let lost = |reason| UnlockError::Lost { name: self.table_name().to_owned(), reason };
        let overtaken = || self.handle.grant().overtaken().map_or(UnlockError::Closed, lost);
        answer.await.unwrap_or_else(|_| Err(overtaken()))
    }
}

impl Deref for LockGuard {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.handle.grant().end(End::Released) == Err(End::Released) {
            // Released by `unlock`, which said so to the task.
            return;
        }
        // A lost lock is released like a held one: the task may not know yet. If the runtime is
        // gone, so is the task; then the rows expire by their TTL.
        self.handle.requests().leave(GuardRequest::Release { reply: None });
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.handle).finish()
    }
}
