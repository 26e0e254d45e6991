//! What a client knows about its host's registration.
//!
//! It counts for a minute. The next caller then waits until it is read again, so that a removed
//! host gets no lock, however long its client was idle. The registry has [`CHANCE`] to answer.
//! After that callers proceed on the last state that was read, without waiting, until a read shows
//! that the host was removed: a stale registration is safe, because a number is never given to
//! another host, and the client's uuid distinguishes clients with the same number. The registry is
//! read until it answers, so that a removal is noticed as soon as it does.
//!
//! Once a day the client records in the registry that its host is in use, so that unused hosts can
//! be found and removed. That happens in the background, even while no lock is requested.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tracing::{debug, info, warn};

use crate::admin::types::{HealthWarning, UnreadyReason};
use crate::clock::{Moment, SLEEP_MAX};
use crate::context::ClientContext;
use crate::context::retry::RETRY_PAUSE;
use crate::core::object::callers::Callers;
use crate::core::object::io::Caller;
use crate::driver::host::{self, Lookup, RegisteredHost, SEEN_EVERY};
use crate::driver::objects::Asking;
use crate::driver::timer::when_some;
use crate::error::LockError;
use crate::store::DatabaseError;

/// How long a registration counts, and so how often it is read at most (design section 8).
const LIFE: Duration = Duration::from_secs(60);

/// How long callers wait for the registry before they proceed without it: a request takes a second
/// at most, and one is not enough, because it may go to a node that has just died. It is measured
/// by a timer, which stands still while the machine is suspended, like the read.
const CHANCE: Duration = Duration::from_secs(2);

/// The pause before a registry that had its [`CHANCE`] is read again.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(1);

/// The pause before the time that the host was seen is written again.
const SEEN_RETRY: Duration = Duration::from_secs(600);

impl AsRef<Caller> for Asking {
    fn as_ref(&self) -> &Caller {
        &self.1.wants
    }
}

/// What is known about the host's registration, and the callers that wait for a new read.
#[derive(Debug)]
pub(crate) struct Registration {
    host_name: String,
    number: i32,
    /// When the last successful read began.
    read_at: Duration,
    removed: bool,
    /// When the time that the host is seen must be written next; `None` if the database refused it
    /// permanently.
    seen_due: Option<Duration>,
    /// The write of that time under way, if any.
    last_seen: JoinSet<Result<(), DatabaseError>>,
    /// The read in progress, if any.
    read: JoinSet<Read>,
    /// What the registry owes.
    demand: Demand,
    /// Why the last read failed, if it did.
    last_error: Option<DatabaseError>,
    /// The callers that wait for a read.
    waiting: Callers<Asking>,
    /// Those who wait for a read to know whether the host was removed.
    replies: Vec<ReportReply>,
}

/// Whether an overdue registration is being read again.
#[derive(Debug)]
enum Demand {
    /// Nobody has asked for more since the last read.
    None,
    /// Callers wait for it until this timer ends.
    Awaited(Pin<Box<Sleep>>),
    /// The registry had its time. Callers don't wait.
    Unanswered,
}

/// Where the answer to a question about the host goes.
type ReportReply = oneshot::Sender<HostReport>;

/// What a client knows about its host.
#[derive(Debug, Default)]
pub(crate) struct HostReport {
    /// Why it gets no locks, if it gets none.
    pub(crate) reason: Option<UnreadyReason>,
    /// What should be seen to, if anything.
    pub(crate) warning: Option<HealthWarning>,
}

/// A read, and when it began.
#[derive(Debug)]
pub(crate) struct Read {
    began: Moment,
    shown: Result<Lookup, DatabaseError>,
}

/// What happens to a registration.
#[derive(Debug)]
pub(crate) enum RegistrationEvent {
    /// It was read.
    Read(Read),
    /// The registry had its time to answer.
    ChanceOver,
    /// The time that the host is seen was written, or that failed.
    Sighted(Result<(), DatabaseError>),
    /// A caller's timeout may have passed, or the host must be seen.
    Timer,
}

impl Registration {
    /// The registration of a host, from a read that began at `began`.
    pub(crate) fn new(
        host_name: String,
        host: RegisteredHost,
        began: Moment,
        shared: &Arc<ClientContext>,
    ) -> Self {
        let mut registration = Registration {
            host_name,
            number: host.number,
            read_at: began.elapsed,
            removed: false,
            seen_due: Some(began.elapsed),
            last_seen: JoinSet::new(),
            read: JoinSet::new(),
            demand: Demand::None,
            last_error: None,
            waiting: Callers::default(),
            replies: Vec::new(),
        };
        registration.see(host, began, shared);
        registration
    }

    /// Returns a caller that may proceed now. Any other one is answered, or waits.
    pub(crate) fn admit(&mut self, asking: Asking, shared: &Arc<ClientContext>) -> Option<Asking> {
        if self.is_awaited(shared) {
            self.waiting.insert(asking);
            return None;
        }
        self.judge(asking)
    }

    /// A caller has stopped waiting; returns whether it waited here.
    pub(crate) fn leave(&mut self, caller: u64) -> bool {
        self.waiting.take(caller).is_some()
    }

    /// Reports what is known of the host, after a read if it is time for one and the registry
    /// answers in time.
    pub(crate) fn report(&mut self, reply: ReportReply, shared: &Arc<ClientContext>) {
        let waits = self.is_awaited(shared);
        self.replies.push(reply);
        if !waits {
            self.send_reports(shared);
        }
    }

    /// Waits until something happens.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn event(&mut self, shared: &ClientContext) -> RegistrationEvent {
        let now = shared.clock.elapsed();
        // Callers are answered in time even after a suspend; seeing the host may come later.
        let sleep = match (self.waiting.deadline(), self.seen_due) {
            (Some(deadline), _) => Some(deadline.saturating_sub(now).min(SLEEP_MAX)),
            (None, due) => due.map(|due| due.saturating_sub(now)),
        };
        let chance = match &mut self.demand {
            Demand::Awaited(chance) => Some(chance),
            Demand::None | Demand::Unanswered => None,
        };
        tokio::select! {
            biased;
            Some(Ok(read)) = self.read.join_next() => RegistrationEvent::Read(read),
            Some(Ok(sighted)) = self.last_seen.join_next() => RegistrationEvent::Sighted(sighted),
            () = when_some(chance) => RegistrationEvent::ChanceOver,
            () = when_some(sleep.map(tokio::time::sleep)) => RegistrationEvent::Timer,
        }
    }

    /// Handles an event; returns the callers that may proceed now, in the order in which they
    /// asked.
    pub(crate) fn handle(
        &mut self,
        event: RegistrationEvent,
        shared: &Arc<ClientContext>,
    ) -> Vec<Asking> {
        let now = shared.clock.elapsed();
        let admitted = match event {
            RegistrationEvent::Timer => Vec::new(),
            RegistrationEvent::Sighted(written) => {
                self.sighted(written, now);
                Vec::new()
            }
            RegistrationEvent::ChanceOver => self.stop_waiting(shared),
            RegistrationEvent::Read(Read { began, shown: Ok(shown) }) => {
                self.shown(began, &shown, shared)
            }
            RegistrationEvent::Read(Read { shown: Err(cause), .. }) => self.failed(cause, shared),
        };
        self.dismiss_late(now);
        self.read_again(shared);
        admitted
    }

    /// Dismisses all waiting callers: the client is closing.
    pub(crate) fn close(&mut self) {
        self.replies.clear();
        for (_, caller) in self.waiting.take_all() {
            caller.answer(Err(LockError::Closed));
        }
    }

    /// Whether the registration is overdue and the registry still has time to answer. The first
    /// one that asks begins a read.
    fn is_awaited(&mut self, shared: &Arc<ClientContext>) -> bool {
        if !self.counts(shared) && matches!(self.demand, Demand::None) {
            self.demand = Demand::Awaited(Box::pin(tokio::time::sleep(CHANCE)));
            self.last_error = None;
            self.begin_read(shared, None);
        }
        matches!(self.demand, Demand::Awaited(_))
    }

    /// Until when callers need not come here: what is known of the host counts.
    pub(crate) fn counts_until(&self) -> Duration {
        if self.removed { Duration::ZERO } else { self.read_at + LIFE }
    }

    fn counts(&self, shared: &ClientContext) -> bool {
        shared.clock.elapsed() < self.read_at + LIFE
    }

    fn shown(&mut self, began: Moment, shown: &Lookup, shared: &Arc<ClientContext>) -> Vec<Asking> {
        if matches!(self.demand, Demand::Unanswered) {
            let (host, unread_for) = (&self.host_name, self.unread_for(shared));
            info!(host, ?unread_for, "the registry of hosts is read again");
        }
        self.demand = Demand::None;
        self.read_at = began.elapsed;
        self.last_error = None;
        // A host with another number is another one: its row was deleted by hand and created again.
        self.removed = !matches!(shown, Lookup::Registered(host) if host.number == self.number);
        match shown {
            Lookup::Registered(host) if !self.removed => self.see(*host, began, shared),
            Lookup::Registered(_) | Lookup::Removed | Lookup::Missing => {
                self.seen_due = self.seen_due.map(|_| began.elapsed + SEEN_EVERY);
            }
        }
        self.send_reports(shared);
        self.judge_all()
    }

    /// Records that the host is in use, if that was not done for a day.
    ///
    /// It is stamped with the moment before the read that showed the host, so if the row is deleted
    /// by hand meanwhile, the deletion wins.
    fn see(&mut self, host: RegisteredHost, began: Moment, shared: &Arc<ClientContext>) {
        if self.seen_due.is_none() || !self.last_seen.is_empty() {
            return;
        }
        let unseen = host.inactive_for(began.unix_micros).unwrap_or(SEEN_EVERY);
        let rest = SEEN_EVERY.saturating_sub(unseen);
        if !rest.is_zero() {
            self.seen_due = Some(began.elapsed + rest);
            return;
        }
        self.seen_due = Some(began.elapsed + SEEN_EVERY);
        let (shared, name) = (Arc::clone(shared), self.host_name.clone());
        self.last_seen.spawn(async move {
            shared.store.hosts.write_last_seen(&name, began.unix_micros).await
        });
    }

    fn sighted(&mut self, written: Result<(), DatabaseError>, now: Duration) {
        let Err(error) = written else {
            return;
        };
        if error.is_permanent() {
            let cause = error.source();
            warn!(host = %self.host_name, cause, "the registry does not note a host in use");
            self.seen_due = None;
        } else {
            debug!(%error, "the registry was not told that the host is in use; later again");
            self.seen_due = Some(now + SEEN_RETRY);
        }
    }

    /// A refused read is refused again, so callers don't wait for another one.
    fn failed(&mut self, cause: DatabaseError, shared: &Arc<ClientContext>) -> Vec<Asking> {
        let is_refused = cause.is_permanent();
        self.last_error = Some(cause);
        match self.demand {
            Demand::Awaited(_) if is_refused => self.stop_waiting(shared),
            Demand::Awaited(_) | Demand::None | Demand::Unanswered => Vec::new(),
        }
    }

    /// Lets callers proceed on what is known: the registry had its chance, and has not answered.
    fn stop_waiting(&mut self, shared: &ClientContext) -> Vec<Asking> {
        let (host, unread_for) = (&self.host_name, self.unread_for(shared));
        let cause = self.last_error.as_ref().map(|cause| -> &(dyn Error + 'static) { cause });
        warn!(
            host,
            ?unread_for,
            cause,
            "the registry of hosts can't be read: what is known of this host still counts"
        );
        self.demand = Demand::Unanswered;
        self.send_reports(shared);
        self.judge_all()
    }

    /// How long ago the last successful read began.
    fn unread_for(&self, shared: &ClientContext) -> Duration {
        shared.clock.elapsed().saturating_sub(self.read_at)
    }

    fn send_reports(&mut self, shared: &ClientContext) {
        let unread_for = self.unread_for(shared);
        let host = || self.host_name.clone();
        let is_unanswered = matches!(self.demand, Demand::Unanswered);
        for reply in self.replies.drain(..) {
            let reason = self.removed.then(|| UnreadyReason::HostRemoved { host: host() });
            let warning = is_unanswered.then(|| HealthWarning::RegistryUnread {
                host: host(),
                unread_for,
                cause: self.last_error.clone(),
            });
            // One that stopped waiting needs no answer.
            let _ = reply.send(HostReport { reason, warning });
        }
    }

    /// Returns those of the waiting callers that may proceed. The others are answered.
    fn judge_all(&mut self) -> Vec<Asking> {
        let waiting = self.waiting.take_all();
        waiting.filter_map(|asking| self.judge(asking)).collect()
    }

    fn judge(&self, (object, caller): Asking) -> Option<Asking> {
        if self.removed {
            let host = self.host_name.clone();
            caller.answer(Err(LockError::HostRemoved { host }));
            return None;
        }
        Some((object, caller))
    }

    fn dismiss_late(&mut self, now: Duration) {
        while let Some((object, caller)) = self.waiting.take_expired(now) {
            let error = LockError::TimedOut {
                name: object.to_string(),
                waited: now.saturating_sub(caller.wants.asked),
                user: None,
                ahead: Vec::new(),
                held_by_self: false,
                cause: self.last_error.clone(),
            };
            caller.answer(Err(error));
        }
    }

    /// Reads the registry again after a failure if that is wanted, or if a sighting is due: the
    /// read shows whether another client of the host was seen meanwhile.
    fn read_again(&mut self, shared: &Arc<ClientContext>) {
        let now = shared.clock.elapsed();
        match self.demand {
            Demand::Awaited(_) => self.begin_read(shared, Some(RETRY_PAUSE)),
            Demand::Unanswered => self.begin_read(shared, Some(UNANSWERED_PAUSE)),
            Demand::None => {}
        }
        if self.seen_due.is_some_and(|due| due <= now) {
            self.seen_due = Some(now + SEEN_RETRY);
            self.begin_read(shared, None);
        }
    }

    /// Begins a read after a pause, unless one is in progress.
    fn begin_read(&mut self, shared: &Arc<ClientContext>, pause: Option<Duration>) {
        if !self.read.is_empty() {
            return;
        }
        let (shared, name) = (Arc::clone(shared), self.host_name.clone());
        self.read.spawn(async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            let began = shared.clock.now();
            Read { began, shown: host::lookup(&*shared.store.hosts, &name).await }
        });
    }
}
