//! One task per object in use: it feeds two state machines, does their I/O and sleeps. It only
//! translates, and decides nothing. The contender acquires, renews and releases a place in the
//! table; the keeper decides who uses it, in turn.
//!
//! # Where to look
//!
//! This file is the loop: what the task waits for, and how it feeds the state machines.
//! [`commands`] handles what the client's task and the guard ask for, [`events`] the contender's
//! events, [`turns`] what the keeper asks for, [`operations`] writes and reads. [`holder`] has the
//! holders of the object, [`releases`] the callers that wait until it is released, [`returned`] a
//! lock that was released before its `min_hold` was over, [`sweeping`] hides the rows of clients
//! that left or died, [`told`] is what others learn of the line.

mod borrowing;
mod commands;
mod draws;
mod events;
mod holder;
mod operations;
mod releases;
mod returned;
mod sweeping;
mod told;
mod turns;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, Span, debug, trace};

use self::borrowing::Borrowing;
pub(crate) use self::commands::Command;
use self::draws::{Drawn, Draws};
use self::holder::Holders;
use self::operations::Answer;
use self::releases::Releases;
use crate::clock::SLEEP_MAX;
use crate::contender::Contender;
use crate::core::bakery::{
    Acquire, ContenderId, Input, Output, Patience, SeenContender, StateMachine,
};
use crate::core::turns::{GuestInput, Keeper, KeeperId, KeeperInput, Rivals, TurnId};
use crate::engine::alternating::{Alternating, Next};
use crate::engine::grant::{End, Grant, GuardRequest};
use crate::engine::health::CheckReason;
use crate::engine::shared::Shared;
use crate::engine::timer::Timer;
use crate::engine::wait::when_some;
use crate::engine::waiters::{Caller, Callers};
use crate::error::{LockError, LostReason, UnlockError};
use crate::network::{Message, Network};
use crate::options::shown;
use crate::store::DatabaseError;

/// Runs the contender of one object, as long as there is something to do.
pub(crate) struct Runner {
    object: Arc<str>,
    slot: i16,
    shared: Arc<Shared>,
    /// How messages go to other clients, if callers take turns of them.
    network: Option<Arc<dyn Network>>,
    /// From the client's task, and from other clients.
    incoming: Alternating<Command, Message>,
    /// Reasons to check health, for the client's task.
    checks: mpsc::UnboundedSender<CheckReason>,
    contender: StateMachine,
    keeper: Keeper,
    /// What the two state machines are to be told.
    steps: VecDeque<Step>,
    callers: Callers,
    holders: Holders,
    /// What guards ask, and where they ask it.
    requests: mpsc::UnboundedReceiver<(TurnId, GuardRequest)>,
    requests_sender: mpsc::UnboundedSender<(TurnId, GuardRequest)>,
    releases: Releases,
    /// The last lock that was released before its `min_hold` was over.
    returned_early: Option<Arc<Grant>>,
    /// The client is shut down.
    is_closing: bool,
    /// The outstanding operation of the contender.
    operation: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Clocks differ by more than the table allows, as far as is known.
    clocks_differ: bool,
    /// A warning was given of the object's mark.
    warned_of_mark: bool,
    /// The sweep under way.
    sweep: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The outstanding glance of the keeper.
    glance: Option<Pin<Box<dyn Future<Output = Vec<ContenderId>> + Send>>>,
    borrowing: Borrowing,
    /// The last turn that a guest was granted: that is repeated until the guest knows.
    lent: Option<TurnId>,
    rivals: Rivals,
    draws: Draws,
    /// How the place was wanted last.
    wanted: Option<Acquire>,
    /// Why the last operation failed, if it did; reported to dismissed callers.
    setback: Option<DatabaseError>,
    timer: Timer,
}

/// Which contender of a client a runner has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    /// The object.
    pub(crate) object: Arc<str>,
    /// The client's place for it.
    pub(crate) slot: i16,
}

/// The slot whose place callers use in turn. The others are for limited callers, each for itself.
pub(crate) const SLOT_OF_TURNS: i16 = 0;

/// A runner that has nothing left to do.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its contender.
    pub(crate) seat: Seat,
    /// The callers that came as it ended.
    pub(crate) unserved: Vec<Caller>,
}

/// An input of one of the state machines.
enum Step {
    Contender(Input),
    Keeper(KeeperInput),
    Guest(KeeperId, GuestInput),
}

/// Why the runner woke up.
enum Wake {
    /// A fork copied this task into another process. There, rows and connections belong to the
    /// parent.
    Forked,
    /// The outstanding operation was answered, or failed.
    Answer(Answer),
    /// The sweep came to an end.
    Swept,
    /// The outstanding glance was answered, or failed.
    Glanced(Vec<ContenderId>),
    /// A keeper can be asked, or can't.
    Connected(Option<KeeperId>),
    /// A block of tokens was drawn, or was not.
    Drawn(Drawn),
    Request(TurnId, GuardRequest),
    Received(Message),
    Command(Option<Command>),
    Timer,
}

impl Runner {
    /// A runner for one object, and where to send it commands. A slot other than that of turns has
    /// its place for one caller after the other, each with a round of its own.
    pub(crate) fn new(
        Seat { object, slot }: Seat,
        shared: Arc<Shared>,
        checks: mpsc::UnboundedSender<CheckReason>,
    ) -> (Self, mpsc::UnboundedSender<Command>) {
        let (sender, commands) = mpsc::unbounded_channel();
        let network = shared.network.clone().filter(|_| slot == SLOT_OF_TURNS);
        let (requests_sender, requests) = mpsc::unbounded_channel();
        let holders = Holders::new(shared.acquire_timeout);
        let messages = network.as_ref().map(|it| it.inbox().open(it.key(&object)));
        let keeper = Keeper::new(shared.turns && slot == SLOT_OF_TURNS)
            .with_guest_hold_max(network.as_ref().and_then(|it| it.guest_hold_max()));
        let now = shared.stamp();
        let raised = shared.raised.by(&(Arc::clone(&object), slot), now);
        let runner = Runner {
            object,
            slot,
            network,
            contender: StateMachine::raised(ContenderId { slot, ..shared.id }, raised),
            keeper,
            steps: VecDeque::new(),
            shared,
            incoming: Alternating::new(commands, messages),
            checks,
            callers: Callers::default(),
            holders,
            requests,
            requests_sender,
            releases: Releases::default(),
            returned_early: None,
            is_closing: false,
            operation: None,
            clocks_differ: false,
            warned_of_mark: false,
            sweep: None,
            glance: None,
            borrowing: Borrowing::default(),
            lent: None,
            rivals: Rivals::default(),
            draws: Draws::default(),
            wanted: None,
            setback: None,
            timer: Timer::default(),
        };
        (runner, sender)
    }

    /// Runs until there is nothing left to do.
    pub(crate) async fn run(mut self) -> Ended {
        loop {
            match self.wake().await {
                Wake::Answer(answer) => self.answered(answer),
                Wake::Swept => self.sweep = None,
                Wake::Glanced(seen) => self.glanced(&seen),
                Wake::Connected(keeper) => self.connected(keeper),
                Wake::Drawn(drawn) => self.block_drawn(drawn),
                Wake::Request(turn, GuardRequest::Release { reply }) => {
                    self.let_go(turn, reply).await;
                }
                Wake::Request(turn, request) => self.request(turn, request),
                Wake::Received(message) => self.received(message),
                Wake::Command(Some(command)) => self.command(command),
                Wake::Timer => {}
                // The callers belong to another process, or are gone with the client's task.
                Wake::Forked | Wake::Command(None) => return self.ended(Vec::new()),
            }
            // After any wake-up: while commands come without a pause, no timer gets its turn.
            self.tick_if_due();
            self.look_at_holders();
            self.dismiss_expired();
            if self.outlives_client() {
                return self.ended(Vec::new());
            }
            if self.is_idle() {
                let unserved = self.close_commands().await;
                return self.ended(unserved);
            }
        }
    }

    /// Ends the turn. If no caller waits, those join first that are on their way through the
    /// client's task: without them the place would be given up for nothing.
    async fn let_go(
        &mut self,
        turn: TurnId,
        reply: Option<oneshot::Sender<Result<(), UnlockError>>>,
    ) {
        let mut later = Vec::new();
        if self.keeper.is_line_empty() {
            tokio::task::yield_now().await;
            while let Some(command) = self.incoming.own_at_once() {
                // For a try the place counts as free.
                let joins = |caller: &Caller| caller.acquire.patience == Patience::Wait;
                if matches!(&command, Command::Acquire(caller) if joins(caller)) {
                    self.command(command);
                } else {
                    later.push(command);
                }
            }
        }
        self.request(turn, GuardRequest::Release { reply });
        for command in later {
            self.command(command);
        }
    }

    /// Closes the command channel, and returns the callers of the commands still in it: also of
    /// those that are being sent at this moment, which only `recv` waits for.
    async fn close_commands(&mut self) -> Vec<Caller> {
        self.incoming.close_own();
        let mut callers = Vec::new();
        while let Some(command) = self.incoming.own().await {
            if let Command::Acquire(caller) = command {
                callers.push(caller);
            }
        }
        callers
    }

    /// Whether there is nothing left to do.
    fn is_idle(&self) -> bool {
        let is_sweeping = self.sweep.is_some();
        let are_idle = self.contender.is_idle() && self.keeper.is_idle();
        are_idle && self.borrowing.is_done() && !is_sweeping
    }

    fn ended(&self, unserved: Vec<Caller>) -> Ended {
        Ended { seat: Seat { object: Arc::clone(&self.object), slot: self.slot }, unserved }
    }

    /// Waits until there is something to do.
    async fn wake(&mut self) -> Wake {
        let sleep = self.sleep();
        let process = self.shared.process;
        // First at each poll, so that a fork sends nothing.
        let forked =
            poll_fn(|_| if process.is_current() { Poll::Pending } else { Poll::Ready(()) });
        tokio::select! {
            biased;
            () = forked => Wake::Forked,
            answer = when_some(self.operation.as_mut()) => Wake::Answer(answer),
            () = when_some(self.sweep.as_mut()) => Wake::Swept,
            seen = when_some(self.glance.as_mut()) => Wake::Glanced(seen),
            keeper = self.borrowing.connected() => Wake::Connected(keeper),
            drawn = self.draws.block() => Wake::Drawn(drawn),
            Some((turn, request)) = self.requests.recv() => Wake::Request(turn, request),
            // After the answer: commands and messages may come faster than they are handled, and a
            // renewal must not wait for that. Work that is due is done after each of them as well.
            next = self.incoming.next() => match next {
                Next::Own(command) => Wake::Command(Some(command)),
                Next::OwnIsOver => Wake::Command(None),
                Next::Others(message) => Wake::Received(message),
            },
            () = when_some(sleep.map(|sleep| self.timer.within(sleep))) => Wake::Timer,
        }
    }

    /// The time until the next deadline.
    fn sleep(&self) -> Option<Duration> {
        let asked = self.releases.first_asked();
        let released = asked.map(|asked| asked.saturating_add(self.shared.acquire_timeout));
        let (contender, callers) = (self.contender.deadline(), self.callers.deadline());
        let (holders, guests) = (self.holders.deadline(), self.borrowing.deadline());
        let deadlines = [contender, callers, holders, released, guests];
        let next = deadlines.into_iter().flatten().min();
        let sleep = next.map(|next| next.saturating_sub(self.shared.clock.elapsed()));
        let by_boot = self.keeper.deadline();
        let of_keeper = by_boot.map(|due| due.saturating_sub(self.shared.clock.since_boot()));
        Some(sleep.into_iter().chain(of_keeper).min()?.min(SLEEP_MAX))
    }

    /// Passes on the answer of the outstanding operation.
    fn answered(&mut self, Answer { input, error, calls_for_sweep }: Answer) {
        self.operation = None;
        if let Input::Read { rows: Ok(rows), statics, .. } = &input {
            self.look_at_mark(statics.mark);
            if calls_for_sweep {
                self.consider_sweep(rows, statics.mark);
            }
        }
        if error.as_ref().is_some_and(DatabaseError::is_permanent) {
            self.check_health(CheckReason::Refusal);
        }
        self.setback = error;
        self.tell_contender(input);
        self.look_for_keeper();
    }

    /// Contenders whose clients stand in the line are none of the table's.
    fn glanced(&mut self, seen: &[ContenderId]) {
        self.glance = None;
        let clients = seen.iter().map(|contender| contender.client);
        let mut outsiders = clients.filter(|client| !self.keeper.serves(*client)).peekable();
        let any = outsiders.peek().is_some();
        self.rivals.seen(outsiders);
        self.tell_keeper(KeeperInput::Glanced { outsiders: any });
    }

    fn check_health(&self, reason: CheckReason) {
        // If the client's task has ended there is no receiver, and no caller either.
        let _ = self.checks.send(reason);
    }

    /// Tells the contender, and does what follows.
    fn tell_contender(&mut self, input: Input) {
        self.tell(Step::Contender(input));
    }

    /// Tells the keeper, and does what follows.
    fn tell_keeper(&mut self, input: KeeperInput) {
        self.tell(Step::Keeper(input));
    }

    /// Feeds the state machines until neither asks anything of the other: one step after the other,
    /// so that a long line of callers that left needs no deep stack.
    fn tell(&mut self, step: Step) {
        self.steps.push_back(step);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Contender(input) => self.feed_contender(input),
                Step::Keeper(input) => self.feed_keeper(input),
                Step::Guest(keeper, input) => self.feed_guest(keeper, input),
            }
        }
    }

    fn feed_contender(&mut self, input: Input) {
        let now = self.shared.now();
        trace!(parent: self.span(), object = shown(&self.object), ?input, "input");
        self.contender.handle(now, input);
        while let Some(output) = self.contender.poll() {
            trace!(parent: self.span(), object = shown(&self.object), ?output, "output");
            match output {
                Output::Write { op, write } => {
                    let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
                    self.start(operations::write(shared, object, op, write));
                }
                Output::Read { op, read } => {
                    let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
                    self.start(operations::read(shared, object, op, read));
                }
                Output::Event(event) => self.event(event),
            }
        }
    }

    fn feed_keeper(&mut self, input: KeeperInput) {
        let now = self.shared.moment();
        let (object, boot) = (shown(&self.object), now.boot.as_nanos());
        trace!(parent: self.span(), object, ?input, boot, "input of the keeper");
        self.keeper.handle(now, input);
        while let Some(output) = self.keeper.poll() {
            trace!(parent: self.span(), object = shown(&self.object), ?output, "of the keeper");
            self.keeper_asks(output);
        }
    }

    fn start(&mut self, operation: impl Future<Output = Answer> + Send + 'static) {
        let span = self.span().clone();
        self.operation = Some(Box::pin(operation.instrument(span)));
    }

    fn tick_if_due(&mut self) {
        let now = self.shared.clock.elapsed();
        if self.contender.deadline().is_some_and(|due| due <= now) {
            self.tell_contender(Input::Tick);
        }
        let since_boot = self.shared.clock.since_boot();
        if self.keeper.deadline().is_some_and(|due| due <= since_boot) {
            self.tell_keeper(KeeperInput::Tick);
        }
        self.tick_guests();
    }

    /// Ends turns that the clock has ended, by their lease or their hold limit, warns of those at
    /// risk, and dismisses callers that wait for confirmation whose timeout has passed.
    fn look_at_holders(&mut self) {
        let (now, limit) = (self.shared.clock.elapsed(), self.shared.acquire_timeout);
        for turn in self.holders.due(now) {
            let cause = self.setback.as_ref();
            let ended = self.holders.with(turn, |holder| {
                holder.lose_uncollected(now);
                holder.look_at_hold_limit();
                holder.warn_if_at_risk();
                holder.dismiss_expired(now, limit, cause);
                holder.grant.ended()
            });
            if let Some(End::Lost(reason)) = ended.flatten() {
                self.turn_is_lost(turn, reason);
            }
        }
    }

    /// Dismisses callers whose timeout has passed.
    fn dismiss_expired(&mut self) {
        let now = self.shared.clock.elapsed();
        // Before the first one leaves: without it, this client may leave the line of the keeper.
        let is_due = self.callers.deadline().is_some_and(|deadline| deadline <= now);
        let user = if is_due { self.user() } else { None };
        // One after the other: the line may go on with one that leaves as well.
        while let Some(caller) = self.callers.take_expired(now) {
            self.caller_left(caller.number);
            let waited = now.saturating_sub(caller.asked);
            debug!(parent: &caller.span, ?waited, "timed out");
            let name = self.object.to_string();
            let (user, ahead, cause) = (user.clone(), self.ahead(), self.setback.clone());
            caller.answer(Err(LockError::TimedOut { name, waited, user, ahead, cause }));
        }
        let (limit, cause) = (self.shared.acquire_timeout, self.setback.as_ref());
        self.releases.dismiss_expired(now, limit, cause);
    }

    /// The contenders that hold the object, or will hold it before the first caller.
    fn ahead(&self) -> Vec<Contender> {
        match self.contender.held_claim() {
            Some(claim) => vec![SeenContender::from(claim).into()],
            None => self.contender.ahead().iter().cloned().map(Contender::from).collect(),
        }
    }

    /// The first caller in the line; `None` if there is none, or a guest comes first.
    fn first(&self) -> Option<&Caller> {
        self.callers.get(self.keeper.first_caller()?)
    }

    /// The span of the last turn, or of the acquisition for the next one.
    fn span(&self) -> &Span {
        const NONE: &Span = &Span::none();
        let holder = self.holders.last().map(|holder| holder.grant.span());
        holder.or_else(|| self.first().map(|caller| &caller.span)).unwrap_or(NONE)
    }
}

/// Takes out the callers that have waited for `limit`, each with how long it has. They are in the
/// order in which they asked. The limit may be longer than any clock counts.
fn take_expired<T>(
    waiting: &mut Vec<T>,
    asked: impl Fn(&T) -> Duration,
    limit: Duration,
    now: Duration,
) -> impl Iterator<Item = (T, Duration)> {
    let waited = move |caller: &T| now.saturating_sub(asked(caller));
    let expired = waiting.partition_point(|caller| waited(caller) >= limit);
    waiting.drain(..expired).map(move |caller| {
        let waited = waited(&caller);
        (caller, waited)
    })
}

/// The runtime or a bug ended this task, and with it the renewals: the guard learns of it at once,
/// and before the command channel closes.
impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(network) = &self.network {
            network.inbox().close(network.key(&self.object));
        }
        if self.contender.raised_by() > 0 {
            let now = self.shared.stamp();
            let place = (Arc::clone(&self.object), self.slot);
            self.shared.raised.note(place, self.contender.raised_by(), now);
        }
        for holder in self.holders.take_all() {
            // A guard that was released meanwhile was not lost. Its release gets no answer.
            let _ = holder.grant.end(End::Lost(LostReason::ClientClosed));
        }
    }
}
