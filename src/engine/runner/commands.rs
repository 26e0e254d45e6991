//! What the client's task and the guard ask for.

use std::time::Duration;

use tokio::sync::oneshot;

use super::Runner;
use super::holder::Holder;
use crate::engine::grant::{GuardRequest, Need};
use crate::engine::health::HealthProblem;
use crate::engine::waiters::Caller;
use crate::error::{EnsureError, LockError, LostReason, UnlockError};
use crate::protocol::{Input, Patience};

/// A command of the client's task to a runner.
#[derive(Debug)]
pub(crate) enum Command {
    /// Acquire for a caller.
    Acquire(Caller),
    /// A caller has stopped waiting.
    Leave {
        /// Its number.
        caller: u64,
    },
    /// Apply a health change.
    HealthChanged(Option<HealthProblem>),
    /// Dismiss all callers, and release the lock if it is held.
    Close,
}

impl Runner {
    /// Executes a command of the client's task.
    pub(super) fn command(&mut self, command: Command) {
        // Earlier requests of the guard come first.
        while let Some(request) = self.holder.as_mut().and_then(Holder::next_request) {
            self.request(request);
        }
        match command {
            Command::Acquire(caller) => self.acquire(caller),
            Command::Leave { caller } => self.callers.remove(caller),
            Command::HealthChanged(problem) => self.health_changed(problem.as_ref()),
            Command::Close => self.close(),
        }
    }

    /// Executes a request of the guard.
    pub(super) fn request(&mut self, request: GuardRequest) {
        match request {
            GuardRequest::Release { reply } => self.release(reply),
            GuardRequest::Confirm { need, reply } => self.confirm(need, reply),
        }
    }

    fn acquire(&mut self, caller: Caller) {
        if caller.acquire.patience == Patience::Try && self.is_taken_here() {
            caller.answer(Ok(None));
        } else if caller.is_waiting() {
            self.callers.push(caller);
        }
    }

    /// Whether a caller of this client holds the object or waits for it.
    fn is_taken_here(&self) -> bool {
        self.holder.is_some() || !self.callers.is_empty()
    }

    fn release(&mut self, reply: Option<oneshot::Sender<Result<(), UnlockError>>>) {
        self.holder = None;
        if let Some(reply) = reply {
            self.releases.push(self.shared.clock.elapsed(), reply);
        }
        self.handle(Input::Release);
    }

    fn confirm(&mut self, need: Need, reply: oneshot::Sender<Result<Duration, EnsureError>>) {
        let asked = self.shared.clock.elapsed();
        let holder = self.holder.as_mut();
        if let Some(input) = holder.and_then(|holder| holder.confirm(need, asked, reply)) {
            self.handle(input);
        }
    }

    fn health_changed(&mut self, problem: Option<&HealthProblem>) {
        if let Some(holder) = &self.holder {
            let differ = matches!(problem, Some(HealthProblem::ClocksDiffer { .. }));
            holder.grant.set_clocks_differ(differ);
        }
        let Some(problem) = problem else {
            return;
        };
        while let Some(caller) = self.callers.pop() {
            caller.answer(Err(problem.refusal(&self.object)));
        }
        match problem {
            // A holder continues.
            HealthProblem::ClocksDiffer { .. } => {}
            HealthProblem::TableGone => {
                self.drop_holder(LostReason::TableGone);
                self.handle(Input::Release);
            }
        }
    }

    fn close(&mut self) {
        while let Some(caller) = self.callers.pop() {
            caller.answer(Err(LockError::Closed));
        }
        self.drop_holder(LostReason::ClientClosed);
        self.acquiring = None;
        if !self.contender.is_idle() {
            self.handle(Input::Release);
        }
    }
}
