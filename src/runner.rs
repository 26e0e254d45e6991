//! One task per contender: feeds the protocol, does its I/O, sleeps. It translates and decides
//! nothing.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, Span, debug, trace};

use crate::assumptions::{Breach, Occasion};
use crate::clock::{Clock, Stamps};
use crate::contenders;
use crate::entropy::Entropy;
use crate::error::{DatabaseError, HoldError, LockError, LostReason, Outcome, UnlockError};
use crate::fence::Fence;
use crate::grant::{End, Grant};
use crate::guard::LockGuard;
use crate::local::{Caller, CallerQueue, Reply};
use crate::process::Process;
use crate::protocol::{
    Acquire, Contender, ContenderId, Event, Failure, Input, Lease, Loss, Now, OpId, Output,
    Patience, Read, ReadFailure, Revocation, SeenContender, Write, WriteOutcome,
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
    /// The client's randomness.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The client's stamps.
    pub(crate) stamps: Stamps,
    /// The client as a contender.
    pub(crate) id: ContenderId,
    /// How long acknowledgements are waited for on behalf of guards.
    pub(crate) answer_timeout: Duration,
    /// Where the client was built.
    pub(crate) process: Process,
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
    /// Make sure that what was granted is held.
    Confirm {
        /// Which grant.
        grant: u64,
        /// What has to be sure.
        need: Need,
        /// Who waits; dropped without an answer when the grant ends.
        reply: oneshot::Sender<Result<Duration, HoldError>>,
    },
    /// Follow what became of what locks rely on.
    Heed(Option<Breach>),
    /// Send everybody away, give back what is held, and end.
    Close,
    /// End: nobody will ask again.
    Retire,
}

/// What a holder wants to be sure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// That the lease lasts so long without renewal.
    Lease(Duration),
    /// That the rows are there.
    Rows,
}

/// What a runner tells the client's task.
#[derive(Debug)]
pub(crate) enum Report {
    /// It has nothing to do.
    Idle(Idle),
    /// There is a reason to look at what locks rely on.
    Look(Occasion),
}

/// A runner that has nothing to do.
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
    reports: mpsc::UnboundedSender<Report>,
    contender: Contender,
    callers: CallerQueue,
    callers_taken: u64,
    acquiring: Option<Acquire>,
    holder: Option<Holder>,
    grants: u64,
    releasing: Vec<Releasing>,
    confirming: Vec<Confirming>,
    flight: Option<Flight>,
    last_error: Option<DatabaseError>,
    stage: Stage,
}

/// The operation that is outstanding.
type Flight = Pin<Box<dyn Future<Output = (Input, Option<DatabaseError>)> + Send>>;

/// Who was granted the object.
struct Holder {
    grant: Arc<Grant>,
    renews: bool,
    span: Span,
}

/// Somebody who waits for the acknowledgement of a release.
struct Releasing {
    asked: Duration,
    reply: oneshot::Sender<Result<(), UnlockError>>,
}

/// Somebody who waits to be sure that the lock is held.
struct Confirming {
    asked: Duration,
    need: Need,
    /// How many acknowledged renewals were too short; the first one may have been under way.
    too_short: u32,
    reply: oneshot::Sender<Result<Duration, HoldError>>,
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
    /// A fork copied this task into another process. The rows are the parent's business there, and
    /// so are the connections.
    Forked,
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
        reports: mpsc::UnboundedSender<Report>,
    ) -> (Self, mpsc::UnboundedSender<Command>) {
        let (own_commands, commands) = mpsc::unbounded_channel();
        let runner = Runner {
            object,
            contender: Contender::new(shared.id),
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
            confirming: Vec::new(),
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
                Wake::Command(None | Some(Command::Retire)) | Wake::Forked => return,
                Wake::Command(Some(command)) => self.command(command),
                Wake::Answer(input, error) => {
                    self.flight = None;
                    if error.as_ref().is_some_and(DatabaseError::is_permanent) {
                        self.report(Report::Look(Occasion::Refusal));
                    }
                    self.last_error = error;
                    self.handle(input);
                }
                Wake::CallerLeft | Wake::Timer => self.handle(Input::Tick),
            }
            self.give_back_what_is_over();
            self.dismiss_expired();
        }
    }

    fn tell_if_idle(&mut self) {
        let nothing_to_do = self.contender.is_idle() && self.callers.is_empty();
        if nothing_to_do && self.stage == Stage::Serving {
            self.stage = Stage::Idle;
            let object = Arc::clone(&self.object);
            self.report(Report::Idle(Idle { object, callers_taken: self.callers_taken }));
        }
    }

    fn report(&self, report: Report) {
        // Nobody listens when the client's task ended; then nobody asks either.
        let _ = self.reports.send(report);
    }

    async fn wake(&mut self) -> Wake {
        let sleep = self.sleep();
        let process = self.shared.process;
        // Before all else at each poll, so that a fork sends nothing.
        let forked =
            poll_fn(|_| if process.is_current() { Poll::Pending } else { Poll::Ready(()) });
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
            () = forked => Wake::Forked,
            command = self.commands.recv() => Wake::Command(command),
            (input, error) = answer => Wake::Answer(input, error),
            () = poll_fn(|cx| self.callers.poll_cancelled(cx)) => Wake::CallerLeft,
            () = sleep => Wake::Timer,
        }
    }

    fn sleep(&self) -> Option<Duration> {
        let releasing = self.releasing.iter().map(|releasing| releasing.asked);
        let confirming = self.confirming.iter().map(|confirming| confirming.asked);
        let asked = releasing.chain(confirming).min();
        let answers_due = asked.map(|asked| asked + self.shared.answer_timeout);
        let hold_ends = self.holder.as_ref().and_then(|holder| holder.grant.hold_ends());
        let deadlines =
            [self.contender.deadline(), self.callers.deadline(), answers_due, hold_ends];
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
            Command::Confirm { grant, need, reply } => self.confirm(grant, need, reply),
            Command::Heed(breach) => self.heed(breach.as_ref()),
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
            self.confirming.clear();
            let asked = self.shared.clock.elapsed();
            self.releasing.extend(reply.map(|reply| Releasing { asked, reply }));
            self.handle(Input::Release);
        } else if let Some(reply) = reply {
            // The lease ran out between the guard's look at the clock and ours.
            let _ = reply.send(Err(UnlockError::Lost(LostReason::Expired)));
        }
    }

    fn confirm(
        &mut self,
        grant: u64,
        need: Need,
        reply: oneshot::Sender<Result<Duration, HoldError>>,
    ) {
        let Some(holder) = self.holder.as_ref().filter(|holder| holder.grant.id() == grant) else {
            // It ended between the guard's look at the clock and ours.
            return;
        };
        let input = match need {
            Need::Rows => Input::Confirm,
            Need::Lease(_) if holder.renews => Input::Renew,
            Need::Lease(min) => {
                let remaining = holder.grant.state().remaining();
                // Who stopped waiting doesn't mind, here and below.
                let _ = reply.send(Err(HoldError::TooLong { min, remaining }));
                return;
            }
        };
        let asked = self.shared.clock.elapsed();
        self.confirming.push(Confirming { asked, need, too_short: 0, reply });
        self.handle(input);
    }

    /// Ends what the clock has ended, be it the lease or the hold limit.
    fn give_back_what_is_over(&mut self) {
        let ended = self.holder.as_ref().and_then(|holder| holder.grant.ended());
        if let Some(End::Lost(reason)) = ended {
            self.drop_holder(reason);
            self.handle(Input::Release);
        }
    }

    fn drop_holder(&mut self, reason: LostReason) {
        // Who waits to be sure asks the guard instead.
        self.confirming.clear();
        if let Some(holder) = self.holder.take() {
            debug!(parent: &holder.span, %reason, "lost");
            // A guard that was given back meanwhile was not lost to anybody.
            let _ = holder.grant.end(End::Lost(reason));
        }
    }

    /// Does what follows from what became of what locks rely on.
    fn heed(&mut self, breach: Option<&Breach>) {
        if let Some(holder) = &self.holder {
            let differ = matches!(breach, Some(Breach::ClocksDiffer { .. }));
            holder.grant.set_clocks_differ(differ);
        }
        let Some(breach) = breach else {
            return;
        };
        while let Some(caller) = self.callers.pop() {
            caller.answer(Err(breach.refusal(&self.object)));
        }
        match breach {
            // Whoever holds goes on; whoever waited has left.
            Breach::ClocksDiffer { .. } => self.handle(Input::Tick),
            Breach::TableGone => {
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
        let Shared { clock, entropy, stamps, .. } = &*self.shared;
        let stamp = stamps.draw(&**clock);
        Now { elapsed: clock.elapsed(), stamp, jitter: entropy.jitter() }
    }

    // Events.

    /// Passes an event on; what it returns is the contender's next input.
    fn event(&mut self, event: &Event) -> Option<Input> {
        match event {
            Event::Held { lease, .. } => return self.grant(*lease),
            Event::Renewed { lease } => return self.renewed(*lease),
            Event::Taken => self.answer_first(Ok(None)),
            Event::Failed(failure) => {
                let error = self.lock_error(failure);
                self.answer_first(Err(error));
            }
            Event::Confirmed => self.confirmed(),
            Event::Lost(loss) => self.drop_holder(loss.clone().into()),
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
            let Caller { acquire, hold_terms, asked, reply, span, .. } = self.callers.pop()?;
            self.grants += 1;
            let clock = Arc::clone(&self.shared.clock);
            let hold_limit = hold_terms.map(|terms| terms.limit(clock.elapsed()));
            let grant = Arc::new(Grant::new(self.grants, clock, lease, hold_limit));
            let name = Arc::clone(&self.object);
            let fence = Fence::new(
                Arc::clone(&name),
                Arc::clone(&self.shared),
                Arc::clone(&grant),
                &acquire,
            );
            let guard = LockGuard::new(name, Arc::clone(&grant), fence, self.own_commands.clone());
            let waited = self.shared.clock.elapsed().saturating_sub(asked);
            debug!(parent: &span, ?waited, "held");
            if reply.send(Ok(Some(guard))).is_ok() {
                self.holder = Some(Holder { grant, renews: acquire.renew, span });
                return None;
            }
            // The caller left and its guard is dropped; the release that this sends names a grant
            // which nobody has, and is ignored.
        }
        Some(Input::Release)
    }

    fn renewed(&mut self, lease: Lease) -> Option<Input> {
        match self.holder.as_ref()?.grant.renew(lease) {
            Ok(()) => {
                self.report(Report::Look(Occasion::Renewal));
                self.ensured()
            }
            // Given back: the command to release is on its way.
            Err(End::Released) => None,
            // The guard saw the lease end before we saw it renewed, and what is lost stays lost.
            Err(End::Lost(reason)) => {
                self.drop_holder(reason);
                Some(Input::Release)
            }
        }
    }

    /// Tells those who need a lease of some length how long it is now. Returns what is to be done
    /// for those for whom it is too short.
    fn ensured(&mut self) -> Option<Input> {
        /// One may have been under way when it was asked for, and the next one is as long as any.
        const RENEWALS_MAX: u32 = 2;
        let remaining = self.holder.as_ref()?.grant.state().remaining();
        let mut renew_again = false;
        for mut confirming in std::mem::take(&mut self.confirming) {
            let answer = match confirming.need {
                Need::Lease(min) if min <= remaining => Ok(remaining),
                Need::Lease(min) if confirming.too_short + 1 >= RENEWALS_MAX => {
                    Err(HoldError::TooLong { min, remaining })
                }
                Need::Lease(_) | Need::Rows => {
                    let too_short = matches!(confirming.need, Need::Lease(_));
                    confirming.too_short += u32::from(too_short);
                    renew_again |= too_short;
                    self.confirming.push(confirming);
                    continue;
                }
            };
            let _ = confirming.reply.send(answer);
        }
        renew_again.then_some(Input::Renew)
    }

    /// Tells those who need to know that the rows are there.
    fn confirmed(&mut self) {
        let Some(holder) = &self.holder else {
            return;
        };
        let remaining = holder.grant.state().remaining();
        for confirming in self.confirming.extract_if(.., |c| c.need == Need::Rows) {
            let _ = confirming.reply.send(Ok(remaining));
        }
    }

    fn answer_first(&mut self, answer: Reply) {
        self.acquiring = None;
        if let Some(caller) = self.callers.pop() {
            caller.answer(answer);
        }
    }

    fn lock_error(&self, failure: &Failure) -> LockError {
        let name = self.object.to_string();
        match failure {
            Failure::RowMissing => LockError::RowMissing { name },
            Failure::Revoked(Revocation { by, why, .. }) => {
                LockError::Revoked { name, by: by.clone(), why: why.clone() }
            }
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
        let limit = self.shared.answer_timeout;
        for releasing in self.releasing.extract_if(.., |releasing| releasing.asked + limit <= now) {
            let waited = now.saturating_sub(releasing.asked);
            let cause = self.last_error.clone();
            let _ = releasing.reply.send(Err(UnlockError::Unacknowledged { waited, cause }));
        }
        for confirming in self.confirming.extract_if(.., |c| c.asked + limit <= now) {
            let waited = now.saturating_sub(confirming.asked);
            let cause = self.last_error.clone();
            let _ = confirming.reply.send(Err(HoldError::Unconfirmed { waited, cause }));
        }
        if someone_left {
            self.handle(Input::Tick);
        }
    }

    /// Who holds the object or will before the first caller.
    fn ahead(&self) -> Vec<contenders::Contender> {
        match self.contender.held_claim() {
            Some(claim) => vec![SeenContender::from(claim).into()],
            None => {
                self.contender.ahead().iter().cloned().map(contenders::Contender::from).collect()
            }
        }
    }

    // I/O.

    fn write(&self, op: OpId, write: Write) -> Flight {
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let write = async move {
            let result = shared.store.write(&object, &write).await;
            let outcome = result.as_ref().map_or_else(write_outcome, |()| WriteOutcome::Applied);
            if let (WriteOutcome::Unknown, Err(error)) = (outcome, &result) {
                debug!(?error, "whether a write is applied is unknown; it is made again");
            }
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
        self.drop_holder(LostReason::ClientClosed);
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
            Loss::Revoked(Revocation { by, why, .. }) => LostReason::Revoked { by, why },
        }
    }
}
