//! What a client knows about its host's registration.
//!
//! It counts for a minute. A later caller waits until it is read again, so that a removed host gets
//! no lock, however long its client was idle. A registration that can't be read counts as unknown,
//! not as registered: it is read again until the caller's timeout.
//!
//! Once a day the client records in the registry that its host is in use, so that unused hosts can
//! be found and removed. That happens in the background, even while no lock is requested.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::clock::{Moment, SLEEP_MAX};
use crate::engine::host::{self, Lookup, RegisteredHost, SIGHTING_PAUSE};
use crate::engine::retry::RETRY_PAUSE;
use crate::engine::shared::Shared;
use crate::engine::wait::when_some;
use crate::engine::waiters::Caller;
use crate::error::LockError;
use crate::store::DatabaseError;

/// How long a registration counts, and so how often it is read at most (design section 9).
const LIFE: Duration = Duration::from_secs(60);

/// The pause before a sighting of the host is tried again.
const SIGHTING_RETRY: Duration = Duration::from_secs(600);

/// A caller, and the object it requests.
pub(crate) type Asking = (Arc<str>, Caller);

/// What is known about the host's registration, and the callers that wait for a new read.
#[derive(Debug)]
pub(crate) struct Registration {
    host_name: String,
    number: i32,
    /// When the last successful read began.
    read_at: Duration,
    removed: bool,
    /// When the next sighting is due; `None` if the database refused it permanently.
    sighting_due: Option<Duration>,
    /// The sighting that is being written, if any.
    sighting: JoinSet<Result<(), DatabaseError>>,
    /// The read in progress, if any.
    read: JoinSet<Read>,
    /// Why the last read failed, if it did.
    setback: Option<DatabaseError>,
    /// The callers that wait for a read, in order of arrival.
    waiting: VecDeque<Asking>,
    /// Those who wait for a read to know whether the host was removed.
    inquiries: Vec<Inquiry>,
}

/// Where the name of the host goes if it was removed.
type Inquiry = oneshot::Sender<Result<Option<String>, DatabaseError>>;

/// A read, and when it began.
#[derive(Debug)]
pub(crate) struct Read {
    began: Moment,
    shown: Result<Lookup, DatabaseError>,
}

/// What happens to a registration.
#[derive(Debug)]
pub(crate) enum Event {
    /// It was read.
    Read(Read),
    /// A sighting was written, or failed.
    Sighted(Result<(), DatabaseError>),
    /// A caller's timeout may have passed, or a sighting is due.
    Timer,
}

impl Registration {
    /// The registration of a host, from a read that began at `began`.
    pub(crate) fn new(
        host_name: String,
        host: RegisteredHost,
        began: Moment,
        shared: &Arc<Shared>,
    ) -> Self {
        let mut registration = Registration {
            host_name,
            number: host.number,
            read_at: began.elapsed,
            removed: false,
            sighting_due: Some(began.elapsed),
            sighting: JoinSet::new(),
            read: JoinSet::new(),
            setback: None,
            waiting: VecDeque::new(),
            inquiries: Vec::new(),
        };
        registration.see(host, began, shared);
        registration
    }

    /// Returns a caller that may proceed now. Any other one is answered, or waits.
    pub(crate) fn admit(&mut self, asking: Asking, shared: &Arc<Shared>) -> Option<Asking> {
        if self.waiting.is_empty() && self.counts(shared) {
            return self.judge(asking);
        }
        self.waiting.push_back(asking);
        if self.read.is_empty() {
            self.begin_read(shared, None);
        }
        None
    }

    /// Tells the name of the host if it was removed, after a read if it is time for one. Unlike a
    /// caller, an inquiry is answered by a failed read too.
    pub(crate) fn tell(&mut self, inquiry: Inquiry, shared: &Arc<Shared>) {
        self.inquiries.push(inquiry);
        if self.counts(shared) {
            self.answer_inquiries(&Ok(()));
        } else if self.read.is_empty() {
            self.begin_read(shared, None);
        }
    }

    /// Waits until something happens.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn event(&mut self, shared: &Shared) -> Event {
        let now = shared.clock.elapsed();
        let deadline = self.waiting.iter().map(|(_, caller)| caller.deadline).min();
        // Callers are answered in time even after a suspend; a sighting may come later.
        let sleep = match (deadline, self.sighting_due) {
            (Some(deadline), _) => Some(deadline.saturating_sub(now).min(SLEEP_MAX)),
            (None, due) => due.map(|due| due.saturating_sub(now)),
        };
        tokio::select! {
            biased;
            Some(Ok(read)) = self.read.join_next() => Event::Read(read),
            Some(Ok(sighted)) = self.sighting.join_next() => Event::Sighted(sighted),
            () = when_some(sleep.map(tokio::time::sleep)) => Event::Timer,
        }
    }

    /// Handles an event; returns the callers that may proceed now, in order of arrival.
    pub(crate) fn handle(&mut self, event: Event, shared: &Arc<Shared>) -> Vec<Asking> {
        let now = shared.clock.elapsed();
        let admitted = match event {
            Event::Timer => Vec::new(),
            Event::Sighted(written) => {
                self.sighted(written, now);
                Vec::new()
            }
            Event::Read(Read { began, shown: Ok(shown) }) => self.shown(began, &shown, shared),
            Event::Read(Read { shown: Err(cause), .. }) => {
                self.failed(cause);
                Vec::new()
            }
        };
        self.dismiss_late(now);
        if !self.waiting.is_empty() && self.read.is_empty() {
            self.begin_read(shared, Some(RETRY_PAUSE));
        } else if self.sighting_due.is_some_and(|due| due <= now) {
            // The read shows whether another client of the host was seen meanwhile.
            self.sighting_due = Some(now + SIGHTING_RETRY);
            if self.read.is_empty() {
                self.begin_read(shared, None);
            }
        }
        admitted
    }

    /// Dismisses all waiting callers: the client is closing.
    pub(crate) fn close(&mut self) {
        self.inquiries.clear();
        for (_, caller) in self.waiting.drain(..) {
            caller.answer(Err(LockError::Closed));
        }
    }

    fn shown(&mut self, began: Moment, shown: &Lookup, shared: &Arc<Shared>) -> Vec<Asking> {
        self.read_at = began.elapsed;
        self.setback = None;
        // A host with another number is another one: its row was deleted by hand and created again.
        self.removed = !matches!(shown, Lookup::Registered(host) if host.number == self.number);
        match shown {
            Lookup::Registered(host) if !self.removed => self.see(*host, began, shared),
            Lookup::Registered(_) | Lookup::Removed | Lookup::Missing => {
                self.sighting_due = self.sighting_due.map(|_| began.elapsed + SIGHTING_PAUSE);
            }
        }
        self.answer_inquiries(&Ok(()));
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().filter_map(|asking| self.judge(asking)).collect()
    }

    /// Records that the host is in use, if that was not done for a day.
    ///
    /// It is stamped with the moment before the read that showed the host. So if the row is deleted
    /// by hand meanwhile, the deletion wins.
    fn see(&mut self, host: RegisteredHost, began: Moment, shared: &Arc<Shared>) {
        if self.sighting_due.is_none() || !self.sighting.is_empty() {
            return;
        }
        let unseen = host.unseen_for(began.unix_micros).unwrap_or(SIGHTING_PAUSE);
        let rest = SIGHTING_PAUSE.saturating_sub(unseen);
        if !rest.is_zero() {
            self.sighting_due = Some(began.elapsed + rest);
            return;
        }
        self.sighting_due = Some(began.elapsed + SIGHTING_PAUSE);
        let (shared, name) = (Arc::clone(shared), self.host_name.clone());
        self.sighting
            .spawn(async move { shared.store.write_sighting(&name, began.unix_micros).await });
    }

    fn sighted(&mut self, written: Result<(), DatabaseError>, now: Duration) {
        let Err(error) = written else {
            return;
        };
        if error.is_permanent() {
            let cause = error.source();
            warn!(host = %self.host_name, cause, "the registry does not note a host in use");
            self.sighting_due = None;
        } else {
            debug!(%error, "the registry was not told that the host is in use; later again");
            self.sighting_due = Some(now + SIGHTING_RETRY);
        }
    }

    fn failed(&mut self, cause: DatabaseError) {
        if cause.is_permanent() {
            for (object, caller) in self.waiting.drain(..) {
                let (name, cause) = (object.to_string(), cause.clone());
                caller.answer(Err(LockError::Refused { name, cause }));
            }
        }
        self.answer_inquiries(&Err(cause.clone()));
        self.setback = Some(cause);
    }

    fn counts(&self, shared: &Shared) -> bool {
        shared.clock.elapsed() < self.read_at + LIFE
    }

    fn answer_inquiries(&mut self, read: &Result<(), DatabaseError>) {
        let removed = self.removed.then(|| self.host_name.clone());
        for inquiry in self.inquiries.drain(..) {
            // One that stopped waiting needs no answer.
            let _ = inquiry.send(read.clone().map(|()| removed.clone()));
        }
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
        let late: VecDeque<_>;
        (late, self.waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|(_, caller)| !caller.reply.is_closed())
            .partition(|(_, caller)| caller.deadline <= now);
        for (object, caller) in late {
            let error = LockError::TimedOut {
                name: object.to_string(),
                waited: now.saturating_sub(caller.asked),
                user: None,
                ahead: Vec::new(),
                cause: self.setback.clone(),
            };
            caller.answer(Err(error));
        }
    }

    fn begin_read(&mut self, shared: &Arc<Shared>, pause: Option<Duration>) {
        let (shared, name) = (Arc::clone(shared), self.host_name.clone());
        self.read.spawn(async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            let began = Moment::now(&*shared.clock);
            Read { began, shown: host::lookup(&*shared.store, &name).await }
        });
    }
}
