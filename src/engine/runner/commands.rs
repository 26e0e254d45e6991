//! What each command does.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{Command, Need, Releasing, Runner, Stage};
use crate::engine::health::HealthProblem;
use crate::engine::waiters::Caller;
use crate::error::{EnsureError, LockError, LostReason, UnlockError};
use crate::protocol::{Input, Patience};

impl Runner {
    /// Does what the runner is told.
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Acquire(caller) => self.acquire(caller),
            Command::Leave { caller } => self.leave(caller),
            Command::Release { grant, reply } => self.release(grant, reply),
            Command::Confirm { grant, need, reply } => self.confirm(grant, need, reply),
            Command::HealthChanged(problem) => self.health_changed(problem.as_ref()),
            Command::Close => self.close(),
            Command::Retire => unreachable!("it ends the loop"),
        }
    }

    fn acquire(&mut self, caller: Caller) {
        if self.stage == Stage::Closing {
            return caller.answer(Err(LockError::Closed));
        }
        self.stage = Stage::Serving;
        self.callers_taken += 1;
        if caller.acquire.patience == Patience::Try && self.is_taken_here() {
            caller.answer(Ok(None));
        } else if caller.is_waiting() {
            self.callers.push(caller);
            self.handle(Input::Tick);
        }
    }

    fn leave(&mut self, caller: u64) {
        if self.callers.remove(caller) {
            self.handle(Input::Tick);
        }
    }

    /// Whether a caller of this client holds the object or waits for it.
    fn is_taken_here(&self) -> bool {
        self.holder.is_some() || !self.callers.is_empty()
    }

    fn release(&mut self, grant: u64, reply: Option<oneshot::Sender<Result<(), UnlockError>>>) {
        if self.holder.take_if(|holder| holder.grant.id() == grant).is_some() {
            let asked = self.shared.clock.elapsed();
            self.releasing.extend(reply.map(|reply| Releasing { asked, reply }));
            self.handle(Input::Release);
        }
        // Else it was lost between the guard's look at the clock and ours, or found to be; the
        // guard knows the reason.
    }

    fn confirm(
        &mut self,
        grant: u64,
        need: Need,
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    ) {
        let Some(holder) = self.holder.as_mut().filter(|holder| holder.grant.id() == grant) else {
            // It ended between the guard's look at the clock and ours.
            return;
        };
        if let Some(input) = holder.confirm(need, self.shared.clock.elapsed(), reply) {
            self.handle(input);
        }
    }

    /// Applies a health change.
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
            // A holder goes on; a waiter has left.
            HealthProblem::ClocksDiffer { .. } => self.handle(Input::Tick),
            HealthProblem::TableGone => {
                self.drop_holder(LostReason::TableGone);
                self.handle(Input::Release);
            }
        }
    }

    fn close(&mut self) {
        self.stage = Stage::Closing;
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
