//! One object in use: feeds the machine of the object, and does what that asks for. What decides
//! about a lock stands in [`core::object`](crate::core::object).
//!
//! [`shared`] is who may do that: the object's own task, and all that bring something.
//! [`operations`] are requests to the database and to other clients, [`replies`] answers guards,
//! and [`people`] puts what the machine says into the words of the public API.

mod guard_requests;
mod operations;
mod people;
mod replies;
mod shared;

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::sync::{Arc, Weak};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{Span, debug, trace, warn};

use self::operations::{Completed, Database, Kind, LastError, Operations};
use self::people::Context;
use self::replies::Replies;
pub(crate) use self::shared::{Ended, SharedTask};
use super::caller::{Caller, ReplyTo};
use crate::admin::types::{HolderQueue, QUEUE_SHOWN_MAX, TurnUser};
use crate::combiner::Combiner;
use crate::context::ClientContext;
use crate::core::bakery::{Failure, Mode};
use crate::core::object::io::{
    CallerId, Granted, Health, HolderEvent, HolderRequest, Input, Now, Origin, Output, Refusal,
    Report,
};
use crate::core::object::{Memory, Object, Settings};
use crate::core::turns::{self, KeeperId, KeptEnd, Request, TurnId};
use crate::driver::alternating::{Alternating, Next as Incoming};
use crate::driver::caller::QueueReplyTo;
use crate::driver::health::HealthProblem;
use crate::driver::timer::Timer;
use crate::error::LostReason;
use crate::fencing::FencingError;
use crate::guard::grant::{End, Grant, GuardRequest, Requests, Trace};
use crate::guard::token_issuer::TokenIssuer;
use crate::guard::{LockGuard, LockHandle, Tokens};
use crate::options::shown;
use crate::peers::{Message, ObjectKey};
use crate::store::DatabaseError;

/// How many requests of this client are handled together, before others have a chance.
const BATCH_MAX: usize = 64;

/// The maximum number of idle places that a client keeps. Each ends by itself soon, so that another
/// one is not kept at the cost of the oldest.
const KEPT_MAX: u64 = 10_000;

/// What the client asks of the task of an object.
#[derive(Debug)]
pub(crate) enum Command {
    /// A caller wants the object.
    Acquire(Caller),
    /// A caller has stopped waiting.
    Leave(CallerId),
    /// There is a new connection to a keeper.
    Reconnected(KeeperId),
    /// Report the line.
    Queue(QueueReplyTo),
    /// Report what is held.
    Held(mpsc::UnboundedSender<LockHandle>),
    /// The clock has gone ahead of the timers.
    TimersAreLate,
    /// What keeps the client from granting locks has changed.
    Health(Option<HealthProblem>),
    /// The client is shut down.
    Close,
}

/// The task of one object.
pub(crate) struct ObjectTask {
    name: Arc<str>,
    shared: Arc<ClientContext>,
    /// The name in messages, if the client is connected to others.
    key: Option<ObjectKey>,
    object: Object,
    /// What the machine is to handle next, and what has come together.
    inputs: VecDeque<Input>,
    batch: Vec<Input>,
    /// The batch has waited for callers that come back.
    has_waited: bool,
    /// From this client, and from others.
    incoming: Alternating<Command, Message>,
    /// What guards ask, and where they ask it.
    requests: mpsc::UnboundedReceiver<(TurnId, GuardRequest)>,
    requests_sender: mpsc::UnboundedSender<(TurnId, GuardRequest)>,
    /// Handles what guards ask.
    combiner: Weak<dyn Combiner>,
    operations: Operations,
    /// Where answers go to callers.
    callers: BTreeMap<CallerId, ReplyTo>,
    grants: BTreeMap<TurnId, (Arc<Grant>, Tokens)>,
    replies: Replies,
    /// That of the last turn, or of the first caller.
    span: Span,
    /// Why the last operation failed, if it did; reported to dismissed callers.
    last_error: Option<DatabaseError>,
    /// Why there was no block of tokens the last time that one was issued in vain.
    block_error: Option<FencingError>,
    problem: Option<HealthProblem>,
    /// Who has the turn of a keeper, as that said last.
    user_of_keeper: Option<(KeeperId, TurnUser)>,
    /// The last look at the clocks.
    looked: turns::Now,
    timer: Timer,
    /// That of the object's own task, as it was polled last.
    waker: Option<Waker>,
    runtime: Handle,
}

/// What there was to handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// Something; there may be more.
    Something,
    Nothing,
    /// Something that waits until callers had the time to come back.
    Waits,
}

/// Why the object's own task does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There is nothing left to do.
    End,
    /// Callers are to have the time to come back.
    Yield,
}

impl ObjectTask {
    fn new(
        name: Arc<str>,
        shared: Arc<ClientContext>,
        memory: Memory,
        commands: mpsc::UnboundedReceiver<Command>,
        (combiner, runtime): (Weak<dyn Combiner>, Handle),
    ) -> Self {
        let (requests_sender, requests) = mpsc::unbounded_channel();
        let key = shared.network.as_ref().map(|network| network.key(&name));
        let network = shared.network.as_ref().zip(key);
        let messages = network.map(|(it, key)| it.inbox().open(key, Weak::clone(&combiner)));
        let looked = shared.moment();
        ObjectTask {
            name,
            key,
            object: Object::new(shared.id, settings(&shared), memory),
            shared,
            inputs: VecDeque::new(),
            batch: Vec::new(),
            has_waited: false,
            incoming: Alternating::new(commands, messages),
            requests,
            requests_sender,
            combiner,
            operations: Operations::default(),
            callers: BTreeMap::new(),
            grants: BTreeMap::new(),
            replies: Replies::default(),
            span: Span::none(),
            last_error: None,
            block_error: None,
            problem: None,
            user_of_keeper: None,
            looked,
            timer: Timer::default(),
            waker: None,
            runtime,
        }
    }

    /// The runtime or a bug has ended the task, and with it the renewals: guards learn of it at
    /// once.
    fn lose_guards(&self) {
        for (grant, _) in self.grants.values() {
            // A guard that was released meanwhile was not lost. Its release gets no answer.
            let _ = grant.end(End::Lost(LostReason::ClientClosed));
        }
        if self.object.is_kept() {
            self.shared.tally.kept_ends(KeptEnd::Lost);
        }
    }

    /// Takes no further messages; those that have come and were not handled.
    fn close_messages(&mut self) -> Vec<Message> {
        self.incoming.close_others();
        iter::from_fn(|| self.incoming.others_at_once()).collect()
    }

    /// Whether there is nothing left to do.
    fn is_done(&mut self) -> bool {
        self.fill_batch();
        self.batch.is_empty() && self.object.is_idle()
    }

    // Work on it, by one thread at a time.

    /// Works until there is nothing to do. The object's own task does that, which waits for the
    /// database and for time as well.
    fn poll(&mut self, context: &mut PollContext<'_>) -> Poll<Next> {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        for _ in 0..BATCH_MAX {
            // The answers first: commands and messages may come faster than they are handled, and
            // a renewal must not wait for that. Work that is due is done after each of them as
            // well.
            if let Poll::Ready(answer) = self.operations.poll_next(context) {
                self.answered(answer);
                continue;
            }
            match self.handle_waiting() {
                Handled::Something => continue,
                Handled::Waits => return Poll::Ready(Next::Yield),
                Handled::Nothing if self.object.is_idle() => return Poll::Ready(Next::End),
                Handled::Nothing => {}
            }
            if let Some(sleep) = self.sleep()
                && self.timer.poll_within(context, sleep).is_ready()
            {
                self.handle(Input::Tick);
                continue;
            }
            return Poll::Pending;
        }
        // Others have a chance.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Handles what has come, in the thread that brought it. Returns how to wake up the object's
    /// own task if there is work left that only that does.
    fn handle_at_once(&mut self) -> Option<Waker> {
        let mut handled = Handled::Something;
        for _ in 0..BATCH_MAX {
            handled = self.handle_waiting();
            if handled != Handled::Something {
                break;
            }
        }
        let is_early = self.sleep().is_some_and(|sleep| !self.timer.goes_off_within(sleep));
        let is_left = handled != Handled::Nothing || self.operations.has_begun() || is_early;
        self.waker.clone().filter(|_| is_left || self.object.is_idle())
    }

    fn sleep(&self) -> Option<Duration> {
        // By the look at the clocks with which the last input was handled: the timer is late by as
        // long as that took.
        self.object.sleep(self.looked)
    }

    // What comes in.

    fn handle_waiting(&mut self) -> Handled {
        if self.batch.is_empty() && !self.add_request() {
            match self.incoming.at_once() {
                Some(Incoming::Own(command)) => self.add_command(command),
                Some(Incoming::Others(message)) => {
                    self.received(message);
                    return Handled::Something;
                }
                Some(Incoming::OwnIsOver) | None => return Handled::Nothing,
            }
        }
        self.fill_batch();
        if self.waits_for_callers() && !self.has_waited {
            return Handled::Waits;
        }
        self.has_waited = false;
        self.handle_batch();
        Handled::Something
    }

    /// Adds the requests and commands that have come together with what is in the batch.
    fn fill_batch(&mut self) {
        while self.batch.len() < BATCH_MAX {
            if self.add_request() {
                continue;
            }
            let Some(command) = self.incoming.own_at_once() else {
                break;
            };
            self.add_command(command);
        }
    }

    /// Adds the next request to the batch, if there is one.
    fn add_request(&mut self) -> bool {
        let Ok((turn, request)) = self.requests.try_recv() else {
            return false;
        };
        let input = self.input_of_request(turn, request);
        self.batch.extend(input);
        true
    }

    fn add_command(&mut self, command: Command) {
        let input = self.input_of_command(command);
        self.batch.extend(input);
    }

    /// Callers in other tasks that returned a turn lock again before the place is given up, if they
    /// are given the time.
    fn waits_for_callers(&self) -> bool {
        let is_return = |input: &Input| {
            matches!(input, Input::Holder { request: HolderRequest::Return { .. }, .. })
        };
        let mut batch = self.batch.iter();
        batch.clone().any(is_return)
            && !batch.any(|input| matches!(input, Input::Acquire(_)))
            && self.object.was_handed_on()
    }

    fn handle_batch(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        Object::arrange(&mut batch);
        // All of them have come before this look at the clocks.
        let now = self.shared.now();
        self.looked = now.of_turns();
        for input in batch.drain(..) {
            self.handle_at(self.shared.next(now), input);
        }
        self.batch = batch;
    }

    fn input_of_command(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Acquire(Caller { wants, reply_to }) => {
                // One that has left meanwhile may have said so before it came.
                if !reply_to.is_waiting() {
                    return None;
                }
                if self.span.is_none() {
                    self.span = reply_to.trace.span.clone();
                }
                self.callers.insert(wants.number, reply_to);
                Some(Input::Acquire(wants))
            }
            Command::Leave(caller) => {
                self.callers.remove(&caller);
                Some(Input::Leave { caller })
            }
            Command::Reconnected(keeper) => Some(Input::Reconnected { keeper }),
            Command::TimersAreLate => Some(Input::Tick),
            Command::Queue(reply_to) => {
                reply_to.answer(self.shared.network.as_deref(), self.line());
                None
            }
            Command::Held(to) => {
                for lock in self.held() {
                    // One that stopped waiting needs no answer.
                    let _ = to.send(lock);
                }
                None
            }
            Command::Health(problem) => {
                let health = problem.as_ref().map_or(Health::Good, HealthProblem::health);
                for (grant, _) in self.grants.values() {
                    grant.set_clocks_differ(health == Health::ClocksDiffer);
                }
                self.problem = problem;
                Some(Input::Health(health))
            }
            Command::Close => Some(Input::Close),
        }
    }

    fn received(&mut self, message: Message) {
        let mut input = input_of_message(&message);
        if let Message::Response(keeper, _, Some(user)) = message {
            self.user_of_keeper = Some((keeper, user));
        }
        if let Input::Request { guest, name, request } = &mut input
            && matches!(request.request, Request::Ask { .. })
            && !self.object.knows_name(*guest)
        {
            let network = self.shared.network.as_ref();
            *name = network.and_then(|network| network.owner(*guest)).map(Arc::from);
        }
        self.handle(input);
    }

    fn answered(&mut self, Completed { input, last_error }: Completed) {
        match last_error {
            LastError::Database(error) => self.last_error = error,
            LastError::Block(error) => self.block_error = Some(error),
            LastError::None => {}
        }
        self.handle(input);
    }

    // What the machine asks for.

    /// Lets the machine handle an input, and does what it asks for.
    fn handle(&mut self, input: Input) {
        self.handle_at(self.shared.now(), input);
    }

    fn handle_at(&mut self, now: Now, input: Input) {
        self.looked = now.of_turns();
        self.step(now, input);
        while let Some(input) = self.inputs.pop_front() {
            self.step(self.shared.now(), input);
        }
    }

    fn step(&mut self, now: Now, input: Input) {
        let boot = now.boot.as_nanos();
        trace!(parent: &self.span, object = shown(&self.name), ?input, boot, "input");
        let returned = returned(&input);
        self.object.handle(now, input);
        while let Some(output) = self.object.poll() {
            trace!(parent: &self.span, object = shown(&self.name), ?output, "output");
            self.perform(output);
        }
        if let Some(turn) = returned {
            self.grants.remove(&turn);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Write { slot, op, write } => {
                self.begin(Kind::Contender(slot), |it| it.write(slot, op, write));
            }
            Output::Read { slot, op, read } => {
                self.begin(Kind::Contender(slot), |it| it.read(slot, op, read));
            }
            Output::Exchange { slot, op, write, read } => {
                self.begin(Kind::Contender(slot), |it| it.exchange(slot, op, write, read));
            }
            Output::ReadOneReplica { slot } => {
                let is_idle = self.object.is_kept();
                self.begin(Kind::OneReplicaRead(slot), |it| it.read_one_replica(slot, is_idle));
            }
            Output::Look => self.begin(Kind::Look, Database::look),
            Output::SweepRead => self.begin(Kind::Sweep, Database::sweep_read),
            Output::SweepWrite(write) => self.begin(Kind::Sweep, |it| it.sweep_write(write)),
            Output::IssueBlock { claim, max_clock_skew } => {
                self.begin(Kind::Block, |it| it.issue_block(claim, max_clock_skew));
            }
            Output::Connect { keeper, at_once } => self.connect(keeper, at_once),
            Output::Ask { keeper, request } => {
                if let (Some(network), Some(key)) = (&self.shared.network, self.key) {
                    network.ask(keeper, key, request);
                }
            }
            Output::Answer { guest, response, user } => {
                if let (Some(network), Some(key)) = (&self.shared.network, self.key) {
                    let user = user.and_then(|user| self.context().user(&user));
                    network.answer(guest, key, response, user);
                }
            }
            Output::Granted(granted) => self.granted(*granted),
            Output::Refused { caller, refusal } => self.refused(caller, &refusal),
            Output::Holder { turn, event } => self.holder(turn, event),
            Output::Reply { request, reply } => {
                let (last_error, block_error) =
                    (self.last_error.as_ref(), self.block_error.as_ref());
                self.replies.answer(&self.name, (request, reply), last_error, block_error);
            }
            Output::Report(report) => self.report(report),
        }
    }

    fn begin<F: Future<Output = Completed> + Send + 'static>(
        &mut self,
        kind: Kind,
        request: impl FnOnce(Database) -> F,
    ) {
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.name));
        self.operations.begin(kind, &self.span, request(Database { shared, object }));
    }

    fn connect(&mut self, keeper: KeeperId, at_once: bool) {
        match &self.shared.network {
            Some(network) if !at_once => {
                let connected = operations::connect(Arc::clone(network), keeper);
                self.operations.begin(Kind::Connect, &self.span, connected);
            }
            network => {
                let is_reachable = network.as_ref().is_some_and(|it| it.is_connected(keeper));
                self.inputs.push_back(Input::Connected { keeper, is_reachable });
            }
        }
    }

    /// Gives the guard of a turn to its caller. If that has left, the guard is dropped, which
    /// returns the turn.
    fn granted(&mut self, granted: Granted) {
        let Granted { caller, turn, lease, limit, origin, claim, waited, waiting, .. } = granted;
        // A caller that leaves is removed before the machine knows.
        let Some(ReplyTo { reply, trace }) = self.callers.remove(&caller) else {
            let request = HolderRequest::Return { request: None };
            return self.inputs.push_back(Input::Holder { turn, request });
        };
        self.shared.tally.granted(origin, waited);
        self.shared.tally.passed_on(waiting);
        let expiry = match origin {
            Origin::Keeper => LostReason::KeeperUnreachable,
            Origin::Table | Origin::Turn => LostReason::Expired,
        };
        let (clock, tally) = (Arc::clone(&self.shared.clock), Arc::clone(&self.shared.tally));
        let name = (Arc::clone(&self.name), self.shared.prefix.len());
        let lease = (lease, expiry);
        let grant = Arc::new(Grant::new(name, trace, clock, granted.granted, lease, limit, tally));
        let requests = self.requests_of(turn);
        let tokens = match claim {
            Some(claim) if self.shared.network.is_none() || claim.mode != Mode::Exclusive => {
                let (shared, requests) = (Arc::clone(&self.shared), requests.clone());
                Tokens::Own(TokenIssuer::new(shared, Arc::clone(&grant), claim, requests))
            }
            // Guests get tokens of the same place, and theirs and ours must grow together.
            Some(_) | None => {
                let (limit, runtime) = (self.shared.acquire_timeout, self.runtime.clone());
                Tokens::OfKeeper { limit, runtime }
            }
        };
        debug!(parent: grant.span(), turn = turn.number, ?waited, "held");
        self.span = grant.span().clone();
        self.grants.insert(turn, (Arc::clone(&grant), tokens.clone()));
        // A guard that finds no caller is dropped.
        let _ = reply.send(Ok(Some(LockGuard::new(grant, tokens, requests))));
    }

    fn refused(&mut self, caller: CallerId, refusal: &Refusal) {
        let Some(reply_to) = self.callers.remove(&caller) else {
            return;
        };
        let error = self.context().refusal(refusal);
        if let Refusal::Failed { failure: Failure::Revoked(_), waited } = refusal
            && let Some(error) = &error
        {
            let Trace { span, label } = &reply_to.trace;
            let label = label.as_deref();
            warn!(parent: span, label, %error, ?waited, "not obtained");
        }
        reply_to.answer(error.map_or(Ok(None), Err));
    }

    fn holder(&mut self, turn: TurnId, event: HolderEvent) {
        let Some((grant, _)) = self.grants.get(&turn) else {
            return;
        };
        let request = match event {
            HolderEvent::Renewed(lease) => {
                let ended = grant.renew(lease).err();
                ended.and_then(|end| matches!(end, End::Lost(_)).then_some(HolderRequest::Lost))
            }
            HolderEvent::Expiring(reason) => {
                grant.expire(&reason.into());
                None
            }
            HolderEvent::AtRisk { remaining } => {
                grant.warn_at_risk(remaining);
                None
            }
            HolderEvent::Lost(loss) => {
                grant.lose(loss.into());
                self.grants.remove(&turn);
                None
            }
            HolderEvent::AskWhetherCollected => {
                (!grant.is_collected()).then_some(HolderRequest::Uncollected)
            }
        };
        self.inputs.extend(request.map(|request| Input::Holder { turn, request }));
    }

    fn report(&mut self, report: Report) {
        let object = || shown(&self.name);
        match report {
            // If the client's task has ended there is no receiver, and no caller either.
            Report::Check(reason) => drop(self.shared.checks.send(reason)),
            Report::Held => {
                debug!(parent: &self.span, object = object(), "the place in the table is held");
            }
            Report::OutsidersWait => {
                debug!(parent: &self.span, object = object(), "others wait in the table");
            }
            Report::MarkAhead(ahead) => warn!(
                parent: &self.span,
                object = object(),
                ?ahead,
                "the mark of a sweep is ahead of the clock: the clock of a client was wrong"
            ),
            Report::Lent { waiting } => {
                self.shared.tally.sublease();
                self.shared.tally.passed_on(waiting);
            }
            Report::Kept => {
                if self.shared.tally.kept() > KEPT_MAX {
                    self.inputs.push_back(Input::TooManyKept);
                }
            }
            Report::KeptEnds(end) => self.shared.tally.kept_ends(end),
            Report::Swept { horizon } => {
                debug!(object = object(), horizon, "swept the rows of clients that left or died");
            }
        }
    }

    // What others want to know.

    /// The line of the place; `None` if this client has no place.
    fn line(&self) -> Option<HolderQueue> {
        let (client, owner) = (self.shared.id.client, self.shared.owner.clone());
        let context = self.context();
        let first = self.object.line().take(QUEUE_SHOWN_MAX);
        self.object.has_place().then(|| HolderQueue {
            keeper: TurnUser::new(client, owner),
            user: self.object.user().and_then(|user| context.user(&user)),
            is_kept: self.object.is_kept(),
            waiting: self.object.waiting(),
            first: first.filter_map(|user| context.user(&user)).collect(),
        })
    }

    /// Where the guard of a turn asks this object.
    fn requests_of(&self, turn: TurnId) -> Requests {
        Requests::of(turn, self.requests_sender.clone(), Weak::clone(&self.combiner))
    }

    /// The handles of the guards whose locks are held.
    fn held(&self) -> impl Iterator<Item = LockHandle> {
        let held = self.grants.iter().filter(|(_, (grant, _))| grant.state().is_held());
        held.map(|(&turn, (grant, tokens))| {
            let requests = self.requests_of(turn);
            LockHandle::new(Arc::clone(grant), tokens.clone(), requests)
        })
    }

    fn context(&self) -> Context<'_> {
        Context {
            name: &self.name,
            client: self.shared.id.client,
            last_error: self.last_error.as_ref(),
            problem: self.problem.as_ref(),
            user_of_keeper: self.user_of_keeper.as_ref(),
        }
    }
}

/// What a message of another client means for an object.
pub(super) fn input_of_message(message: &Message) -> Input {
    match *message {
        Message::Request(guest, request) => Input::Request { guest, name: None, request },
        Message::Left(guest) => Input::GuestLeft { guest },
        Message::Response(keeper, response, _) => Input::Response { keeper, response },
    }
}

/// The turn that an input returns.
fn returned(input: &Input) -> Option<TurnId> {
    if let Input::Holder { turn, request: HolderRequest::Return { .. } } = input {
        Some(*turn)
    } else {
        None
    }
}

/// The settings of the objects of a client.
pub(super) fn settings(shared: &ClientContext) -> Settings {
    let network = shared.network.as_ref();
    Settings {
        patience: shared.acquire_timeout,
        turns: shared.local_handoff,
        has_network: network.is_some(),
        guest_hold_max: network.and_then(|network| network.guest_hold_max()),
        max_clock_skew: shared.longest_terms.max_clock_skew(),
        exchanges: shared.store.rows.exchanges().is_some(),
        keep_idle: shared.keep_idle,
    }
}
