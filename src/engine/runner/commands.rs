//! What the client's task and the guard ask for.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{Runner, Step};
use crate::core::bakery::Acquire;
use crate::core::turns::{Demand, GuestInput, KeeperId, KeeperInput, Response, TurnId};
use crate::engine::grant::{End, GuardRequest, Need};
use crate::engine::health::HealthProblem;
use crate::engine::inquirer::Inquirer;
use crate::engine::waiters::Caller;
use crate::error::{EnsureError, LockError, LostReason, UnlockError};
use crate::network::Message;

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
    /// There is a new connection to a keeper.
    Reconnected(KeeperId),
    /// Tell the line.
    Tell(Inquirer),
    /// Apply a health change.
    HealthChanged(Option<HealthProblem>),
    /// Dismiss all callers, and release the lock if it is held.
    Close,
}

impl Runner {
    /// Executes a command of the client's task.
    pub(super) fn command(&mut self, command: Command) {
        // Earlier requests of guards come first.
        while let Ok((turn, request)) = self.requests.try_recv() {
            self.request(turn, request);
        }
        match command {
            Command::Acquire(caller) => self.acquire(caller),
            Command::Leave { caller } => self.leave(caller),
            Command::Reconnected(keeper) => {
                self.tell(Step::Guest(keeper, GuestInput::Reconnected));
            }
            Command::Tell(inquirer) => self.tell_line(inquirer),
            Command::HealthChanged(problem) => self.health_changed(problem.as_ref()),
            Command::Close => self.close(),
        }
    }

    /// Executes a request of the guard of a turn. If that is over, there is no answer, and the
    /// grant knows why.
    pub(super) fn request(&mut self, turn: TurnId, request: GuardRequest) {
        match request {
            GuardRequest::Release { reply } => self.release(turn, reply),
            GuardRequest::Confirm { need, reply } => self.confirm(turn, need, reply),
            GuardRequest::DrawToken { reply } => {
                self.draw_token(turn, reply);
                self.settle();
            }
        }
    }

    fn acquire(&mut self, caller: Caller) {
        if caller.is_waiting() {
            let Acquire { mode, terms, patience, .. } = caller.acquire;
            let Caller { number, min_hold, .. } = caller;
            let demand = Demand { mode, terms, patience, min_hold };
            self.callers.insert(caller);
            self.tell_keeper(KeeperInput::Join { caller: number, demand });
        }
    }

    fn leave(&mut self, caller: u64) {
        if self.callers.take(caller).is_some() {
            self.caller_left(caller);
        }
    }

    /// Takes a caller out of the line; it is no longer among the callers.
    pub(super) fn caller_left(&mut self, caller: u64) {
        self.tell_keeper(KeeperInput::Leave { caller });
        self.reconsider_asking();
    }

    /// The turn of the guard is over. If another turn follows, or is being prepared, the lock is
    /// released as far as its caller is concerned; otherwise the rows are deleted first, or written
    /// once more.
    fn release(&mut self, turn: TurnId, reply: Option<oneshot::Sender<Result<(), UnlockError>>>) {
        let Some(ended) = self.holders.with(turn, |holder| holder.grant.ended()) else {
            return;
        };
        // Its guard knew first. Others must not have a place that is lost.
        if let Some(End::Lost(reason)) = ended {
            return self.turn_is_lost(turn, reason);
        }
        self.end_turn(turn);
        let Some(reply) = reply else {
            return;
        };
        if self.keeper.outlasts_turn() || self.keeper.is_releasing() {
            self.releases.push(self.shared.clock.elapsed(), reply);
        } else {
            // A caller that stopped waiting needs no answer.
            let _ = reply.send(Ok(()));
        }
    }

    /// Handles a message of another client.
    pub(super) fn received(&mut self, message: Message) {
        match message {
            Message::Request(guest, request) => {
                self.tell_keeper(KeeperInput::Request { guest, request });
            }
            Message::Left(guest) => self.tell_keeper(KeeperInput::GuestLeft { guest }),
            Message::Response(keeper, Response::Granted(granted), _)
                if !self.borrowing.knows(keeper) =>
            {
                self.return_at_once(keeper, granted.turn);
            }
            Message::Response(keeper, response, user) => {
                self.borrowing.note_user(keeper, user);
                self.tell(Step::Guest(keeper, GuestInput::Response(response)));
            }
        }
    }

    fn confirm(
        &mut self,
        turn: TurnId,
        need: Need,
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    ) {
        let asked = self.shared.clock.elapsed();
        let input = self.holders.with(turn, |holder| holder.confirm(need, asked, reply));
        if let Some(input) = input.flatten() {
            if !self.renew_borrowed(turn) {
                self.steps.push_back(Step::Contender(input));
            }
            self.settle();
        }
    }

    fn health_changed(&mut self, problem: Option<&HealthProblem>) {
        let differ = matches!(problem, Some(HealthProblem::ClocksDiffer { .. }));
        self.clocks_differ = differ;
        self.holders.for_each(|holder| {
            holder.grant.set_clocks_differ(differ);
            holder.warn_if_at_risk();
        });
        let Some(problem) = problem else {
            return;
        };
        match problem {
            // A holder continues.
            HealthProblem::ClocksDiffer { .. } => {}
            HealthProblem::TableGone => self.place_is_lost(&LostReason::TableGone),
        }
        self.dismiss_all(&problem.refusal(&self.object));
    }

    fn close(&mut self) {
        self.tell_keeper(KeeperInput::Shutdown);
        self.is_closing = true;
        // Nothing waits for it, and it is harmless at any step.
        self.sweep = None;
        let boot = self.shared.clock.since_boot();
        match self.holders.only() {
            Some(turn) if self.keeper.outlasts_return(turn, boot) => {
                self.lose_turn(turn, LostReason::ClientClosed);
            }
            Some(_) | None => self.place_is_lost(&LostReason::ClientClosed),
        }
        self.dismiss_all(&LockError::Closed);
    }

    fn dismiss_all(&mut self, error: &LockError) {
        for caller in self.callers.take_all() {
            self.caller_left(caller.number);
            caller.answer(Err(error.clone()));
        }
    }
}
