//! The client's task: it spawns one runner per object on demand, which ends when idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::DropGuard;
use tracing::error;

use crate::clock::SLEEP_MAX;
use crate::core::bakery::Mode;
use crate::core::turns::{Request, Response, TimedRequest};
use crate::engine::alternating::{Alternating, Next};
use crate::engine::health::{CheckReason, HealthMonitor, HealthProblem};
use crate::engine::inquirer::Inquirer;
use crate::engine::registration::{Asking, Event, HostReport, Registration};
use crate::engine::runner::{Command, Ended, Runner, SLOT_OF_TURNS, Seat};
use crate::engine::shared::Shared;
use crate::engine::wait::when_some;
use crate::engine::waiters::{Caller, Callers};
use crate::error::LockError;
use crate::network::{Message, ObjectKey, Received};
use crate::store::{Node, NodeReport};

/// What a client asks of its task.
#[derive(Debug)]
pub(crate) enum Call {
    /// Acquire an object for a caller.
    Acquire(Arc<str>, Caller),
    /// A caller of an object has stopped waiting.
    Leave {
        /// The object.
        object: Arc<str>,
        /// The caller's number.
        caller: u64,
    },
    /// Tell the line of an object.
    Tell {
        /// The object.
        object: Arc<str>,
        /// Where the answer goes.
        inquirer: Inquirer,
    },
    /// Report what is known of the client's host, from a registration that counts if the registry
    /// answers in time.
    TellHost(oneshot::Sender<HostReport>),
    /// Tell what keeps locks from being granted, from a check that is not older than it may be for
    /// one.
    TellProblem(oneshot::Sender<Option<HealthProblem>>),
    /// Refuse new calls, dismiss waiting callers and release everything.
    Shutdown,
}

/// The client's task. It ends after a shutdown, or when all clients, guards and releases are gone.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    /// From the client, and what comes from other clients, if they take turns of each other.
    incoming: Alternating<Call, Received>,
    registration: Option<Registration>,
    health: Option<HealthMonitor>,
    /// Ordered, so that a simulation closes them in the same order each time.
    runners: BTreeMap<Seat, Entry>,
    /// The objects whose turns may be used by guests although their runner failed, and until when.
    orphaned: BTreeMap<Arc<str>, Duration>,
    /// The limited callers that wait until a contender for their object is free.
    overflow: BTreeMap<Arc<str>, Callers>,
    tasks: JoinSet<Ended>,
    /// The names of the objects in use, by their keys in messages.
    names: BTreeMap<ObjectKey, Arc<str>>,
    /// Reasons to check health, from the runners.
    checks: mpsc::UnboundedReceiver<CheckReason>,
    check_sender: mpsc::UnboundedSender<CheckReason>,
    closing: bool,
    /// Tells the clients that the task has ended, even if its runtime ended it.
    _ended: DropGuard,
}

/// So many contenders of one client may stand for limited callers of one object. Further callers
/// wait until one of these is free.
const LIMITED_MAX: u8 = 64;

/// The slot that replaces the slot of turns while a guest may be inside the place of that one
/// without its keeper. Like the contender of another client, it waits until those rows are over.
const SLOT_OF_ORPHANED: i16 = LIMITED_MAX as i16 + 1;

/// The runner of one contender.
#[derive(Debug)]
struct Entry {
    commands: mpsc::UnboundedSender<Command>,
    task: Id,
    /// The callers that came after it ended, for the next runner.
    late: Vec<Caller>,
}

enum Wake {
    Call(Option<Call>),
    Check(CheckReason),
    RunnerEnded(Result<Ended, JoinError>),
    Received(Received),
    Registration(Event),
    /// The timeout of a caller that waits for a contender has passed.
    Overflow,
    Looked(Vec<(Node, Option<NodeReport>)>),
}

impl Dispatcher {
    /// A dispatcher; the registry's own client has no `registration` and no `health`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        calls: mpsc::UnboundedReceiver<Call>,
        registration: Option<Registration>,
        health: Option<HealthMonitor>,
        received: Option<mpsc::Receiver<Received>>,
        ended: DropGuard,
    ) -> Self {
        let (check_sender, checks) = mpsc::unbounded_channel();
        Dispatcher {
            shared,
            incoming: Alternating::new(calls, received),
            registration,
            health,
            runners: BTreeMap::new(),
            orphaned: BTreeMap::new(),
            overflow: BTreeMap::new(),
            tasks: JoinSet::new(),
            names: BTreeMap::new(),
            checks,
            check_sender,
            closing: false,
            _ended: ended,
        }
    }

    /// Runs until no caller is left and every runner has ended.
    pub(crate) async fn run(mut self) {
        let mut calls_open = true;
        while calls_open || !self.tasks.is_empty() {
            match self.wake().await {
                Wake::Call(Some(Call::Acquire(object, caller))) => self.acquire((object, caller)),
                Wake::Call(Some(Call::Leave { object, caller })) => self.leave(&object, caller),
                Wake::Call(Some(Call::Tell { object, inquirer })) => {
                    self.tell(Some(&object), inquirer);
                }
                Wake::Call(Some(Call::TellHost(reply))) => self.tell_host(reply),
                Wake::Call(Some(Call::TellProblem(reply))) => self.tell_problem(reply),
                Wake::Call(Some(Call::Shutdown)) => {
                    // Earlier calls are answered; later ones find the channel closed.
                    self.incoming.close_own();
                    self.close();
                }
                Wake::Call(None) => calls_open = false,
                Wake::Check(reason) => self.look(reason),
                Wake::RunnerEnded(Ok(Ended { seat, unserved })) => {
                    self.runner_ended(&seat, unserved);
                }
                Wake::RunnerEnded(Err(bug)) => self.runner_failed(&bug),
                Wake::Received(received) => self.received(received),
                Wake::Registration(event) => self.registration(event),
                Wake::Overflow => self.dismiss_overflow(),
                Wake::Looked(seen) => self.looked(&seen),
            }
        }
        if let Some(network) = &self.shared.network {
            network.leave().await;
        }
    }

    async fn wake(&mut self) -> Wake {
        let now = self.shared.clock.elapsed();
        let overflow =
            self.overflow_deadline().map(|due| sleep(due.saturating_sub(now).min(SLEEP_MAX)));
        let registration = self.registration.as_mut().map(|it| it.event(&self.shared));
        let look = self.health.as_mut().map(HealthMonitor::seen);
        tokio::select! {
            biased;
            event = when_some(registration) => Wake::Registration(event),
            Some(reason) = self.checks.recv() => Wake::Check(reason),
            seen = when_some(look) => Wake::Looked(seen),
            Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                Wake::RunnerEnded(ended)
            }
            () = when_some(overflow) => Wake::Overflow,
            // Last: calls and messages may come faster than they are passed on, and holders must
            // not wait for what a check found meanwhile. All other events are rarer.
            next = self.incoming.next() => match next {
                Next::Own(call) => Wake::Call(Some(call)),
                Next::OwnIsOver => Wake::Call(None),
                Next::Others(received) => Wake::Received(received),
            },
        }
    }

    fn acquire(&mut self, asking: Asking) {
        self.look(CheckReason::Acquisition);
        // A caller that is refused in any case need not wait for the registration.
        let Some(asking) = self.refuse(asking) else {
            return;
        };
        let admitted = match &mut self.registration {
            Some(registration) => registration.admit(asking, &self.shared),
            None => Some(asking),
        };
        if let Some(asking) = admitted {
            self.serve(asking);
        }
    }

    fn registration(&mut self, event: Event) {
        let Some(registration) = &mut self.registration else {
            return;
        };
        for asking in registration.handle(event, &self.shared) {
            self.serve(asking);
        }
    }

    /// Returns the caller, unless it is refused. A refused caller is answered.
    fn refuse(&self, (object, caller): Asking) -> Option<Asking> {
        let refusal = match self.problem() {
            _ if self.closing => LockError::Closed,
            Some(problem) => problem.refusal(&object),
            None => return Some((object, caller)),
        };
        caller.answer(Err(refusal));
        None
    }

    /// Serves a caller of a registered host.
    fn serve(&mut self, asking: Asking) {
        let Some((object, caller)) = self.refuse(asking) else {
            return;
        };
        self.pass_on(object, caller);
    }

    /// Passes a caller on to the runner that serves it; starts one if there is none.
    fn pass_on(&mut self, object: Arc<str>, caller: Caller) {
        let Some(slot) = self.slot_for(&object, &caller) else {
            self.overflow.entry(object).or_default().insert(caller);
            return;
        };
        let seat = Seat { object, slot };
        let command = Command::Acquire(caller);
        let Some(entry) = self.runners.get_mut(&seat) else {
            return self.start(seat, command);
        };
        if let Err(mpsc::error::SendError(Command::Acquire(caller))) = entry.commands.send(command)
        {
            entry.late.push(caller);
        }
    }

    /// The slot that serves a caller: one place for all that use it in turn, and for each limited
    /// caller the first one that is free, if one is.
    fn slot_for(&mut self, object: &Arc<str>, caller: &Caller) -> Option<i16> {
        match caller.acquire.mode {
            Mode::Exclusive | Mode::Shared if self.is_orphaned(object) => Some(SLOT_OF_ORPHANED),
            Mode::Exclusive | Mode::Shared => Some(SLOT_OF_TURNS),
            Mode::Limited(_) => {
                let seat = |slot| Seat { object: Arc::clone(object), slot };
                let mut slots = SLOT_OF_TURNS + 1..=i16::from(LIMITED_MAX);
                slots.find(|slot| !self.runners.contains_key(&seat(*slot)))
            }
        }
    }

    /// The runners of an object, in the order of their slots.
    fn runners_of(&self, object: &Arc<str>) -> impl Iterator<Item = (&Seat, &Entry)> {
        let seat = |slot| Seat { object: Arc::clone(object), slot };
        self.runners.range(seat(SLOT_OF_TURNS)..=seat(SLOT_OF_ORPHANED))
    }

    fn start(&mut self, seat: Seat, first: Command) {
        let (shared, checks) = (Arc::clone(&self.shared), self.check_sender.clone());
        let (runner, commands) = Runner::new(seat.clone(), shared, checks);
        // The runner lives as long as its channel is open, and it has not run yet.
        let _ = commands.send(first);
        let task = self.tasks.spawn(runner.run()).id();
        if let Some(network) = self.shared.network.as_ref().filter(|_| seat.slot == SLOT_OF_TURNS) {
            self.names.insert(network.key(&seat.object), Arc::clone(&seat.object));
        }
        self.runners.insert(seat, Entry { commands, task, late: Vec::new() });
    }

    /// Handles what did not go to the runner of an object.
    fn received(&mut self, received: Received) {
        match received {
            Received::Message { object, message } => self.answer_for_none(object, message),
            Received::Who { guest, object } => {
                self.tell(self.names.get(&object), Inquirer::Guest(guest, object));
            }
            Received::Reconnected { keeper } => {
                for entry in self.runners.values() {
                    let _ = entry.commands.send(Command::Reconnected(keeper));
                }
            }
        }
    }

    /// Lets the runner of an object tell its line. Without one there is no place.
    fn tell(&self, object: Option<&Arc<str>>, inquirer: Inquirer) {
        let command = Command::Tell(inquirer);
        let seat = |object: &Arc<str>| Seat { object: Arc::clone(object), slot: SLOT_OF_TURNS };
        let unsent = match object.and_then(|object| self.runners.get(&seat(object))) {
            Some(entry) => entry.commands.send(command).err().map(|unsent| unsent.0),
            None => Some(command),
        };
        if let Some(Command::Tell(inquirer)) = unsent {
            inquirer.answer(self.shared.network.as_deref(), None);
        }
    }

    /// Answers for an object that no caller of this client uses, unless one came meanwhile. A turn
    /// that comes for it is returned.
    fn answer_for_none(&self, object: ObjectKey, message: Message) {
        let Some(network) = &self.shared.network else {
            return;
        };
        let Some(message) = network.inbox().pass_on(object, message) else {
            return;
        };
        match message {
            Message::Request(guest, TimedRequest { request, .. }) => {
                let response = match request {
                    Request::Ask { request, .. } => Response::Elsewhere { request },
                    Request::Return { turn } => Response::Returned { turn },
                    Request::Renew { turn } => Response::Lost { turn },
                    Request::Withdraw { .. } | Request::DrawToken { .. } => return,
                };
                network.answer(guest, object, response, None);
            }
            Message::Response(keeper, Response::Granted(granted), _) => {
                let request = Request::Return { turn: granted.turn };
                let sent = self.shared.clock.elapsed();
                network.ask(keeper, object, TimedRequest { sent, request });
            }
            Message::Response(..) | Message::Left(_) => {}
        }
    }

    /// A caller has stopped waiting. If its runner has ended, the next one finds that out. The
    /// other runners of the object know no caller of this number.
    fn leave(&mut self, object: &Arc<str>, caller: u64) {
        if self.registration.as_mut().is_some_and(|registration| registration.leave(caller)) {
            return;
        }
        if self.overflow.get_mut(object).is_some_and(|callers| callers.take(caller).is_some()) {
            return;
        }
        for (_, entry) in self.runners_of(object) {
            let _ = entry.commands.send(Command::Leave { caller });
        }
    }

    /// Removes an ended runner, and serves the callers that came meanwhile with another one.
    fn runner_ended(&mut self, seat: &Seat, unserved: Vec<Caller>) {
        let Seat { object, slot } = seat;
        let late = self.runners.remove(seat).map(|entry| entry.late);
        if let Some(network) = self.shared.network.as_ref().filter(|_| *slot == SLOT_OF_TURNS) {
            self.names.remove(&network.key(object));
        }
        for caller in unserved.into_iter().chain(late.into_iter().flatten()) {
            self.serve((Arc::clone(object), caller));
        }
        if *slot > SLOT_OF_TURNS {
            self.serve_overflow(object);
        }
    }

    /// Serves the next limited caller that waits for a contender.
    fn serve_overflow(&mut self, object: &Arc<str>) {
        let Some(callers) = self.overflow.get_mut(object) else {
            return;
        };
        match callers.take_first() {
            Some(caller) => self.serve((Arc::clone(object), caller)),
            None => drop(self.overflow.remove(object)),
        }
    }

    /// When the next caller that waits for a contender gives up.
    fn overflow_deadline(&self) -> Option<Duration> {
        self.overflow.values().filter_map(Callers::deadline).min()
    }

    /// Dismisses callers whose timeout has passed before a contender was free.
    fn dismiss_overflow(&mut self) {
        let now = self.shared.clock.elapsed();
        for (object, callers) in &mut self.overflow {
            while let Some(caller) = callers.take_expired(now) {
                let (name, waited) = (object.to_string(), now.saturating_sub(caller.asked));
                let (user, ahead, cause) = (None, Vec::new(), None);
                caller.answer(Err(LockError::TimedOut { name, waited, user, ahead, cause }));
            }
        }
    }

    /// A bug has ended a runner. Its guard was lost before its channel closed. Its rows may remain,
    /// and one of its requests may be in flight, but they belong to an earlier round and have
    /// smaller stamps than everything the next runner writes and deletes: to other contenders this
    /// one is gone as soon as the new round is announced or the rows' TTL has passed. A leftover
    /// ticket counts in no other round.
    ///
    /// A guest in a turn of that runner learns of it only when it extends the turn. Until the rows
    /// are over, another contender stands for the object.
    fn runner_failed(&mut self, bug: &JoinError) {
        if bug.is_panic() {
            error!(%bug, "the task of a lock ended by a bug: its guard is lost, its callers fail");
        }
        let failed = self.runners.iter().find(|(_, entry)| entry.task == bug.id());
        if let Some(seat) = failed.map(|(seat, _)| seat.clone()) {
            if self.shared.network.is_some() && seat.slot == SLOT_OF_TURNS {
                let over = self.shared.longest_terms.gone_by(self.shared.clock.elapsed());
                self.orphaned.insert(Arc::clone(&seat.object), over);
            }
            self.runner_ended(&seat, Vec::new());
        }
    }

    /// Whether a guest may be in a turn of a runner that failed.
    fn is_orphaned(&mut self, object: &Arc<str>) -> bool {
        if self.orphaned.is_empty() {
            return false;
        }
        let now = self.shared.clock.elapsed();
        self.orphaned.retain(|_, over| now < *over);
        self.orphaned.contains_key(object)
    }

    fn close(&mut self) {
        self.closing = true;
        for caller in self.overflow.values_mut().flat_map(Callers::take_all) {
            caller.answer(Err(LockError::Closed));
        }
        if let Some(registration) = &mut self.registration {
            registration.close();
        }
        for entry in self.runners.values() {
            let _ = entry.commands.send(Command::Close);
        }
    }

    /// A client that takes no locks has no host.
    fn tell_host(&mut self, reply: oneshot::Sender<HostReport>) {
        match &mut self.registration {
            _ if self.closing => {}
            Some(registration) => registration.report(reply, &self.shared),
            None => drop(reply.send(HostReport::default())),
        }
    }

    fn tell_problem(&mut self, reply: oneshot::Sender<Option<HealthProblem>>) {
        self.look(CheckReason::Acquisition);
        match &mut self.health {
            _ if self.closing => {}
            Some(health) => health.tell(reply),
            None => drop(reply.send(None)),
        }
    }

    /// Checks health in the background, if a check is due.
    fn look(&mut self, reason: CheckReason) {
        if let Some(health) = &mut self.health {
            health.look(reason, &self.shared.store, self.shared.clock.elapsed());
        }
    }

    fn looked(&mut self, seen: &[(Node, Option<NodeReport>)]) {
        let Some(health) = &mut self.health else {
            return;
        };
        let changed = health.judge(seen);
        if health.holds() {
            self.shared.wall_clock_bound.agrees(&*self.shared.clock);
        }
        if changed {
            for entry in self.runners.values() {
                let _ = entry.commands.send(Command::HealthChanged(health.problem().cloned()));
            }
        }
    }

    fn problem(&self) -> Option<&HealthProblem> {
        self.health.as_ref()?.problem()
    }
}
