//! One task per contender: feeds the protocol, does its I/O, sleeps. It translates and decides
//! nothing.
//!
//! # Where to look
//!
//! This file is the loop, and how the contender is fed. [`messages`] says what a runner is told and
//! what it tells, [`wake`] what else it waits for. [`commands`] says what each command does,
//! [`events`] where the contender's events lead, [`requests`] how its writes and reads are made.
//! [`holder`] is the holder of the object.

mod commands;
mod events;
mod holder;
mod messages;
mod requests;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::{Span, debug, trace};

use self::holder::Holder;
pub(crate) use self::messages::{Command, Idle, Need, Report};
use self::requests::Flight;
use self::wake::Wake;
use crate::contender::Contender;
use crate::engine::grant::End;
use crate::engine::health::CheckReason;
use crate::engine::shared::Shared;
use crate::engine::waiters::CallerQueue;
use crate::error::{LockError, LostReason, UnlockError};
use crate::options::shown;
use crate::protocol::{Acquire, Input, Output, SeenContender, StateMachine};
use crate::store::DatabaseError;

/// Runs one contender until it is retired or closed.
pub(crate) struct Runner {
    object: Arc<str>,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Goes along with each guard.
    own_commands: mpsc::UnboundedSender<Command>,
    reports: mpsc::UnboundedSender<Report>,
    contender: StateMachine,
    callers: CallerQueue,
    callers_taken: u64,
    acquiring: Option<Acquire>,
    holder: Option<Holder>,
    grants: u64,
    releasing: Vec<Releasing>,
    /// The operation that is outstanding.
    flight: Option<Flight>,
    last_error: Option<DatabaseError>,
    stage: Stage,
}

/// A caller that waits for the acknowledgement of a release.
struct Releasing {
    asked: Duration,
    reply: oneshot::Sender<Result<(), UnlockError>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Callers are welcome.
    Serving,
    /// The client was told that there is nothing to do.
    Idle,
    /// All callers are refused.
    Closing,
}

impl Runner {
    /// A runner for one object, and where to send it commands.
    pub(crate) fn new(
        object: Arc<str>,
        shared: Arc<Shared>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> (Self, mpsc::UnboundedSender<Command>) {
        let (own_commands, commands) = mpsc::unbounded_channel();
        let runner = Runner {
            object,
            contender: StateMachine::new(shared.id),
            shared,
            commands,
            own_commands: own_commands.clone(),
            reports,
            callers: CallerQueue::default(),
            callers_taken: 0,
            acquiring: None,
            holder: None,
            grants: 0,
            releasing: Vec::new(),
            flight: None,
            last_error: None,
            stage: Stage::Serving,
        };
        (runner, own_commands)
    }

    /// Runs until there is nothing to do any more, and no caller to do it for.
    pub(crate) async fn run(mut self) {
        loop {
            if self.contender.is_idle() && self.stage == Stage::Closing {
                return;
            }
            self.tell_if_idle();
            match self.wake().await {
                Wake::Command(None | Some(Command::Retire)) | Wake::Forked => return,
                Wake::Command(Some(command)) => self.command(command),
                Wake::Answer(input, error) => {
                    self.flight = None;
                    if error.as_ref().is_some_and(DatabaseError::is_permanent) {
                        self.report(Report::CheckHealth(CheckReason::Refusal));
                    }
                    self.last_error = error;
                    self.handle(input);
                }
                Wake::Timer => {}
            }
            // Whatever it was: while commands come without a pause, no timer gets its turn.
            self.tick_if_due();
            self.give_back_what_is_over();
            self.warn_if_at_risk();
            self.dismiss_expired();
        }
    }

    fn tell_if_idle(&mut self) {
        let nothing_to_do = self.contender.is_idle() && self.callers.is_empty();
        if nothing_to_do && self.stage == Stage::Serving {
            self.stage = Stage::Idle;
            let (object, commands) = (Arc::clone(&self.object), self.own_commands.clone());
            let callers_taken = self.callers_taken;
            self.report(Report::Idle(Idle { object, commands, callers_taken }));
        }
    }

    fn report(&self, report: Report) {
        // When the client's task ended there is no receiver, and no caller either.
        let _ = self.reports.send(report);
    }

    /// Feeds the contender and does what it asks for, until it asks for nothing more.
    fn handle(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            let now = self.shared.now();
            trace!(parent: &self.span(), object = shown(&self.object), ?input, "input");
            self.contender.handle(now, input);
            let mut answer = None;
            while let Some(output) = self.contender.poll() {
                trace!(parent: &self.span(), object = shown(&self.object), ?output, "output");
                match output {
                    Output::Write { op, write } => self.flight = Some(self.write(op, write)),
                    Output::Read { op, read } => self.flight = Some(self.read(op, read)),
                    Output::Event(event) => answer = answer.or(self.event(&event)),
                }
            }
            next = answer.or_else(|| self.serve());
        }
    }

    /// What the callers want of the contender now.
    fn serve(&mut self) -> Option<Input> {
        let first = self.callers.first().map(|caller| caller.acquire.clone());
        if let Some(acquiring) = &self.acquiring {
            // When the first caller left, the next one takes over its place if the rows that stand
            // in the table say the same for both.
            if first.as_ref() == Some(acquiring) {
                return None;
            }
            self.acquiring = None;
            return Some(Input::Release);
        }
        let first = first.filter(|_| self.contender.is_idle())?;
        self.acquiring = Some(first.clone());
        Some(Input::Acquire(first))
    }

    fn tick_if_due(&mut self) {
        let now = self.shared.clock.elapsed();
        if self.contender.deadline().is_some_and(|due| due <= now) {
            self.handle(Input::Tick);
        }
    }

    /// Ends what the clock has ended, be it the lease or the hold limit.
    fn give_back_what_is_over(&mut self) {
        let ended = self.holder.as_ref().and_then(|holder| holder.grant.ended());
        if let Some(End::Lost(reason)) = ended {
            self.drop_holder(reason);
            self.handle(Input::Release);
        }
    }

    fn warn_if_at_risk(&mut self) {
        if let Some(holder) = &mut self.holder {
            holder.warn_if_at_risk();
        }
    }

    fn drop_holder(&mut self, reason: LostReason) {
        if let Some(holder) = self.holder.take() {
            holder.lose(reason);
        }
    }

    /// Sends away all who have waited long enough.
    fn dismiss_expired(&mut self) {
        let now = self.shared.clock.elapsed();
        let expired = self.callers.take_expired(now);
        let someone_left = !expired.is_empty();
        for caller in expired {
            let waited = now.saturating_sub(caller.asked);
            debug!(parent: &caller.span, ?waited, "timed out");
            let name = self.object.to_string();
            let (ahead, cause) = (self.ahead(), self.last_error.clone());
            caller.answer(Err(LockError::TimedOut { name, waited, ahead, cause }));
        }
        let limit = self.shared.acquire_timeout;
        for releasing in
            self.releasing.extract_if(.., |releasing| is_over(releasing.asked, limit, now))
        {
            let waited = now.saturating_sub(releasing.asked);
            let cause = self.last_error.clone();
            let _ = releasing.reply.send(Err(UnlockError::Unacknowledged { waited, cause }));
        }
        if let Some(holder) = &mut self.holder {
            holder.dismiss_expired(now, limit, self.last_error.as_ref());
        }
        if someone_left {
            self.handle(Input::Tick);
        }
    }

    /// The contenders that hold the object or will before the first caller.
    fn ahead(&self) -> Vec<Contender> {
        match self.contender.held_claim() {
            Some(claim) => vec![SeenContender::from(claim).into()],
            None => self.contender.ahead().iter().cloned().map(Contender::from).collect(),
        }
    }

    /// The span of the acquisition that the contender is busy with.
    fn span(&self) -> Span {
        let holder = self.holder.as_ref().map(|holder| &holder.span);
        let span = holder.or_else(|| self.callers.first().map(|caller| &caller.span));
        span.cloned().unwrap_or_else(Span::none)
    }
}

/// Whether `limit` is over for what was asked at `asked`. The limit may be longer than any clock
/// counts.
fn is_over(asked: Duration, limit: Duration, now: Duration) -> bool {
    now.saturating_sub(asked) >= limit
}

/// The runtime ended, or a bug ended this task, and with it the renewals: the guard learns of it at
/// once, and before the channel of commands closes.
impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            // A guard that was given back meanwhile was not lost. Its release gets no answer.
            let _ = holder.grant.end(End::Lost(LostReason::ClientClosed));
        }
    }
}
