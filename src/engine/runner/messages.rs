//! What a runner is told, and what it tells.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::engine::health::{CheckReason, HealthProblem};
use crate::engine::waiters::Caller;
use crate::error::{EnsureError, UnlockError};

/// What a runner is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Acquire for a caller.
    Acquire(Caller),
    /// A caller has stopped waiting.
    Leave {
        /// Its number.
        caller: u64,
    },
    /// Give back what was granted.
    Release {
        /// Which grant.
        grant: u64,
        /// The caller that waits for the acknowledgement; dropped without an answer when the lock
        /// was lost before.
        reply: Option<oneshot::Sender<Result<(), UnlockError>>>,
    },
    /// Make sure that what was granted is held.
    Confirm {
        /// Which grant.
        grant: u64,
        /// What has to be sure.
        need: Need,
        /// The caller that waits; dropped without an answer when the grant ends.
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    },
    /// Apply a health change.
    HealthChanged(Option<HealthProblem>),
    /// Refuse all callers, give back what is held, and end.
    Close,
    /// End: no caller will ask again.
    Retire,
}

/// What a holder wants to be sure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// That the lease lasts so long without renewal.
    Lease(Duration),
    /// That the rows are there.
    Rows,
}

/// What a runner tells the client's task.
#[derive(Debug)]
pub(crate) enum Report {
    /// It has nothing to do.
    Idle(Idle),
    /// There is a reason to check health.
    CheckHealth(CheckReason),
}

/// A runner that has nothing to do.
#[derive(Debug)]
pub(crate) struct Idle {
    /// For which object.
    pub(crate) object: Arc<str>,
    /// Where it takes commands, which tells it from another runner of the object.
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    /// How many callers it has taken in all.
    pub(crate) callers_taken: u64,
}
