//! The guard of a synchronous program.

use std::fmt;
use std::time::Duration;

use futures_executor::block_on;
use tokio::runtime::Handle;

use super::LockClient;
use crate::client::output_of;
use crate::context::with_timers;
use crate::error::{EnsureError, LockError, LostReason, UnlockError};
use crate::fencing::{FencingError, FencingToken};
use crate::guard::LockHandle;
use crate::guard::grant::GuardState;

/// A held lock. Dropping it releases the lock, without waiting for that.
///
/// It is renewed by the thread of the [`Runtime`](super::Runtime). What it reports is what
/// [`bakery_lock::LockGuard`](crate::LockGuard) does. Its calls wait for the database for at most
/// the client's acquire timeout.
#[must_use = "if unused the lock is given back immediately"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    guard: crate::LockGuard,
    /// The client ends after its guards.
    client: LockClient,
}

impl LockGuard {
    pub(super) fn new(guard: crate::LockGuard, client: LockClient) -> Self {
        LockGuard { guard, client }
    }

    /// The name of the locked object.
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The state of the lock now, by the clock: no I/O. See
    /// [`LockHandle::state`](crate::LockHandle::state).
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.guard.state()
    }

    /// How long the lock is still held without renewal; zero once it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Waits for at most `timeout` for the lock to be lost; with the reason if it is.
    #[must_use]
    pub fn lost_within(&self, timeout: Duration) -> Option<LostReason> {
        let lost = async { tokio::time::timeout(timeout, self.guard.lost()).await };
        block_on(with_timers(&self.runtime(), lost)).ok().flatten()
    }

    /// Ensures that at least `min` of the lease remains:
    /// [`LockHandle::ensure`](crate::LockHandle::ensure).
    ///
    /// # Errors
    ///
    /// As for [`LockHandle::ensure`](crate::LockHandle::ensure).
    pub fn ensure(&self, min: Duration) -> Result<Duration, EnsureError> {
        block_on(self.guard.ensure(min))
    }

    /// Confirms by a quorum read that the rows of the lock are there:
    /// [`LockHandle::check`](crate::LockHandle::check).
    ///
    /// # Errors
    ///
    /// As for [`LockHandle::check`](crate::LockHandle::check).
    pub fn check(&self) -> Result<Duration, EnsureError> {
        block_on(self.guard.check())
    }

    /// Lets the rows live for longer: [`LockHandle::raise_ttl`](crate::LockHandle::raise_ttl).
    ///
    /// # Errors
    ///
    /// As for [`LockHandle::raise_ttl`](crate::LockHandle::raise_ttl).
    pub fn raise_ttl(&self, ttl: Duration) -> Result<Duration, EnsureError> {
        block_on(self.guard.raise_ttl(ttl))
    }

    /// Says of the work under the lock what others should know:
    /// [`LockHandle::set_note`](crate::LockHandle::set_note).
    ///
    /// # Errors
    ///
    /// As for [`LockHandle::set_note`](crate::LockHandle::set_note).
    pub fn set_note(&self, note: impl Into<String>) -> Result<(), EnsureError> {
        block_on(self.guard.set_note(note))
    }

    /// Shares the lock from now on: [`LockGuard::downgrade`](crate::LockGuard::downgrade).
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::downgrade`](crate::LockGuard::downgrade).
    pub fn downgrade(&self) -> Result<(), EnsureError> {
        block_on(self.guard.downgrade())
    }

    /// Issues a fencing token:
    /// [`LockHandle::fencing_token`](crate::LockHandle::fencing_token).
    ///
    /// # Errors
    ///
    /// See [`FencingError`].
    pub fn fencing_token(&self) -> Result<FencingToken, FencingError> {
        block_on(self.guard.fencing_token())
    }

    /// A handle for others who must know of the lock, in async code too.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// Releases the lock, and waits until a quorum has acknowledged that:
    /// [`LockGuard::unlock`](crate::LockGuard::unlock).
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub fn unlock(self) -> Result<(), UnlockError> {
        block_on(self.guard.unlock())
    }

    /// Runs `body` under the lock, and releases it.
    pub(super) fn finish<T>(self, body: impl FnOnce(&LockGuard) -> T) -> Result<T, LockError> {
        let output = body(&self);
        output_of(Ok(output), self.unlock())
    }

    fn runtime(&self) -> Handle {
        self.client.inner.client.inner.runtime.clone()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.guard).finish()
    }
}
