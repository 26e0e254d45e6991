//! The state machine of one contender.

use std::collections::VecDeque;
use std::time::Duration;

use super::lease::{Lease, LeaseTerms};
use super::line::{Line, Question};
use super::row::{Claim, ContenderId, Mode, StoredRow};
use super::verdict::{Blockers, Place, Standing, Survey};

/// The moment at which something is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time elapsed since the clock's origin. It never goes back.
    pub(crate) elapsed: Duration,
    /// A write timestamp, in µs, above every one that this client has used.
    pub(crate) stamp: i64,
    /// A random number in 0..1, to spread polls.
    pub(crate) jitter: f64,
}

/// What a contender is told.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Acquire the object. Legal only when idle: before the first one, and after
    /// [`Event::Released`].
    Acquire(Acquire),
    /// The answer to a write.
    Written {
        /// The operation that is answered.
        op: OpId,
        /// What became of it.
        outcome: WriteOutcome,
    },
    /// The answer to a read.
    Read {
        /// The operation that is answered.
        op: OpId,
        /// The rows seen.
        rows: Result<Vec<StoredRow>, ReadFailure>,
    },
    /// The deadline passed.
    Tick,
    /// Give the object back, or give up acquiring it.
    Release,
}

/// How to acquire.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    /// How to hold the object.
    pub(crate) mode: Mode,
    /// How long rows live without renewal.
    pub(crate) terms: LeaseTerms,
    /// Whether to wait for those ahead.
    pub(crate) patience: Patience,
    /// Whether to renew the lease while holding; while waiting it always is.
    pub(crate) renew: bool,
    /// For people: host name, process id and label.
    pub(crate) owner: String,
}

/// Whether to wait for those ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until let in.
    Wait,
    /// Only for choosing contenders, and only as long as choosing takes.
    Try,
}

/// Identifies an operation of one contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(u64);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// Acknowledged by a quorum.
    Applied,
    /// Certainly not applied; trying again may help.
    NotApplied,
    /// Certainly not applied, and never will be: the statement itself is refused.
    Rejected,
    /// It may be applied, now, later or never.
    Unknown,
}

/// Why a read brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// Trying again may help.
    Failed,
    /// The statement itself is refused.
    Rejected,
}

/// What a contender wants done, or tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Write rows; answer with [`Input::Written`].
    Write {
        /// Answer with this id.
        op: OpId,
        /// What to write.
        write: Write,
    },
    /// Read rows; answer with [`Input::Read`].
    Read {
        /// Answer with this id.
        op: OpId,
        /// What to read.
        read: Read,
    },
    /// Something happened.
    Event(Event),
}

/// A write of a contender's own rows. Repeating it changes nothing but the moment of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The write timestamp, in µs, kept by retries.
    pub(crate) stamp: i64,
    /// What is written.
    pub(crate) change: Change,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes the claim's `entering::` row, and its `tickets::` row if it has a ticket, as one.
    Put {
        /// The content.
        claim: Claim,
        /// The TTL in seconds.
        ttl_seconds: i32,
    },
    /// Deletes the `entering::` row, and the `tickets::` row with it if one was ever sent.
    Delete {
        /// Whose rows.
        contender: ContenderId,
        /// Whether there may be a `tickets::` row.
        ticket: bool,
    },
}

/// What a read reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// All rows of the object.
    Object,
    /// The rows of one contender.
    Contender(ContenderId),
    /// The `entering::` row of one contender.
    Entering(ContenderId),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The object is held.
    Held {
        /// Until when, without renewal.
        lease: Lease,
        /// The terms it is renewed on.
        terms: LeaseTerms,
    },
    /// A renewal was acknowledged in time.
    Renewed {
        /// The new lease.
        lease: Lease,
    },
    /// A try found the lock taken; the rows are being deleted.
    Taken,
    /// The acquisition failed; the rows are being deleted.
    Failed(Failure),
    /// The object is held no longer; the rows are being deleted.
    Lost(Loss),
    /// The contender has no rows any more, and is idle.
    Released,
}

/// Why an acquisition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A row that was acknowledged is not there.
    RowMissing,
    /// The database refuses a statement.
    Rejected,
    /// Somebody wrote the largest ticket there is.
    NoTicketLeft,
}

/// Why a held object was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The lease ran out.
    Expired,
    /// A row that was acknowledged is not there.
    RowMissing,
}

/// Somebody who holds the object or will hold it before us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Who.
    pub(crate) contender: ContenderId,
    /// What it calls itself.
    pub(crate) owner: String,
    /// Its ticket, if it has drawn one.
    pub(crate) ticket: Option<i64>,
}

/// One contender: see the [module](super) for how to drive it.
#[derive(Debug)]
pub(crate) struct Contender {
    id: ContenderId,
    state: State,
    outstanding: Option<Outstanding>,
    last_op: OpId,
    outputs: VecDeque<Output>,
    pace: Pace,
    /// A `tickets::` row was sent and not yet deleted for certain.
    ticket_sent: bool,
    /// When every row that was ever sent is certainly gone.
    gone_by: Duration,
    ahead: Vec<Ahead>,
}

#[derive(Debug)]
enum State {
    /// No rows.
    Idle,
    /// Writing the `entering::` row.
    Announcing(Acquire, Claim, Attempt),
    /// Reading the object for the first time.
    Looking(Entry),
    /// Writing both rows.
    Drawing(Entry, Attempt),
    /// Reading the object to fix the blockers.
    Settling(Entry, Place),
    /// Asking the blockers until they are gone.
    Waiting(Entry, Line),
    /// Held.
    Held(Entry),
    /// Deleting the rows, then perhaps beginning again.
    Releasing(Write, Option<Acquire>),
}

/// A round whose `entering::` row is acknowledged.
#[derive(Debug)]
struct Entry {
    acquire: Acquire,
    claim: Claim,
    lease: Lease,
    renewal: Renewal,
    announced: Duration,
    doorway: Duration,
}

/// A write that is tried until it is acknowledged, with one stamp.
#[derive(Clone, Debug)]
struct Attempt {
    write: Write,
    first_try: Duration,
}

/// Where the renewal of a lease stands.
#[derive(Debug)]
struct Renewal {
    stage: Stage,
    pace: Pace,
}

#[derive(Debug)]
enum Stage {
    /// Nothing to do until the lease is due.
    Resting,
    /// Writing the rows again.
    Writing(Attempt),
    /// Reading them back.
    Verifying,
}

/// When a step may be taken, and how often it failed.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    not_before: Duration,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    op: OpId,
    task: Task,
    sent: Duration,
}

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Announce,
    Look,
    Draw,
    Settle,
    Ask(Question),
    Delete,
    Renew,
    Verify,
}

/// After a failed try: from this, doubled each time, up to [`BACKOFF_MAX`], jittered.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

impl Contender {
    /// An idle contender.
    pub(crate) fn new(id: ContenderId) -> Self {
        Contender {
            id,
            state: State::Idle,
            outstanding: None,
            last_op: OpId(0),
            outputs: VecDeque::new(),
            pace: Pace::default(),
            ticket_sent: false,
            gone_by: Duration::ZERO,
            ahead: Vec::new(),
        }
    }

    /// Takes an input.
    ///
    /// # Panics
    ///
    /// When told to acquire while not idle: a bug of the caller.
    pub(crate) fn handle(&mut self, now: Now, input: Input) {
        // First, so that no answer is taken as if the lease were still valid.
        self.check_lease(now);
        match input {
            Input::Acquire(acquire) => {
                assert!(matches!(self.state, State::Idle), "one acquisition at a time");
                self.announce(now, acquire);
            }
            Input::Written { op, outcome } => {
                if let Some(answered) = self.take_outstanding(op) {
                    self.written(now, answered, outcome);
                }
            }
            Input::Read { op, rows } => {
                if let Some(answered) = self.take_outstanding(op) {
                    match rows {
                        Ok(rows) => self.read(now, answered, &rows),
                        Err(failure) => self.read_failed(now, answered, failure),
                    }
                }
            }
            Input::Tick => {}
            Input::Release => self.release(now),
        }
        self.proceed(now);
    }

    /// The next output.
    #[must_use]
    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to send [`Input::Tick`], if nothing else comes before.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let steps = self.agenda().into_iter().flatten().map(|(due, _)| due);
        let steps = steps.filter(|_| self.outstanding.is_none());
        steps.chain(self.limit()).min()
    }

    /// Whether the contender has no rows and nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Who holds the object or is ahead, from the last read of the whole object.
    pub(crate) fn ahead(&self) -> &[Ahead] {
        &self.ahead
    }

    // Beginning and ending a round.

    fn announce(&mut self, now: Now, acquire: Acquire) {
        let claim = Claim {
            contender: self.id,
            // Stamps only grow within a client, which is all that is asked of a round.
            round: now.stamp,
            mode: acquire.mode,
            ticket: None,
            owner: acquire.owner.clone(),
        };
        let attempt = Attempt::put(now, &claim, acquire.terms);
        self.ahead.clear();
        self.enter(State::Announcing(acquire, claim, attempt));
    }

    fn release(&mut self, now: Now) {
        match &mut self.state {
            State::Idle => self.event(Event::Released),
            State::Releasing(_, again) => *again = None,
            State::Announcing(..)
            | State::Looking(_)
            | State::Drawing(..)
            | State::Settling(..)
            | State::Waiting(..)
            | State::Held(_) => self.withdraw(now, None),
        }
    }

    /// Deletes the rows, whatever is still outstanding: the delete's stamp is above all others.
    fn withdraw(&mut self, now: Now, again: Option<Acquire>) {
        let change = Change::Delete { contender: self.id, ticket: self.ticket_sent };
        self.enter(State::Releasing(Write { stamp: now.stamp, change }, again));
    }

    fn fail(&mut self, now: Now, failure: Failure) {
        self.event(Event::Failed(failure));
        self.withdraw(now, None);
    }

    fn taken(&mut self, now: Now) {
        self.event(Event::Taken);
        self.withdraw(now, None);
    }

    fn lose(&mut self, now: Now, loss: Loss) {
        self.event(Event::Lost(loss));
        self.withdraw(now, None);
    }

    fn hold(&mut self, entry: Entry) {
        self.event(Event::Held { lease: entry.lease, terms: entry.acquire.terms });
        self.enter(State::Held(entry));
    }

    /// The rows are gone for certain.
    fn gone(&mut self, now: Now) {
        let State::Releasing(_, again) = std::mem::replace(&mut self.state, State::Idle) else {
            unreachable!("only rows that are being deleted are found gone");
        };
        self.ticket_sent = false;
        self.enter(State::Idle);
        match again {
            Some(acquire) => self.announce(now, acquire),
            None => self.event(Event::Released),
        }
    }

    /// What the passing of time alone does.
    fn check_lease(&mut self, now: Now) {
        let expired = self.limit().is_some_and(|limit| now.elapsed >= limit);
        if !expired {
            return;
        }
        match &self.state {
            State::Idle => {}
            State::Held(_) => self.lose(now, Loss::Expired),
            State::Releasing(..) => self.gone(now),
            State::Waiting(entry, _) if entry.lease.is_valid(now.elapsed) => self.taken(now),
            // Nothing is held yet: a fresh round costs the place in the queue, not safety.
            State::Announcing(acquire, ..)
            | State::Looking(Entry { acquire, .. })
            | State::Drawing(Entry { acquire, .. }, _)
            | State::Settling(Entry { acquire, .. }, _)
            | State::Waiting(Entry { acquire, .. }, _) => {
                let again = acquire.clone();
                self.withdraw(now, Some(again));
            }
        }
    }

    /// When the state ends by time alone.
    fn limit(&self) -> Option<Duration> {
        match &self.state {
            State::Idle => None,
            State::Announcing(acquire, _, attempt) => {
                Some(acquire.terms.deadline(attempt.first_try))
            }
            State::Looking(entry)
            | State::Drawing(entry, _)
            | State::Settling(entry, _)
            | State::Held(entry) => Some(entry.lease.deadline()),
            State::Waiting(entry, line) => Some(match entry.acquire.patience {
                Patience::Wait => entry.lease.deadline(),
                Patience::Try => entry.lease.deadline().min(line.choosing_until()),
            }),
            State::Releasing(..) => Some(self.gone_by),
        }
    }

    // Answers.

    fn written(&mut self, now: Now, answered: Outstanding, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Applied => self.applied(now, answered),
            WriteOutcome::Rejected if matches!(answered.task, Task::Announce | Task::Draw) => {
                self.fail(now, Failure::Rejected);
            }
            WriteOutcome::Rejected | WriteOutcome::NotApplied | WriteOutcome::Unknown => {
                self.back_off(now, answered.task);
            }
        }
    }

    fn applied(&mut self, now: Now, answered: Outstanding) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Announcing(acquire, claim, attempt) => {
                let lease = Lease::announced(acquire.terms, attempt.first_try);
                let announced = attempt.first_try;
                let doorway = Duration::ZERO;
                let renewal = Renewal::resting();
                self.enter(State::Looking(Entry {
                    acquire,
                    claim,
                    lease,
                    renewal,
                    announced,
                    doorway,
                }));
            }
            State::Drawing(mut entry, attempt) => {
                let Some(lease) = entry.renewed(&attempt, now.elapsed) else {
                    return self.withdraw(now, Some(entry.acquire));
                };
                entry.lease = lease;
                entry.doorway = now.elapsed - entry.announced;
                let place = entry.place();
                self.enter(State::Settling(entry, place));
            }
            state @ State::Releasing(..) => {
                self.state = state;
                self.gone(now);
            }
            state @ (State::Settling(..) | State::Waiting(..) | State::Held(_)) => {
                assert_eq!(answered.task, Task::Renew, "the only write of these states");
                self.state = state;
                self.renewed(now);
            }
            State::Idle | State::Looking(_) => unreachable!("these states write nothing"),
        }
    }

    fn renewed(&mut self, now: Now) {
        let held = matches!(self.state, State::Held(_));
        let entry = self.entry_mut().expect("rows are renewed only once they are written");
        let Stage::Writing(attempt) = std::mem::replace(&mut entry.renewal.stage, Stage::Verifying)
        else {
            unreachable!("a renewal was acknowledged, so it was being written");
        };
        entry.renewal.pace = Pace::default();
        match entry.renewed(&attempt, now.elapsed) {
            Some(lease) => {
                entry.lease = lease;
                if held {
                    self.event(Event::Renewed { lease });
                }
            }
            // The old lease is still valid, or time would have ended the state; the new one is
            // over already, because its first try lies so far back. Try once more.
            None => entry.renewal.stage = Stage::Resting,
        }
    }

    fn read(&mut self, now: Now, answered: Outstanding, rows: &[StoredRow]) {
        let survey = Survey::of(rows);
        match answered.task {
            Task::Look => self.looked(now, &survey),
            Task::Settle => self.settled(now, &survey),
            Task::Ask(question) => self.asked(now, question, &survey, now.elapsed - answered.sent),
            Task::Verify => self.verified(now, &survey),
            Task::Announce | Task::Draw | Task::Delete | Task::Renew => {
                unreachable!("a write was answered as a read")
            }
        }
    }

    fn looked(&mut self, now: Now, survey: &Survey) {
        let State::Looking(mut entry) = std::mem::replace(&mut self.state, State::Idle) else {
            unreachable!("only this state looks");
        };
        if !entry.is_seen_in(survey) {
            return self.fail(now, Failure::RowMissing);
        }
        let blockers = survey.blockers_before_drawing(self.id, entry.acquire.mode);
        self.note_ahead(&blockers);
        if blockers.admit(entry.acquire.mode) {
            return self.hold(entry);
        }
        let has_ticket = |(_, standing): (ContenderId, Standing)| standing.ticket().is_some();
        if entry.acquire.patience == Patience::Try && blockers.iter().any(has_ticket) {
            return self.taken(now);
        }
        let Some(ticket) = survey.largest_ticket().checked_add(1) else {
            return self.fail(now, Failure::NoTicketLeft);
        };
        entry.claim.ticket = Some(ticket);
        let attempt = Attempt::put(now, &entry.claim, entry.acquire.terms);
        self.enter(State::Drawing(entry, attempt));
    }

    fn settled(&mut self, now: Now, survey: &Survey) {
        let State::Settling(entry, place) = std::mem::replace(&mut self.state, State::Idle) else {
            unreachable!("only this state settles");
        };
        if !entry.is_seen_in(survey) {
            return self.fail(now, Failure::RowMissing);
        }
        let blockers = survey.blockers_of(place, entry.acquire.mode);
        self.note_ahead(&blockers);
        let line = Line::new(place, blockers, now.elapsed, entry.doorway);
        self.wait(now, entry, line);
    }

    fn asked(&mut self, now: Now, question: Question, survey: &Survey, round_trip: Duration) {
        let State::Waiting(entry, mut line) = std::mem::replace(&mut self.state, State::Idle)
        else {
            unreachable!("only this state asks");
        };
        let gone = match question {
            Question::Present(contender) | Question::Choosing(contender) => {
                line.answered(contender, survey)
            }
            Question::Everybody => {
                if !entry.is_seen_in(survey) {
                    return self.fail(now, Failure::RowMissing);
                }
                line.confirmed(survey);
                self.note_ahead(line.blockers());
                return self.wait(now, entry, line);
            }
        };
        let pause = line.pause(now.elapsed, round_trip, now.jitter);
        if entry.acquire.patience == Patience::Try && line.is_behind_a_ticket() {
            return self.taken(now);
        }
        self.enter(State::Waiting(entry, line));
        if !gone {
            self.pace.not_before = now.elapsed + pause;
        }
    }

    /// After a read of the whole object: in, or on with the line.
    fn wait(&mut self, now: Now, entry: Entry, line: Line) {
        if line.blockers().admit(entry.acquire.mode) {
            self.hold(entry);
        } else if entry.acquire.patience == Patience::Try && line.is_behind_a_ticket() {
            self.taken(now);
        } else {
            self.enter(State::Waiting(entry, line));
        }
    }

    fn verified(&mut self, now: Now, survey: &Survey) {
        let held = matches!(self.state, State::Held(_));
        let entry = self.entry_mut().expect("only written rows are verified");
        entry.renewal = Renewal::resting();
        if !entry.is_seen_in(survey) {
            if held {
                self.lose(now, Loss::RowMissing);
            } else {
                self.fail(now, Failure::RowMissing);
            }
        }
    }

    fn read_failed(&mut self, now: Now, answered: Outstanding, failure: ReadFailure) {
        match (failure, answered.task) {
            (ReadFailure::Rejected, Task::Look | Task::Settle | Task::Ask(_)) => {
                self.fail(now, Failure::Rejected);
            }
            (ReadFailure::Rejected | ReadFailure::Failed, task) => self.back_off(now, task),
        }
    }

    fn back_off(&mut self, now: Now, task: Task) {
        let pace = match (task, self.entry_mut()) {
            (Task::Renew | Task::Verify, Some(entry)) => &mut entry.renewal.pace,
            _ => &mut self.pace,
        };
        let wait = BACKOFF_MIN * 2_u32.saturating_pow(pace.failures.min(16));
        pace.not_before = now.elapsed + wait.min(BACKOFF_MAX).mul_f64(0.75 + now.jitter / 2.0);
        pace.failures += 1;
    }

    // What to do next.

    fn proceed(&mut self, now: Now) {
        if self.outstanding.is_some() {
            return;
        }
        let due = self.agenda().into_iter().flatten().find(|(due, _)| *due <= now.elapsed);
        if let Some((_, task)) = due {
            self.issue(now, task);
        }
    }

    /// What is to be done and when, the more urgent first.
    fn agenda(&self) -> [Option<(Duration, Task)>; 2] {
        let renewal = self.entry().filter(|_| self.renews()).map(Entry::renewal_step);
        let step = match &self.state {
            State::Idle | State::Held(_) => None,
            State::Announcing(..) => Some(Task::Announce),
            State::Looking(_) => Some(Task::Look),
            State::Drawing(..) => Some(Task::Draw),
            State::Settling(..) => Some(Task::Settle),
            State::Waiting(_, line) => Some(Task::Ask(line.question())),
            State::Releasing(..) => Some(Task::Delete),
        };
        [renewal, step.map(|task| (self.pace.not_before, task))]
    }

    /// In the doorway nothing is renewed: its writes renew by themselves.
    fn renews(&self) -> bool {
        match &self.state {
            State::Settling(..) | State::Waiting(..) => true,
            State::Held(entry) => entry.acquire.renew,
            State::Idle
            | State::Announcing(..)
            | State::Looking(_)
            | State::Drawing(..)
            | State::Releasing(..) => false,
        }
    }

    fn issue(&mut self, now: Now, task: Task) {
        self.last_op = OpId(self.last_op.0 + 1);
        let op = self.last_op;
        self.outstanding = Some(Outstanding { op, task, sent: now.elapsed });
        let read = match task {
            Task::Announce | Task::Draw | Task::Delete | Task::Renew => {
                let write = self.write_of(now);
                if let Change::Put { claim, .. } = &write.change {
                    self.ticket_sent |= claim.ticket.is_some();
                }
                return self.outputs.push_back(Output::Write { op, write });
            }
            Task::Look | Task::Settle | Task::Ask(Question::Everybody) => Read::Object,
            Task::Ask(Question::Choosing(contender)) => Read::Contender(contender),
            Task::Ask(Question::Present(contender)) => Read::Entering(contender),
            Task::Verify => Read::Contender(self.id),
        };
        self.outputs.push_back(Output::Read { op, read });
    }

    /// The write that the state is about, and when its rows will be gone at the latest.
    fn write_of(&mut self, now: Now) -> Write {
        let (write, terms) = match &mut self.state {
            State::Announcing(acquire, _, attempt) => (attempt.write.clone(), acquire.terms),
            State::Drawing(entry, attempt) => (attempt.write.clone(), entry.acquire.terms),
            State::Settling(entry, _) | State::Waiting(entry, _) | State::Held(entry) => {
                (entry.renewal_write(now), entry.acquire.terms)
            }
            State::Releasing(write, _) => return write.clone(),
            State::Idle | State::Looking(_) => unreachable!("these states write nothing"),
        };
        self.gone_by = self.gone_by.max(terms.gone_by(now.elapsed));
        write
    }

    // Small change.

    /// A new state begins at once and supersedes what is outstanding.
    fn enter(&mut self, state: State) {
        self.state = state;
        self.pace = Pace::default();
        self.outstanding = None;
    }

    fn take_outstanding(&mut self, op: OpId) -> Option<Outstanding> {
        self.outstanding.take_if(|outstanding| outstanding.op == op)
    }

    fn entry(&self) -> Option<&Entry> {
        match &self.state {
            State::Looking(entry)
            | State::Drawing(entry, _)
            | State::Settling(entry, _)
            | State::Waiting(entry, _)
            | State::Held(entry) => Some(entry),
            State::Idle | State::Announcing(..) | State::Releasing(..) => None,
        }
    }

    fn entry_mut(&mut self) -> Option<&mut Entry> {
        match &mut self.state {
            State::Looking(entry)
            | State::Drawing(entry, _)
            | State::Settling(entry, _)
            | State::Waiting(entry, _)
            | State::Held(entry) => Some(entry),
            State::Idle | State::Announcing(..) | State::Releasing(..) => None,
        }
    }

    fn note_ahead(&mut self, blockers: &Blockers) {
        let ahead = blockers.iter().map(|(contender, standing)| Ahead {
            contender,
            owner: blockers.owner(contender).to_owned(),
            ticket: standing.ticket(),
        });
        self.ahead = ahead.collect();
        // Who has no ticket may hold by the short way, so it comes first.
        self.ahead.sort_unstable_by_key(|ahead| (ahead.ticket, ahead.contender));
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

impl Entry {
    /// Whether a read shows our rows as they were acknowledged.
    fn is_seen_in(&self, survey: &Survey) -> bool {
        survey.standing(self.claim.contender).is_some_and(|standing| {
            standing.round() == Some(self.claim.round) && standing.ticket() == self.claim.ticket
        })
    }

    fn place(&self) -> Place {
        let ticket = self.claim.ticket.expect("a place is asked for once a ticket is drawn");
        Place { ticket, contender: self.claim.contender }
    }

    /// The lease after the acknowledgement of a write of these rows.
    fn renewed(&self, attempt: &Attempt, now: Duration) -> Option<Lease> {
        let with_ticket = self.claim.ticket.is_some();
        self.lease.renewed(self.acquire.terms, attempt.first_try, with_ticket, now)
    }

    fn renewal_step(&self) -> (Duration, Task) {
        match self.renewal.stage {
            Stage::Resting => {
                let due = self.lease.renewal_due(self.acquire.terms);
                (due.max(self.renewal.pace.not_before), Task::Renew)
            }
            Stage::Writing(_) => (self.renewal.pace.not_before, Task::Renew),
            Stage::Verifying => (self.renewal.pace.not_before, Task::Verify),
        }
    }

    /// The renewal under way, or a new one.
    fn renewal_write(&mut self, now: Now) -> Write {
        if let Stage::Writing(attempt) = &self.renewal.stage {
            return attempt.write.clone();
        }
        let attempt = Attempt::put(now, &self.claim, self.acquire.terms);
        let write = attempt.write.clone();
        self.renewal.stage = Stage::Writing(attempt);
        write
    }
}

impl Attempt {
    fn put(now: Now, claim: &Claim, terms: LeaseTerms) -> Self {
        let change = Change::Put { claim: claim.clone(), ttl_seconds: terms.ttl_seconds() };
        Attempt { write: Write { stamp: now.stamp, change }, first_try: now.elapsed }
    }
}

impl Renewal {
    fn resting() -> Self {
        Renewal { stage: Stage::Resting, pace: Pace::default() }
    }
}
