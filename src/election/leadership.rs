//! The guard of a leader.

use std::fmt;
use std::ops::Deref;

use crate::error::UnlockError;
use crate::guard::{LockGuard, LockHandle};

/// A candidate that leads, from [`Election::campaign`](super::Election::campaign) on. Dropping it
/// resigns.
///
/// It is kept by a lease, and lost as a lock is: what it knows of that its [`LockHandle`] tells, to
/// which it dereferences. A leader that only starts work while
/// [`state`](LockHandle::state) says that it leads is the only one, as far as the lock
/// promises. What it writes elsewhere carries its
/// [fencing token](LockHandle::fencing_token), which grows from leader to leader of one seat.
#[must_use = "if unused it resigns immediately"]
#[clippy::has_significant_drop]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// Of the guard of the seat. Its rows show observers at once that it is held, not only at the
    /// next renewal.
    pub(super) fn new(guard: LockGuard) -> Self {
        guard.renew_now();
        Leadership { guard }
    }

    /// The guard of the seat.
    pub(super) fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// A handle for tasks that work for the leader: [`LockGuard::handle`].
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// Gives the seat up, and waits until a quorum has acknowledged that.
    ///
    /// The best candidate is elected next: this one again, if it is that and campaigns at once.
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// As for [`LockGuard::unlock`].
    pub async fn resign(self) -> Result<(), UnlockError> {
        self.guard.unlock().await
    }
}

impl Deref for Leadership {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.guard
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.guard).finish()
    }
}
