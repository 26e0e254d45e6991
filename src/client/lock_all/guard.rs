//! The guard of several locks.

use std::cmp::Reverse;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::FusedFuture;

use crate::error::{EnsureError, LockError, LostReason, UnlockError};
use crate::guard::grant::GuardState;
use crate::guard::{LockGuard, LostFuture};
use crate::store::at_the_same_time;

/// Several held locks, of [`LockClient::lock_all`](crate::LockClient::lock_all). Dropping it
/// releases them, the last one first, as dropping each [`LockGuard`] would.
///
/// Each lock has its own lease. What this guard reports holds for all of them: work that needs
/// all locks must stop when one of them is lost.
#[must_use = "if unused the locks are given back immediately"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    /// In the order of their names.
    guards: Vec<LockGuard>,
}

impl MultiGuard {
    pub(super) fn new() -> Self {
        MultiGuard { guards: Vec::new() }
    }

    /// Adds the lock of the next name.
    pub(super) fn push(&mut self, guard: LockGuard) {
        self.guards.push(guard);
    }

    /// Waits for the next lock, unless one of these is lost meanwhile.
    pub(super) async fn unless_lost<T>(
        &self,
        next: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let (mut next, mut lost) = (pin!(next), self.lost());
        poll_fn(|cx| {
            // This wakes the task when one is lost. The clock decides.
            if !self.guards.is_empty() {
                let _ = Pin::new(&mut lost).poll(cx);
            }
            match self.check_held() {
                Ok(()) => next.as_mut().poll(cx),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// The error of a request that has lost one of its locks.
    pub(super) fn check_held(&self) -> Result<(), LockError> {
        for guard in &self.guards {
            if let GuardState::Lost(reason) = guard.state() {
                return Err(LockError::Lost { name: guard.table_name().to_owned(), reason });
            }
        }
        Ok(())
    }

    /// The guards of the locks, in the order of their names' bytes: for tokens, and for what one
    /// lock alone is needed for.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The guard of one of the locks; `None` if the name is not among them.
    pub fn get(&self, name: &str) -> Option<&LockGuard> {
        let place = self.guards.binary_search_by(|guard| guard.name().cmp(name)).ok()?;
        self.guards.get(place)
    }

    /// The worst state of all locks now, by the clock: no I/O. Like that of a single lock, this
    /// alone [decides](crate::LockHandle#what-decides) whether the locks are held.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "there is no guard of no locks")]
    pub fn state(&self) -> GuardState {
        let states = self.guards.iter().map(|guard| guard.state());
        let worst = states.max_by_key(|state| (badness(state), Reverse(state.remaining())));
        worst.expect("there is no guard of no locks")
    }

    /// How long all locks are still held without renewal; zero once one of them is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(|guard| guard.remaining()).min().unwrap_or_default()
    }

    /// Resolves when the first of the locks is no longer held: with the reason if it was lost, with
    /// `None` if they were released. It does not borrow the guard, and wakes as
    /// [`LockHandle::lost`](crate::LockHandle::lost) does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    pub fn lost(&self) -> MultiLostFuture {
        MultiLostFuture { each: self.guards.iter().map(|guard| guard.lost()).collect() }
    }

    /// Ensures that at least `min` of each lease remains, as
    /// [`LockHandle::ensure`](crate::LockHandle::ensure) does for one lock. Returns how much
    /// remains of all.
    ///
    /// # Errors
    ///
    /// As for [`LockHandle::ensure`](crate::LockHandle::ensure), of the first lock that has one.
    /// [`EnsureError::TooLong`] also if renewing the others took so long that too little is left of
    /// one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a renewal may continue in the background.
    pub async fn ensure(&self, min: Duration) -> Result<Duration, EnsureError> {
        /// The second round renews what became too short during the first.
        const ROUNDS: usize = 2;
        for _ in 0..ROUNDS {
            let ensured = self.guards.iter().map(|guard| guard.ensure(min));
            at_the_same_time(ensured).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            let remaining = self.remaining();
            if remaining >= min {
                return Ok(remaining);
            }
        }
        let shortest = self.guards.iter().min_by_key(|guard| guard.remaining());
        let name = shortest.map_or("", |guard| guard.table_name()).to_owned();
        Err(EnsureError::TooLong { name, min, remaining: self.remaining() })
    }

    /// Releases the locks at the same time, as [`LockGuard::unlock`] does.
    ///
    /// # Errors
    ///
    /// See [`LockGuard::unlock`]: that of the first lock, in the order of names, whose release has
    /// one. All of them are released, or lost.
    ///
    /// # Cancel safety
    ///
    /// The releases continue in the background if the future is dropped.
    pub async fn unlock(mut self) -> Result<(), UnlockError> {
        let guards = std::mem::take(&mut self.guards);
        let released = at_the_same_time(guards.into_iter().map(LockGuard::unlock)).await;
        released.into_iter().collect()
    }
}

/// The later in this order, the less is left of a lock.
fn badness(state: &GuardState) -> u8 {
    match state {
        GuardState::Held { .. } => 0,
        GuardState::AtRisk { .. } => 1,
        GuardState::Expiring { .. } => 2,
        GuardState::Released => 3,
        GuardState::Lost(_) => 4,
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        while self.guards.pop().is_some() {}
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.guards).finish()
    }
}

/// The future of [`MultiGuard::lost`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct MultiLostFuture {
    each: Vec<LostFuture>,
}

impl Future for MultiLostFuture {
    type Output = Option<LostReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polls = self.each.iter_mut().map(|lost| Pin::new(lost).poll(cx));
        let mut ready = polls.filter_map(|poll| match poll {
            Poll::Ready(reason) => Some(reason),
            Poll::Pending => None,
        });
        ready.next().map_or(Poll::Pending, Poll::Ready)
    }
}

impl FusedFuture for MultiLostFuture {
    fn is_terminated(&self) -> bool {
        self.each.iter().any(FusedFuture::is_terminated)
    }
}
