//! The guard of a held lock, and what it knows of its lease.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::error::{HoldError, LostReason, UnlockError};
use crate::fence::{Fence, FenceError, FencingToken};
use crate::grant::{End, Grant};
use crate::runner::{Command, Need};

/// A held lock. Dropping it gives the lock back.
///
/// The lock is kept by a lease that is renewed in the background. A holder that is stopped for
/// longer than the lease, or cut off from the database, loses the lock; the guard tells, by
/// [`state`](Self::state), [`lost`](Self::lost) and
/// [`cancellation_token`](Self::cancellation_token).
///
/// # Dropping
///
/// Dropping hands the release to the client's task: it neither blocks nor spawns, and works outside
/// a runtime, as long as the runtime on which the client was built lives. Nothing waits for it: a
/// guard that is dropped as `main` ends, or not dropped at all (`std::process::exit`,
/// `panic=abort`, a killed process), leaves its rows until their TTL is over. End programs with
/// [`unlock`](Self::unlock) or [`LockClient::shutdown`](crate::LockClient::shutdown).
#[must_use = "if unused the lock is given back immediately"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    name: Arc<str>,
    grant: Arc<Grant>,
    fence: Arc<Fence>,
    runner: mpsc::UnboundedSender<Command>,
}

/// What a guard knows of its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// Held.
    Held {
        /// How long the lease still lasts without renewal.
        remaining: Duration,
    },
    /// Held, but prepare to stop: no renewal was acknowledged for two thirds of the lease, or
    /// clocks were found to differ by more than leases allow for, so that somebody else may be let
    /// in before this one ends.
    AtRisk {
        /// How long the lease still lasts without renewal.
        remaining: Duration,
    },
    /// Held for longer than the request's [`max_hold`](crate::LockRequest::max_hold): come to an
    /// end. When the grace is over too, the lock is lost.
    Expiring {
        /// How long the lock is still held: to the end of the grace, or of the lease if that comes
        /// earlier and is not renewed.
        remaining: Duration,
    },
    /// Lost. Final.
    Lost(LostReason),
    /// Given back.
    Released,
}

impl GuardState {
    /// How long the lock is still held; zero when it is not.
    pub(crate) fn remaining(&self) -> Duration {
        match *self {
            GuardState::Held { remaining }
            | GuardState::AtRisk { remaining }
            | GuardState::Expiring { remaining } => remaining,
            GuardState::Lost(_) | GuardState::Released => Duration::ZERO,
        }
    }
}

impl LockGuard {
    pub(crate) fn new(
        name: Arc<str>,
        grant: Arc<Grant>,
        fence: Arc<Fence>,
        runner: mpsc::UnboundedSender<Command>,
    ) -> Self {
        LockGuard { name, grant, fence, runner }
    }

    /// The name of the locked object.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of the lock now, by the clock: no I/O.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.grant.state()
    }

    /// How long the lock is still held without renewal; zero once it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Resolves when the lock is not held any more: with the reason when it was lost, with `None`
    /// when it was given back. It does not borrow the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    #[must_use = "futures do nothing unless polled"]
    pub fn lost(&self) -> Lost {
        Lost::new(self.grant.subscribe())
    }

    /// A token that is cancelled when the lock is not held any more, be it lost or given back.
    /// Cancelling it does nothing to the lock.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.grant.token()
    }

    /// Sees to it that the lock is held for at least `min` from now on, whatever happens to the
    /// database meanwhile; renews the lease if less is left. Returns how long it is held.
    ///
    /// Call it before a step that takes up to `min`. Where enough is left it costs nothing, else
    /// one write.
    ///
    /// # Errors
    ///
    /// [`HoldError::Lost`]: it is not held any more. [`HoldError::TooLong`]: so long a lease can't
    /// be had. [`HoldError::Unconfirmed`]: no quorum acknowledged the renewal within the client's
    /// acquire timeout; the lock is held as long as [`remaining`](Self::remaining) says, and
    /// renewing goes on. [`HoldError::Closed`]: the client's runtime ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; the renewal may go on in the background.
    pub async fn ensure(&self, min: Duration) -> Result<Duration, HoldError> {
        match self.held_for() {
            Ok(remaining) if remaining >= min => Ok(remaining),
            Ok(_) => self.ask(Need::Lease(min)).await,
            Err(error) => Err(error),
        }
    }

    /// Confirms by a read of a quorum, begun after this call, that the rows of the lock are still
    /// there. Returns how long it is held.
    ///
    /// The lease alone tells what the clock knows. This tells also of rows that somebody deleted,
    /// which the next renewal would write again, and at once of a table that is gone.
    ///
    /// # Errors
    ///
    /// As for [`ensure`](Self::ensure), but for [`HoldError::TooLong`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn check(&self) -> Result<Duration, HoldError> {
        self.held_for()?;
        self.ask(Need::Rows).await
    }

    async fn ask(&self, need: Need) -> Result<Duration, HoldError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Confirm { grant: self.grant.id(), need, reply };
        self.runner.send(command).map_err(|_| HoldError::Closed)?;
        // A lock that ends meanwhile leaves the question without an answer, and the guard knows.
        let answer = answer.await.unwrap_or(Err(HoldError::Closed));
        self.held_for().and(answer)
    }

    /// How long the lock is still held by the clock.
    fn held_for(&self) -> Result<Duration, HoldError> {
        match self.state() {
            GuardState::Lost(reason) => Err(HoldError::Lost(reason)),
            GuardState::Released => Err(HoldError::Closed),
            state @ (GuardState::Held { .. }
            | GuardState::AtRisk { .. }
            | GuardState::Expiring { .. }) => Ok(state.remaining()),
        }
    }

    /// Draws a fencing token: a number above those of all earlier holders, which the protected data
    /// can tell this holder by from one that lost the lock. [`FencingToken`] says how to use it.
    ///
    /// It costs a read and a write. Each call draws a new token, above the last one, with room for
    /// as many writes again; calls of one guard at the same time wait for each other. Draw it
    /// before reading what is to be changed under the lock, and not for each write: more than a
    /// thousand tokens a second would run ahead of the clock, and be refused in the end.
    ///
    /// It is handed out only if the lock is still held once a quorum has acknowledged it, so that
    /// everybody who is let in later sees it.
    ///
    /// # Errors
    ///
    /// See [`FenceError`]. Requests that fail are repeated until the client's acquire timeout. The
    /// lock is held or lost as it was without the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does no harm: a value may have been drawn that nobody gets, and the next
    /// token is above it.
    pub async fn fencing_token(&self) -> Result<FencingToken, FenceError> {
        self.fence.draw().await
    }

    /// Gives the lock back and waits until a quorum has acknowledged it: one operation.
    ///
    /// # Errors
    ///
    /// [`UnlockError::Lost`]: it had been lost before, perhaps by the end of the client's runtime.
    /// [`UnlockError::Unacknowledged`]: no quorum answered within the client's acquire timeout; the
    /// release goes on in the background. [`UnlockError::Closed`]: the client's runtime ended
    /// meanwhile; the rows expire by their TTL.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the release goes on in the background when the future is dropped; dropped
    /// before, the guard is dropped with it, which gives the lock back as well.
    pub async fn unlock(self) -> Result<(), UnlockError> {
        let (reply, answer) = oneshot::channel();
        if let Err(ended) = self.grant.end(End::Released) {
            return Err(ended.into_unlock_error());
        }
        let command = Command::Release { grant: self.grant.id(), reply: Some(reply) };
        self.runner.send(command).map_err(|_| UnlockError::Closed)?;
        answer.await.unwrap_or(Err(UnlockError::Closed))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // Whether it was lost already does not matter: a release of what is gone is ignored.
        let _ = self.grant.end(End::Released);
        // The runner is gone when the runtime is; then the rows expire by their TTL.
        let _ = self.runner.send(Command::Release { grant: self.grant.id(), reply: None });
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", &self.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// The future of [`LockGuard::lost`].
#[must_use = "futures do nothing unless polled"]
pub struct Lost(Pin<Box<dyn Future<Output = Option<LostReason>> + Send + Sync>>);

impl Lost {
    fn new(mut ended: watch::Receiver<Option<End>>) -> Self {
        Lost(Box::pin(async move {
            match ended.wait_for(Option::is_some).await.map(|end| end.clone()) {
                Ok(Some(End::Lost(reason))) => Some(reason),
                Ok(Some(End::Released) | None) => None,
                // The grant is gone without an end: the runtime ended, and the renewals with it.
                Err(_) => Some(LostReason::ClientClosed),
            }
        }))
    }
}

impl Future for Lost {
    type Output = Option<LostReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").finish_non_exhaustive()
    }
}
