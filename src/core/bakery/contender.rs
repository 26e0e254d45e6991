//! The state machine of one contender.
//!
//! This file defines the states, how time and the caller change them, and the next operation of
//! each; [`answers`] handles the answers to operations.

mod answers;
#[cfg(instrumented)]
mod fingerprint;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::admission::SeenContender;
use super::entry::{Attempt, Entry, Pace, RenewalStep};
use super::io::{
    Acquire, Assignment, Change, ContenderEvent, ContenderInput, ContenderOutput, FRONT_MAX,
    Failure, Loss, Now, OpId, Patience, Read, Write,
};
use super::lease::{Lease, LeaseTerms, TIME_IN_FLIGHT};
use super::queue::{Question, Queue};
use super::row::{Claim, ContenderId};
use super::seeded_bug::SeededBug;

/// One contender: see the [module](super) for how to drive it.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    id: ContenderId,
    state: State,
    outstanding: Option<Outstanding>,
    last_op: OpId,
    outputs: VecDeque<ContenderOutput>,
    pace: Pace,
    /// A `revoked::` row was seen and is not certainly deleted yet.
    revoked_row_seen: bool,
    /// When every row ever sent is certainly gone, deleted or not.
    gone_by: Duration,
    /// How far the stamps of this contender are above those of its client: above the marks that it
    /// has met. A wrong mark thus affects its own object only.
    raised: i64,
    exchanges: bool,
    /// How many of those ahead it asks for at once, at most.
    front_max: usize,
    ahead: Vec<SeenContender>,
}

#[derive(Clone, Debug)]
enum State {
    /// No rows.
    Idle,
    /// Writing the `entering::` row.
    Announcing(Acquire, Claim, Attempt),
    /// Reading the object for the first time.
    Looking(Entry),
    /// Writing the row with a ticket.
    TakingTicket(Entry, Attempt),
    /// Reading the object to fix the blockers; carries the duration of the doorway.
    Settling(Entry, Duration),
    /// Asking the blockers until they are gone.
    Waiting(Entry, Box<Queue>),
    /// Held.
    Held(Entry),
    /// No longer held. The rows stay until the release.
    Lost,
    /// Deleting the rows, then perhaps beginning a new round.
    Releasing { delete: Write, again: Option<Acquire> },
}

/// The operation that awaits its answer.
#[derive(Clone, Debug)]
struct Outstanding {
    op: OpId,
    task: Task,
    sent: Duration,
}

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Announce,
    Look,
    TakeTicket,
    Settle,
    Ask(Question),
    Delete,
    Check,
    Renew,
    Verify,
}

impl Contender {
    /// An idle contender.
    #[cfg(any(test, instrumented))]
    pub(crate) fn new(id: ContenderId) -> Self {
        Contender::raised(id, 0)
    }

    /// An idle contender whose stamps are raised, like those of an earlier one with its id.
    pub(crate) fn raised(id: ContenderId, raised: i64) -> Self {
        Contender {
            id,
            state: State::Idle,
            outstanding: None,
            last_op: OpId::default(),
            outputs: VecDeque::new(),
            pace: Pace::default(),
            revoked_row_seen: false,
            gone_by: Duration::ZERO,
            raised,
            exchanges: false,
            front_max: FRONT_MAX,
            ahead: Vec::new(),
        }
    }

    /// The contender, in a store that writes and reads in one round trip if `exchanges`.
    pub(crate) fn exchanging(self, exchanges: bool) -> Self {
        Contender { exchanges, ..self }
    }

    /// The contender, which asks for no more than this many of those ahead at once.
    #[cfg(instrumented)]
    pub(crate) fn with_front_max(self, front_max: usize) -> Self {
        Contender { front_max, ..self }
    }

    /// Handles an input.
    ///
    /// # Panics
    ///
    /// If asked to acquire while not idle, or if a write is answered as a read or a read as
    /// applied: bugs of the caller. No content of a read makes it panic.
    pub(crate) fn handle(&mut self, now: Now, input: ContenderInput) {
        let now = Now { stamp: now.stamp.saturating_add(self.raised), ..now };
        let was_releasing = matches!(self.state, State::Releasing { .. });
        // First, so that no answer is handled as if the lease were still valid.
        self.check_limit(now);
        match input {
            ContenderInput::Acquire(acquire) => {
                assert!(self.is_idle(), "one acquisition at a time");
                self.ahead.clear();
                self.announce(now, acquire);
            }
            ContenderInput::Written { op, outcome } => {
                if let Some(answered) = self.take_outstanding(op) {
                    self.written(now, answered.task, outcome);
                }
            }
            ContenderInput::Read { op, rows, statics } => {
                if let Some(answered) = self.take_outstanding(op) {
                    self.read(now, &answered, rows, statics);
                }
            }
            ContenderInput::Tick => {}
            ContenderInput::Renew => self.with_held(Entry::renew_now),
            ContenderInput::Confirm => self.with_held(Entry::confirm_now),
            ContenderInput::Reassign(assignment) => self.reassign(assignment),
            ContenderInput::Rest => {
                let is_writing = self.is_renewing();
                self.with_held(|entry| entry.rest(is_writing));
            }
            // The time has just ended the release, and said so.
            ContenderInput::Release if was_releasing && self.is_idle() => {}
            ContenderInput::Release => self.release(now),
        }
        self.proceed(now);
    }

    /// The next output.
    #[must_use]
    pub(crate) fn poll(&mut self) -> Option<ContenderOutput> {
        self.outputs.pop_front()
    }

    /// When to send [`ContenderInput::Tick`], unless another input comes first. `None` only when
    /// idle, or lost and not yet released.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let limit = self.limit();
        if self.outstanding.is_some() {
            return limit;
        }
        self.agenda().iter().flatten().map(|(due, _)| *due).chain(limit).min()
    }

    /// Whether the contender has no rows and nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether it is acquiring: announced, and neither in nor on its way out.
    pub(crate) fn is_acquiring(&self) -> bool {
        match &self.state {
            State::Announcing(..)
            | State::Looking(_)
            | State::TakingTicket(..)
            | State::Settling(..)
            | State::Waiting(..) => true,
            State::Idle | State::Held(_) | State::Lost | State::Releasing { .. } => false,
        }
    }

    /// The contenders that hold the object or are ahead, as of the last whole read.
    pub(crate) fn ahead(&self) -> &[SeenContender] {
        &self.ahead
    }

    /// The claim of a holder, as its rows state it from the first renewal on.
    pub(crate) fn held_claim(&self) -> Option<&Claim> {
        self.held_entry().map(|entry| &entry.claim)
    }

    /// How far the stamps of this contender are above those of its client.
    pub(crate) fn raised_by(&self) -> i64 {
        self.raised
    }

    /// The lease of a holder.
    pub(crate) fn held_lease(&self) -> Option<Lease> {
        self.held_entry().map(|entry| entry.lease)
    }

    /// The terms on which a holder's rows are written.
    ///
    /// # Panics
    ///
    /// Unless it holds.
    pub(crate) fn held_terms(&self) -> LeaseTerms {
        self.held_entry().expect("it is held").acquire.terms
    }

    fn held_entry(&self) -> Option<&Entry> {
        match &self.state {
            State::Held(entry) => Some(entry),
            State::Idle
            | State::Announcing(..)
            | State::Looking(_)
            | State::TakingTicket(..)
            | State::Settling(..)
            | State::Waiting(..)
            | State::Lost
            | State::Releasing { .. } => None,
        }
    }

    // Beginning and ending a round.

    fn announce(&mut self, now: Now, acquire: Acquire) {
        let claim = Claim {
            contender: self.id,
            // Stamps only grow within a client, and a round requires no more.
            round: now.stamp,
            mode: acquire.mode,
            ticket: None,
            owner: Arc::clone(&acquire.owner),
            held_since: None,
        };
        let attempt = Attempt::put(now, &claim, acquire.terms);
        self.enter(State::Announcing(acquire, claim, attempt));
    }

    fn hold(&mut self, now: Now, mut entry: Entry) {
        entry.grant(now);
        self.event(ContenderEvent::Held { lease: entry.lease, terms: entry.acquire.terms });
        self.enter(State::Held(entry));
    }

    /// A write on earlier terms is given up: it may still be applied, but has a smaller stamp than
    /// the one on these terms.
    fn reassign(&mut self, assignment: Assignment) {
        let State::Held(entry) = &mut self.state else {
            return;
        };
        let is_writing = |outstanding: &mut Outstanding| outstanding.task == Task::Renew;
        if entry.reassign(assignment) {
            self.outstanding.take_if(is_writing);
        }
    }

    fn release(&mut self, now: Now) {
        match &mut self.state {
            State::Idle => self.event(ContenderEvent::Released),
            State::Releasing { again, .. } => *again = None,
            State::Announcing(..)
            | State::Looking(_)
            | State::TakingTicket(..)
            | State::Settling(..)
            | State::Waiting(..)
            | State::Held(_)
            | State::Lost => self.withdraw(now, None),
        }
    }

    fn fail(&mut self, now: Now, failure: Failure) {
        self.event(ContenderEvent::Failed(failure));
        self.withdraw(now, None);
    }

    fn taken(&mut self, now: Now) {
        self.event(ContenderEvent::Taken);
        self.withdraw(now, None);
    }

    /// The rows stay: a guest may still have its turn (rule R5 of design section 7).
    fn lose(&mut self, loss: Loss) {
        self.event(ContenderEvent::Lost(loss));
        self.enter(State::Lost);
    }

    /// Deletes the rows, whatever is outstanding: the delete's stamp is above all others.
    fn withdraw(&mut self, now: Now, again: Option<Acquire>) {
        // A client that slept past every TTL may still send a write now.
        self.gone_by = self.gone_by.max(now.elapsed + TIME_IN_FLIGHT);
        let last_release = self.held_entry().and_then(|entry| entry.last_release(now));
        let change =
            Change::Delete { contender: self.id, revoked: self.revoked_row_seen, last_release };
        self.enter(State::Releasing { delete: Write { stamp: now.stamp, change }, again });
    }

    /// The rows are certainly gone.
    fn gone(&mut self, now: Now, again: Option<Acquire>) {
        self.revoked_row_seen = false;
        self.enter(State::Idle);
        match again {
            Some(acquire) => self.announce(now, acquire),
            None => self.event(ContenderEvent::Released),
        }
    }

    /// Begins a new state at once; it supersedes the outstanding operation.
    fn enter(&mut self, state: State) {
        self.state = state;
        self.pace = Pace::default();
        self.outstanding = None;
    }

    fn event(&mut self, event: ContenderEvent) {
        self.outputs.push_back(ContenderOutput::Event(event));
    }

    // Changes by time alone.

    fn check_limit(&mut self, now: Now) {
        if self.limit().is_none_or(|limit| now.elapsed < limit) {
            return;
        }
        if SeededBug::LateRenewalCounts.is_planted() && self.is_renewing() {
            return;
        }
        match &mut self.state {
            State::Idle | State::Lost => unreachable!("these states have no limit"),
            State::Held(entry) => {
                let loss = entry.revoked.take().map_or(Loss::Expired, Loss::Revoked);
                self.lose(loss);
            }
            State::Releasing { again, .. } => {
                let again = again.take();
                self.gone(now, again);
            }
            State::Waiting(entry, _) if entry.lease.is_valid(now.elapsed) => self.taken(now),
            // Nothing is held yet: a fresh round costs the place in the queue, not safety.
            State::Announcing(acquire, ..)
            | State::Looking(Entry { acquire, .. })
            | State::TakingTicket(Entry { acquire, .. }, _)
            | State::Settling(Entry { acquire, .. }, _)
            | State::Waiting(Entry { acquire, .. }, _) => {
                let again = acquire.clone();
                self.withdraw(now, Some(again));
            }
        }
    }

    /// Whether a holder's renewal awaits its answer.
    fn is_renewing(&self) -> bool {
        let task = self.outstanding.as_ref().map(|outstanding| outstanding.task);
        matches!(self.state, State::Held(_)) && task == Some(Task::Renew)
    }

    /// When the state ends by time alone.
    fn limit(&self) -> Option<Duration> {
        match &self.state {
            State::Idle | State::Lost => None,
            State::Announcing(acquire, _, attempt) => {
                Some(acquire.terms.deadline(attempt.first_try))
            }
            State::Looking(entry)
            | State::TakingTicket(entry, _)
            | State::Settling(entry, _)
            | State::Held(entry) => Some(entry.lease.deadline()),
            State::Waiting(entry, queue) => Some(match entry.acquire.patience {
                Patience::Wait => entry.lease.deadline(),
                Patience::Try => entry.lease.deadline().min(queue.choosing_until()),
            }),
            State::Releasing { .. } => Some(self.gone_by),
        }
    }

    // What to do next.

    fn proceed(&mut self, now: Now) {
        if self.outstanding.is_some() {
            return;
        }
        let agenda = self.agenda();
        if let Some((_, task)) = agenda.iter().flatten().find(|(due, _)| *due <= now.elapsed) {
            self.issue(now, *task);
        }
    }

    /// The next tasks and when they are due, the more urgent one first.
    fn agenda(&self) -> [Option<(Duration, Task)>; 2] {
        let step = match &self.state {
            State::Idle | State::Held(_) | State::Lost => None,
            State::Announcing(..) => Some(Task::Announce),
            State::Looking(_) => Some(Task::Look),
            State::TakingTicket(..) => Some(Task::TakeTicket),
            State::Settling(..) => Some(Task::Settle),
            State::Waiting(_, queue) => Some(Task::Ask(queue.question())),
            State::Releasing { .. } => Some(Task::Delete),
        };
        [self.renewal(), step.map(|task| (self.pace.not_before, task))]
    }

    /// Nothing is renewed in the doorway: its writes renew the rows by themselves.
    fn renewal(&self) -> Option<(Duration, Task)> {
        let entry = match &self.state {
            State::Settling(entry, _) | State::Waiting(entry, _) | State::Held(entry) => entry,
            State::Idle
            | State::Announcing(..)
            | State::Looking(_)
            | State::TakingTicket(..)
            | State::Lost
            | State::Releasing { .. } => return None,
        };
        // While waiting, the rows are always renewed.
        let renews = entry.renews() || !matches!(self.state, State::Held(_));
        let (due, step) = if renews { entry.renewal_step() } else { entry.reading_step()? };
        let task = match step {
            RenewalStep::Check => Task::Check,
            RenewalStep::Write => Task::Renew,
            RenewalStep::Verify => Task::Verify,
        };
        Some((due, task))
    }

    fn with_held(&mut self, change: impl FnOnce(&mut Entry)) {
        if let State::Held(entry) = &mut self.state {
            change(entry);
        }
    }

    fn issue(&mut self, now: Now, task: Task) {
        self.last_op = self.last_op.next();
        let op = self.last_op;
        self.outstanding = Some(Outstanding { op, task, sent: now.elapsed });
        let write = self.written_by(now, task);
        let read = self.read_by(task);
        self.outputs.push_back(match (write, read) {
            (Some(write), Some(read)) => ContenderOutput::Exchange { op, write, read },
            (Some(write), None) => ContenderOutput::Write { op, write },
            (None, Some(read)) => ContenderOutput::Read { op, read },
            (None, None) => unreachable!("each operation writes or reads"),
        });
    }

    /// What an operation writes.
    fn written_by(&mut self, now: Now, task: Task) -> Option<Write> {
        match task {
            Task::Announce | Task::TakeTicket | Task::Delete | Task::Renew => {
                Some(self.write(now, task))
            }
            Task::Ask(_) if self.exchanges && !SeededBug::WaiterOnlyReads.is_planted() => {
                Some(self.write(now, task))
            }
            Task::Look | Task::Settle | Task::Ask(_) | Task::Check | Task::Verify => None,
        }
    }

    /// What it reads.
    fn read_by(&mut self, task: Task) -> Option<Read> {
        match task {
            Task::Announce | Task::TakeTicket => self.exchanges.then_some(Read::Object),
            Task::Delete | Task::Renew => None,
            Task::Look | Task::Settle | Task::Ask(Question::All) => Some(Read::Object),
            Task::Ask(Question::Present(contender)) => Some(Read::Entering(contender)),
            Task::Ask(Question::Front) => Some(self.front()),
            Task::Check => {
                self.renewing_entry().reading(RenewalStep::Check);
                Some(Read::Contender(self.id))
            }
            Task::Verify => {
                self.renewing_entry().reading(RenewalStep::Verify);
                // A holder looks for other holders.
                let held = matches!(self.state, State::Held(_));
                Some(if held { Read::Object } else { Read::Contender(self.id) })
            }
        }
    }

    /// The read of the own rows and of all that are ahead.
    fn front(&self) -> Read {
        let State::Waiting(_, queue) = &self.state else {
            unreachable!("only a waiter asks");
        };
        queue.front().expect("it is asked for because they are few")
    }

    /// The write of the present state. Notes until when it may leave rows in the database.
    fn write(&mut self, now: Now, task: Task) -> Write {
        let (write, terms) = match &mut self.state {
            State::Announcing(acquire, _, attempt) => (attempt.write.clone(), acquire.terms),
            State::TakingTicket(entry, attempt) => (attempt.write.clone(), entry.acquire.terms),
            State::Waiting(entry, _) if matches!(task, Task::Ask(_)) => {
                (entry.acknowledged_write(), entry.acquire.terms)
            }
            State::Settling(entry, _) | State::Waiting(entry, _) | State::Held(entry) => {
                (entry.renewal_write(), entry.acquire.terms)
            }
            State::Releasing { delete, .. } => return delete.clone(),
            State::Idle | State::Looking(_) | State::Lost => {
                unreachable!("these states write nothing")
            }
        };
        self.gone_by = self.gone_by.max(terms.gone_by(now.elapsed));
        write
    }

    fn take_outstanding(&mut self, op: OpId) -> Option<Outstanding> {
        self.outstanding.take_if(|outstanding| outstanding.op == op)
    }
}
