//! The client's task: what it knows of its host, of clocks and of the table, messages about objects
//! that it does not use, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::DropGuard;

use super::clock_watch::ClockWatch;
use super::objects::{Admission, Asking, Objects};
use crate::clock::SLEEP_MAX;
use crate::context::ClientContext;
use crate::core::object::io::{CallerId, CheckReason};
use crate::driver::alternating::{Alternating, Next};
use crate::driver::caller::QueueReplyTo;
use crate::driver::health::{HealthMonitor, HealthProblem};
use crate::driver::registration::{HostReport, Registration, RegistrationEvent};
use crate::driver::timer::when_some;
use crate::peers::Received;
use crate::store::{Node, NodeReport};

/// What a client asks of its task.
#[derive(Debug)]
pub(crate) enum Call {
    /// Acquire an object for a caller, once the registration is known to count.
    Acquire(Box<Asking>),
    /// Such a caller has stopped waiting.
    Leave {
        /// The object.
        object: Arc<str>,
        /// The caller's number.
        caller: CallerId,
    },
    /// Report what is known of the client's host, from a registration that counts if the registry
    /// answers in time.
    QueryHost(oneshot::Sender<HostReport>),
    /// Report what keeps locks from being granted, from a check that is not older than it may be
    /// for one.
    QueryHealth(oneshot::Sender<Option<HealthProblem>>),
    /// Refuse new calls, dismiss waiting callers and release everything.
    Shutdown,
}

/// The client's task. It ends after a shutdown, or when all clients, guards and releases are gone.
pub(crate) struct ClientTask {
    shared: Arc<ClientContext>,
    objects: Arc<Objects>,
    /// From the client, and from its peers, if it has any.
    incoming: Alternating<Call, Received>,
    registration: Option<Registration>,
    health: Option<HealthMonitor>,
    /// While objects are in use, and when it looks next.
    clock_watch: Option<(ClockWatch, Instant)>,
    /// Reasons to check health.
    checks: mpsc::UnboundedReceiver<CheckReason>,
    is_closing: bool,
    /// Reports to the clients that the task has ended, even if its runtime ended it.
    _ended: DropGuard,
}

/// Where the events of a client's task come from.
pub(crate) struct Channels {
    /// What the client asks.
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    /// What comes from its peers, if it has any.
    pub(crate) received: Option<mpsc::Receiver<Received>>,
    /// Reasons to check health.
    pub(crate) checks: mpsc::UnboundedReceiver<CheckReason>,
}

enum Wake {
    Call(Call),
    CallsOver,
    ObjectsEnded,
    Check(CheckReason),
    WatchBegins,
    LookAtClock,
    Received(Received),
    Registration(RegistrationEvent),
    Looked(Vec<(Node, Option<NodeReport>)>),
}

impl ClientTask {
    /// A client's task; the registry's own client has no `registration` and no `health`.
    pub(crate) fn new(
        shared: Arc<ClientContext>,
        channels: Channels,
        registration: Option<Registration>,
        health: Option<HealthMonitor>,
        ended: DropGuard,
    ) -> Self {
        let admission = admission(registration.as_ref(), health.as_ref());
        ClientTask {
            objects: Objects::new(Arc::clone(&shared), admission),
            shared,
            incoming: Alternating::new(channels.calls, channels.received),
            registration,
            health,
            clock_watch: None,
            checks: channels.checks,
            is_closing: false,
            _ended: ended,
        }
    }

    /// The objects of the client.
    pub(crate) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Runs until no caller is left and the task of every object has ended.
    pub(crate) async fn run(mut self) {
        let mut calls_over = false;
        loop {
            match self.wake(calls_over).await {
                Wake::Call(Call::Shutdown) => {
                    // Earlier calls are answered; later ones find the channel closed.
                    self.incoming.close_own();
                    self.close();
                }
                Wake::Call(call) => self.call(call),
                Wake::CallsOver => calls_over = true,
                Wake::ObjectsEnded => break,
                Wake::Check(reason) => self.look(reason),
                Wake::WatchBegins => {
                    self.watch_clock(ClockWatch::new(&*self.shared.clock));
                }
                Wake::LookAtClock => self.look_at_clock(),
                Wake::Received(received) => self.received(received),
                Wake::Registration(event) => self.registration(event),
                Wake::Looked(seen) => self.looked(&seen),
            }
            self.objects.admit_by(admission(self.registration.as_ref(), self.health.as_ref()));
        }
        if let Some(network) = &self.shared.network {
            network.leave().await;
        }
    }

    async fn wake(&mut self, calls_over: bool) -> Wake {
        let registration = self.registration.as_mut().map(|it| it.event(&self.shared));
        let look = self.health.as_mut().map(HealthMonitor::seen);
        let ended = calls_over.then(|| self.objects.ended());
        let clock = self.clock_watch.as_ref().map(|(_, next)| sleep_until(*next));
        tokio::select! {
            biased;
            event = when_some(registration) => Wake::Registration(event),
            Some(reason) = self.checks.recv() => Wake::Check(reason),
            seen = when_some(look) => Wake::Looked(seen),
            () = when_some(ended) => Wake::ObjectsEnded,
            () = self.objects.need_watch() => Wake::WatchBegins,
            () = when_some(clock) => Wake::LookAtClock,
            // Last: calls and messages may come faster than they are passed on, and holders must
            // not wait for what a check found meanwhile. All other events are rarer.
            next = self.incoming.next() => match next {
                Next::Own(call) => Wake::Call(call),
                Next::OwnIsOver => Wake::CallsOver,
                Next::Others(received) => Wake::Received(received),
            },
        }
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Acquire(asking) => self.acquire(*asking),
            Call::Leave { object, caller } => self.leave(&object, caller),
            Call::QueryHost(reply) => self.report_host(reply),
            Call::QueryHealth(reply) => self.report_health(reply),
            Call::Shutdown => {}
        }
    }

    fn acquire(&mut self, asking: Asking) {
        let admitted = match &mut self.registration {
            // It is refused.
            _ if self.is_closing => Some(asking),
            Some(registration) => registration.admit(asking, &self.shared),
            None => Some(asking),
        };
        if let Some(asking) = admitted {
            self.objects.serve(asking);
        }
    }

    fn leave(&mut self, object: &str, caller: CallerId) {
        let waited = self.registration.as_mut().is_some_and(|it| it.leave(caller));
        if !waited {
            self.objects.leave(object, caller);
        }
    }

    fn registration(&mut self, event: RegistrationEvent) {
        let Some(registration) = &mut self.registration else {
            return;
        };
        for asking in registration.handle(event, &self.shared) {
            self.objects.serve(asking);
        }
    }

    /// Handles what did not go to the task of an object.
    fn received(&self, received: Received) {
        match received {
            Received::Message { object, message } => self.objects.answer_for_none(object, message),
            Received::Who { guest, object } => {
                self.objects.report_line_by_key(object, QueueReplyTo::Guest(guest, object));
            }
            Received::Reconnected { keeper } => self.objects.reconnected(keeper),
        }
    }

    fn close(&mut self) {
        self.is_closing = true;
        if let Some(registration) = &mut self.registration {
            registration.close();
        }
        self.objects.close();
    }

    /// A client that takes no locks has no host.
    fn report_host(&mut self, reply: oneshot::Sender<HostReport>) {
        match &mut self.registration {
            _ if self.is_closing => {}
            Some(registration) => registration.report(reply, &self.shared),
            None => drop(reply.send(HostReport::default())),
        }
    }

    fn report_health(&mut self, reply: oneshot::Sender<Option<HealthProblem>>) {
        self.look(CheckReason::Acquisition);
        match &mut self.health {
            _ if self.is_closing => {}
            Some(health) => health.tell(reply),
            None => drop(reply.send(None)),
        }
    }

    /// Checks health in the background, if a check is due.
    fn look(&mut self, reason: CheckReason) {
        if let Some(health) = &mut self.health {
            health.look(reason, &self.shared.store.nodes, self.shared.clock.elapsed());
        }
    }

    fn watch_clock(&mut self, watch: ClockWatch) {
        self.clock_watch = Some((watch, Instant::now() + SLEEP_MAX));
    }

    fn look_at_clock(&mut self) {
        if let Some((mut watch, _)) = self.clock_watch.take()
            && self.objects.look_at_clock(&mut watch)
        {
            self.watch_clock(watch);
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
            self.objects.health_changed(health.problem().cloned());
        }
    }
}

/// When callers concern the task. Without a registry or checks they never do.
fn admission(registration: Option<&Registration>, health: Option<&HealthMonitor>) -> Admission {
    Admission {
        registered_until: registration.map_or(Duration::MAX, Registration::counts_until),
        check_due: health.and_then(HealthMonitor::acquisition_check_due).unwrap_or(Duration::MAX),
    }
}
