//! One task per contender: feeds the protocol, does its I/O, sleeps. It translates and decides
//! nothing.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, Span, debug, trace};
use uuid::Uuid;

use crate::clock::{Clock, Stamps};
use crate::error::{Ahead, DatabaseError, LockError, LostReason, Outcome, UnlockError};
use crate::guard::{End, Grant, LockGuard};
use crate::local::{Caller, CallerQueue, Reply};
use crate::protocol::{
    Acquire, Contender, ContenderId, Event, Failure, Input, Lease, Loss, Now, OpId, Output,
    Patience, Read, ReadFailure, Write, WriteOutcome,
};
use crate::store::Store;

/// However far the next deadline is, look at the clock this often: the timer stops while the
/// machine is suspended, the clock does not (design section 5).
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What all runners of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Where the rows live.
    pub(crate) store: Arc<dyn Store>,
    /// The client's clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// The client's stamps.
    pub(crate) stamps: Stamps,
    /// The client as a contender.
    pub(crate) id: ContenderId,
    /// How long a release is waited for.
    pub(crate) release_timeout: Duration,
}

/// What a runner is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Acquire for a caller.
    Acquire(Caller),
    /// Give back what was granted.
    Release {
        /// Which grant.
        grant: u64,
        /// Who waits for the acknowledgement.
        reply: Option<oneshot::Sender<Result<(), UnlockError>>>,
    },
    /// Send everybody away, give back what is held, and end.
    Close,
    /// End: nobody will ask again.
    Retire,
}

/// What a runner tells: it has nothing to do.
#[derive(Debug)]
pub(crate) struct Idle {
    /// For which object.
    pub(crate) object: Arc<str>,
    /// How many callers it has taken in all.
    pub(crate) callers_taken: u64,
}

/// Runs one contender until it is retired or closed.
pub(crate) struct Runner {
    object: Arc<str>,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Goes along with each guard.
    own_commands: mpsc::UnboundedSender<Command>,
    idle: mpsc::UnboundedSender<Idle>,
    contender: Contender,
    callers: CallerQueue,
    callers_taken: u64,
    acquiring: Option<Acquire>,
    holder: Option<Holder>,
    grants: u64,
    releasing: Vec<Releasing>,
    flight: Option<Flight>,
    last_error: Option<DatabaseError>,
    stage: Stage,
}

/// The operation that is outstanding.
type Flight = Pin<Box<dyn Future<Output = (Input, Option<DatabaseError>)> + Send>>;

/// Who was granted the object.
struct Holder {
    grant: Arc<Grant>,
    owner: String,
    span: Span,
}

/// Somebody who waits for the acknowledgement of a release.
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
    /// Everybody is sent away.
    Closing,
}

/// Why the runner woke up.
enum Wake {
    Command(Option<Command>),
    Answer(Input, Option<DatabaseError>),
    CallerLeft,
    Timer,
}

impl Runner {
    /// A runner for one object, and where to send it commands.
    pub(crate) fn new(
        object: Arc<str>,
        shared: Arc<Shared>,
        idle: mpsc::UnboundedSender<Idle>,
    ) -> (Self, mpsc::UnboundedSender<Command>) {
        let (own_commands, commands) = mpsc::unbounded_channel();
        let runner = Runner {
            object,
            contender: Contender::new(shared.id),
            shared,
            commands,
            own_commands: own_commands.clone(),
            idle,
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

    /// Runs until there is nothing to do any more, and nobody to do it for.
    pub(crate) async fn run(mut self) {
        loop {
            if self.contender.is_idle() && self.stage == Stage::Closing {
                return;
            }
            self.tell_if_idle();
            match self.wake().await {
                Wake::Command(None | Some(Command::Retire)) => return,
                Wake::Command(Some(command)) => self.command(command),
                Wake::Answer(input, error) => {
                    self.flight = None;
                    self.last_error = error;
                    self.handle(input);
                }
                Wake::CallerLeft | Wake::Timer => self.handle(Input::Tick),
            }
            self.dismiss_expired();
        }
    }

    fn tell_if_idle(&mut self) {
        let nothing_to_do = self.contender.is_idle() && self.callers.is_empty();
        if nothing_to_do && self.stage == Stage::Serving {
            self.stage = Stage::Idle;
            let object = Arc::clone(&self.object);
            // Nobody listens when the client's task ended; then nobody asks either.
            let _ = self.idle.send(Idle { object, callers_taken: self.callers_taken });
        }
    }

    async fn wake(&mut self) -> Wake {
        let sleep = self.sleep();
        let flight = self.flight.as_mut();
        let answer = async {
            match flight {
                Some(flight) => flight.await,
                None => pending().await,
            }
        };
        let sleep = async {
            match sleep {
                Some(sleep) => tokio::time::sleep(sleep).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            command = self.commands.recv() => Wake::Command(command),
            (input, error) = answer => Wake::Answer(input, error),
            () = poll_fn(|cx| self.callers.poll_cancelled(cx)) => Wake::CallerLeft,
            () = sleep => Wake::Timer,
        }
    }

    fn sleep(&self) -> Option<Duration> {
        let releasing = self.releasing.iter().map(|r| r.asked + self.shared.release_timeout).min();
        let deadlines = [self.contender.deadline(), self.callers.deadline(), releasing];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_sub(self.shared.clock.elapsed()).min(SLEEP_MAX))
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Acquire(caller) if self.stage == Stage::Closing => {
                caller.answer(Err(LockError::Closed));
            }
            Command::Acquire(caller) => {
                self.stage = Stage::Serving;
                self.callers_taken += 1;
                if caller.acquire.patience == Patience::Try && self.is_taken_here() {
                    caller.answer(Ok(None));
                } else {
                    self.callers.push(caller);
                    self.handle(Input::Tick);
                }
            }
            Command::Release { grant, reply } => self.release(grant, reply),
            Command::Close => self.close(),
            Command::Retire => unreachable!("it ends the loop"),
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
        } else if let Some(reply) = reply {
            // The lease ran out between the guard's look at the clock and ours.
            let _ = reply.send(Err(UnlockError::Lost(LostReason::Expired)));
        }
    }

    fn close(&mut self) {
        self.stage = Stage::Closing;
        while let Some(caller) = self.callers.pop() {
            caller.answer(Err(LockError::Closed));
        }
        if let Some(holder) = self.holder.take() {
            // It may have ended in the same moment; then that end stands.
            let _ = holder.grant.end(End::Lost(LostReason::ClientClosed));
        }
        self.acquiring = None;
        if !self.contender.is_idle() {
            self.handle(Input::Release);
        }
    }

    /// Feeds the contender and does what it asks for, until it asks for nothing more.
    fn handle(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            let now = self.now();
            trace!(parent: &self.span(), ?input, "input");
            self.contender.handle(now, input);
            let mut answer = None;
            while let Some(output) = self.contender.poll() {
                trace!(parent: &self.span(), ?output, "output");
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

    fn now(&self) -> Now {
        let clock = &*self.shared.clock;
        let stamp = self.shared.stamps.draw(clock);
        Now { elapsed: clock.elapsed(), stamp, jitter: rand::random() }
    }

    // Events.

    /// Passes an event on; what it returns is the contender's next input.
    fn event(&mut self, event: &Event) -> Option<Input> {
        match *event {
            Event::Held { lease, .. } => return self.grant(lease),
            Event::Renewed { lease } => return self.renewed(lease),
            Event::Taken => self.answer_first(Ok(None)),
            Event::Failed(failure) => {
                let error = self.lock_error(failure);
                self.answer_first(Err(error));
            }
            Event::Lost(loss) => {
                if let Some(holder) = self.holder.take() {
                    debug!(parent: &holder.span, ?loss, "lost");
                    // A guard that was given back meanwhile was not lost to anybody.
                    let _ = holder.grant.end(End::Lost(loss.into()));
                }
            }
            Event::Released => {
                for releasing in self.releasing.drain(..) {
                    // Who stopped waiting doesn't mind.
                    let _ = releasing.reply.send(Ok(()));
                }
            }
        }
        None
    }

    /// Gives the object to the first caller who still wants it; back, when there is none.
    fn grant(&mut self, lease: Lease) -> Option<Input> {
        let acquired = self.acquiring.take().expect("what is held was asked for");
        while let Some(first) = self.callers.first() {
            if first.acquire != acquired {
                break;
            }
            let Caller { acquire, asked, reply, span, .. } = self.callers.pop()?;
            self.grants += 1;
            let grant = Arc::new(Grant::new(self.grants, Arc::clone(&self.shared.clock), lease));
            let name = Arc::clone(&self.object);
            let guard = LockGuard::new(name, Arc::clone(&grant), self.own_commands.clone());
            let waited = self.shared.clock.elapsed().saturating_sub(asked);
            debug!(parent: &span, ?waited, "held");
            if reply.send(Ok(Some(guard))).is_ok() {
                self.holder = Some(Holder { grant, owner: acquire.owner, span });
                return None;
            }
            // The caller left and its guard is dropped; the release that this sends names a grant
            // which nobody has, and is ignored.
        }
        Some(Input::Release)
    }

    fn renewed(&mut self, lease: Lease) -> Option<Input> {
        match self.holder.as_ref()?.grant.renew(lease) {
            // Given back: the command to release is on its way.
            Ok(()) | Err(End::Released) => None,
            // The guard saw the lease end before we saw it renewed, and what is lost stays lost.
            Err(End::Lost(_)) => {
                self.holder = None;
                Some(Input::Release)
            }
        }
    }

    fn answer_first(&mut self, answer: Reply) {
        self.acquiring = None;
        if let Some(caller) = self.callers.pop() {
            caller.answer(answer);
        }
    }

    fn lock_error(&self, failure: Failure) -> LockError {
        let name = self.object.to_string();
        match failure {
            Failure::RowMissing => LockError::RowMissing { name },
            Failure::NoTicketLeft => LockError::NoTicketLeft { name },
            Failure::Rejected => {
                let cause = self.last_error.clone();
                let cause = cause.expect("a refused request leaves its error");
                LockError::Refused { name, cause }
            }
        }
    }

    /// Sends away callers and releases that have waited long enough.
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
        let limit = self.shared.release_timeout;
        for releasing in self.releasing.extract_if(.., |releasing| releasing.asked + limit <= now) {
            let waited = now.saturating_sub(releasing.asked);
            let cause = self.last_error.clone();
            let _ = releasing.reply.send(Err(UnlockError::Unacknowledged { waited, cause }));
        }
        if someone_left {
            self.handle(Input::Tick);
        }
    }

    /// Who holds the object or will before the first caller.
    fn ahead(&self) -> Vec<Ahead> {
        let public = |id: ContenderId, owner: String, ticket| {
            let client = Uuid::from_u128(id.client);
            Ahead { owner, host: id.host, client, ticket }
        };
        match &self.holder {
            Some(holder) => vec![public(self.shared.id, holder.owner.clone(), None)],
            None => {
                let ahead = self.contender.ahead().iter();
                ahead.map(|a| public(a.contender, a.owner.clone(), a.ticket)).collect()
            }
        }
    }

    // I/O.

    fn write(&self, op: OpId, write: Write) -> Flight {
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let write = async move {
            let result = shared.store.write(&object, &write).await;
            let outcome = result.as_ref().map_or_else(write_outcome, |()| WriteOutcome::Applied);
            (Input::Written { op, outcome }, result.err())
        };
        Box::pin(write.instrument(self.span()))
    }

    fn read(&self, op: OpId, read: Read) -> Flight {
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let read = async move {
            match shared.store.read(&object, read).await {
                Ok(rows) => (Input::Read { op, rows: Ok(rows) }, None),
                Err(error) => {
                    let rows = Err(read_failure(&error));
                    (Input::Read { op, rows }, Some(error))
                }
            }
        };
        Box::pin(read.instrument(self.span()))
    }

    /// The span of the acquisition that the contender is busy with.
    fn span(&self) -> Span {
        let holder = self.holder.as_ref().map(|holder| &holder.span);
        let span = holder.or_else(|| self.callers.first().map(|caller| &caller.span));
        span.cloned().unwrap_or_else(Span::none)
    }
}

/// The runtime ended, and with it the renewals: the guard learns of it at once.
impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            // It may have ended in the same moment; then that end stands.
            let _ = holder.grant.end(End::Lost(LostReason::ClientClosed));
        }
    }
}

impl Caller {
    /// Answers the caller.
    pub(crate) fn answer(self, answer: Reply) {
        if let Err(error) = &answer {
            debug!(parent: &self.span, %error, "not obtained");
        }
        // Who stopped waiting doesn't mind; a guard in the answer is dropped and given back.
        let _ = self.reply.send(answer);
    }
}

fn write_outcome(error: &DatabaseError) -> WriteOutcome {
    match error.outcome() {
        Outcome::Applied => WriteOutcome::Applied,
        Outcome::NotApplied if error.is_permanent() => WriteOutcome::Rejected,
        Outcome::NotApplied => WriteOutcome::NotApplied,
        Outcome::Unknown => WriteOutcome::Unknown,
    }
}

fn read_failure(error: &DatabaseError) -> ReadFailure {
    if error.is_permanent() { ReadFailure::Rejected } else { ReadFailure::Failed }
}

impl From<Loss> for LostReason {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Expired => LostReason::Expired,
            Loss::RowMissing => LostReason::RowMissing,
        }
    }
}
