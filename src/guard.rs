//! The guard of a held lock, and what it knows of its lease.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{LostReason, UnlockError};
use crate::protocol::Lease;
use crate::runner::Command;

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
    runner: mpsc::UnboundedSender<Command>,
}

/// What a guard knows of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// Held.
    Held {
        /// How long the lease still lasts without renewal.
        remaining: Duration,
    },
    /// Held, but no renewal was acknowledged for two thirds of the lease: prepare to stop.
    AtRisk {
        /// How long the lease still lasts without renewal.
        remaining: Duration,
    },
    /// Lost. Final.
    Lost(LostReason),
    /// Given back.
    Released,
}

impl LockGuard {
    pub(crate) fn new(
        name: Arc<str>,
        grant: Arc<Grant>,
        runner: mpsc::UnboundedSender<Command>,
    ) -> Self {
        LockGuard { name, grant, runner }
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

    /// How long the lease still lasts without renewal; zero once the lock is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.state() {
            GuardState::Held { remaining } | GuardState::AtRisk { remaining } => remaining,
            GuardState::Lost(_) | GuardState::Released => Duration::ZERO,
        }
    }

    /// Resolves when the lock is not held any more: with the reason when it was lost, with `None`
    /// when it was given back. It does not borrow the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    #[must_use = "futures do nothing unless polled"]
    pub fn lost(&self) -> Lost {
        Lost::new(self.grant.ended.subscribe())
    }

    /// A token that is cancelled when the lock is not held any more, be it lost or given back.
    /// Cancelling it does nothing to the lock.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.grant.token.child_token()
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
        let command = Command::Release { grant: self.grant.id, reply: Some(reply) };
        self.runner.send(command).map_err(|_| UnlockError::Closed)?;
        answer.await.unwrap_or(Err(UnlockError::Closed))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // Whether it was lost already does not matter: a release of what is gone is ignored.
        let _ = self.grant.end(End::Released);
        // The runner is gone when the runtime is; then the rows expire by their TTL.
        let _ = self.runner.send(Command::Release { grant: self.grant.id, reply: None });
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
            match ended.wait_for(Option::is_some).await.map(|end| *end) {
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

/// What the runner and the guard of one grant share.
#[derive(Debug)]
pub(crate) struct Grant {
    id: u64,
    clock: Arc<dyn Clock>,
    /// Locked for moments only. It orders renewals and ends, so that what is lost stays lost.
    lease: Mutex<Lease>,
    ended: watch::Sender<Option<End>>,
    token: CancellationToken,
}

/// How a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lock was lost.
    Lost(LostReason),
    /// It was given back.
    Released,
}

impl End {
    fn into_unlock_error(self) -> UnlockError {
        match self {
            End::Lost(reason) => UnlockError::Lost(reason),
            // Only a guard gives back, and it is consumed by that.
            End::Released => UnlockError::Closed,
        }
    }
}

impl Grant {
    /// A grant with its first lease.
    pub(crate) fn new(id: u64, clock: Arc<dyn Clock>, lease: Lease) -> Self {
        Grant {
            id,
            clock,
            lease: Mutex::new(lease),
            ended: watch::Sender::new(None),
            token: CancellationToken::new(),
        }
    }

    /// Tells this grant from later ones of the same object.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Puts a renewed lease in place; `Err` says how the grant had ended before.
    pub(crate) fn renew(&self, renewed: Lease) -> Result<(), End> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match self.end_if_expired(*lease) {
            Some(before) => Err(before),
            None => {
                *lease = renewed;
                Ok(())
            }
        }
    }

    /// Ends the grant, once; `Err` says how it had ended before.
    pub(crate) fn end(&self, end: End) -> Result<(), End> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match self.end_if_expired(*lease) {
            Some(before) => Err(before),
            None => {
                self.set_end(end);
                Ok(())
            }
        }
    }

    fn state(&self) -> GuardState {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match self.end_if_expired(*lease) {
            Some(End::Lost(reason)) => GuardState::Lost(reason),
            Some(End::Released) => GuardState::Released,
            None => {
                let now = self.clock.elapsed();
                let remaining = lease.deadline().saturating_sub(now);
                if now >= lease.at_risk_from() {
                    GuardState::AtRisk { remaining }
                } else {
                    GuardState::Held { remaining }
                }
            }
        }
    }

    /// How the grant ended; an expiry that nobody noticed yet is noticed here.
    fn end_if_expired(&self, lease: Lease) -> Option<End> {
        let ended = *self.ended.borrow();
        if ended.is_none() && !lease.is_valid(self.clock.elapsed()) {
            self.set_end(End::Lost(LostReason::Expired));
            return Some(End::Lost(LostReason::Expired));
        }
        ended
    }

    fn set_end(&self, end: End) {
        self.ended.send_replace(Some(end));
        self.token.cancel();
    }
}
