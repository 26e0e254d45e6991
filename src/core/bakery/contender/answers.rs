//! Handles the answers to a contender's operations.

use std::time::Duration;

use super::super::admission::{Denial, Snapshot};
use super::super::entry::{BACKOFF_MAX, Entry};
use super::super::io::{
    Acquire, ContenderEvent, Failure, Loss, Now, Patience, ReadFailure, WriteOutcome,
};
use super::super::queue::{Question, Queue, within_patience};
use super::super::row::{Revocation, Statics, StoredRow};
use super::super::seeded_bug::SeededBug;
use super::super::sweep::{self, MARK_MAX};
use super::{Attempt, Contender, Outstanding, State, Task};

/// The longest pause after a whole read that failed, in times of what it took: 16 s after the
/// second that a try may take.
const PAUSE_PER_FAILED_READ: u32 = 16;

impl Contender {
    /// Handles the answer to a write, or to an exchange whose write is not acknowledged.
    pub(super) fn written(&mut self, now: Now, task: Task, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Applied => self.applied(now, task),
            WriteOutcome::NotApplied | WriteOutcome::Unknown => {
                self.back_off(now, task, BACKOFF_MAX);
            }
            WriteOutcome::Rejected => self.rejected(now, task),
        }
    }

    /// Handles the answer to a read.
    pub(super) fn read(
        &mut self,
        now: Now,
        answered: &Outstanding,
        rows: Result<Vec<StoredRow>, ReadFailure>,
        statics: Statics,
    ) {
        match rows {
            Ok(rows) => self.seen(now, answered, &Snapshot::of(&rows).with(statics)),
            Err(ReadFailure::Failed) => {
                self.back_off(now, answered.task, longest_pause(now, answered));
            }
            // What was exchanged is written, so there are rows to delete.
            Err(ReadFailure::Rejected)
                if matches!(answered.task, Task::Announce | Task::TakeTicket) =>
            {
                self.fail(now, Failure::Rejected);
            }
            Err(ReadFailure::Rejected) => self.rejected(now, answered.task),
        }
    }

    fn applied(&mut self, now: Now, task: Task) {
        if task == Task::Renew {
            return self.renewed(now);
        }
        match (task, std::mem::replace(&mut self.state, State::Idle)) {
            (Task::Announce, State::Announcing(acquire, claim, attempt)) => {
                self.enter(State::Looking(Entry::announced(acquire, claim, &attempt)));
            }
            (Task::TakeTicket, State::TakingTicket(entry, attempt)) => {
                self.ticket_taken(now, entry, &attempt);
            }
            (Task::Delete, State::Releasing { again, .. }) => self.gone(now, again),
            (task, state) => unreachable!("{task:?} is not written in {state:?}"),
        }
    }

    fn seen(&mut self, now: Now, answered: &Outstanding, snapshot: &Snapshot) {
        self.revoked_row_seen |= snapshot.has_revoked_row(self.id);
        let task = match answered.task {
            Task::Check => return self.checked(now, snapshot),
            Task::Verify => return self.verified(now, snapshot),
            // What was exchanged is written, and is the next read as well.
            Task::Announce if self.exchanges => {
                self.applied(now, Task::Announce);
                Task::Look
            }
            Task::TakeTicket if self.exchanges => {
                self.applied(now, Task::TakeTicket);
                Task::Settle
            }
            Task::Announce | Task::TakeTicket | Task::Delete | Task::Renew => {
                unreachable!("these are written")
            }
            task @ (Task::Look | Task::Settle | Task::Ask(_)) => task,
        };
        match (task, std::mem::replace(&mut self.state, State::Idle)) {
            (Task::Look, State::Looking(entry)) => self.looked(now, entry, snapshot),
            (Task::Settle, State::Settling(entry, doorway)) => {
                self.settled(now, entry, doorway, snapshot);
            }
            (Task::Ask(question), State::Waiting(entry, queue)) => {
                let round_trip = now.elapsed - answered.sent;
                self.asked(now, entry, queue, question, snapshot, round_trip);
            }
            (task, state) => unreachable!("{task:?} is not read in {state:?}"),
        }
    }

    fn looked(&mut self, now: Now, mut entry: Entry, snapshot: &Snapshot) {
        // First: below it a sweep may have hidden the own row.
        if let Some(mark) = snapshot.mark_from(entry.claim.round) {
            return self.meet_mark(now, entry, mark);
        }
        if let Err(denial) = snapshot.shows(&entry.claim) {
            return self.fail(now, denial.into());
        }
        let mode = entry.acquire.mode;
        let blockers = snapshot.blockers_before_ticket(self.id, mode);
        self.ahead = blockers.contenders();
        if blockers.admit(mode) {
            return self.hold(now, entry);
        }
        if entry.acquire.patience == Patience::Try && !blockers.queue_admits(mode) {
            return self.taken(now);
        }
        let Some(ticket) = snapshot.largest_ticket().checked_add(1) else {
            return self.fail(now, Failure::NoTicketLeft);
        };
        entry.claim.ticket = Some(ticket);
        let attempt = Attempt::put(now, &entry.claim, entry.acquire.terms);
        self.enter(State::TakingTicket(entry, attempt));
    }

    /// Begins a new round above the mark, which hides none of its rows, however wrong the clock of
    /// the client was that wrote it.
    fn meet_mark(&mut self, now: Now, entry: Entry, mark: i64) {
        if mark > MARK_MAX {
            let ahead = mark.saturating_sub(now.stamp).max(0);
            let ahead = Duration::from_micros(ahead.unsigned_abs());
            return self.fail(now, Failure::MarkOutOfReach { ahead });
        }
        if !SeededBug::NextRoundBelowMark.is_planted() {
            let raise = sweep::raise_above(mark, entry.claim.round, now.stamp);
            self.raised = self.raised.saturating_add(raise);
        }
        self.withdraw(now, Some(entry.acquire));
    }

    fn ticket_taken(&mut self, now: Now, mut entry: Entry, attempt: &Attempt) {
        entry.extend(attempt, now.elapsed);
        let doorway = entry.doorway(now.elapsed);
        self.enter(State::Settling(entry, doorway));
    }

    fn settled(&mut self, now: Now, entry: Entry, doorway: Duration, snapshot: &Snapshot) {
        if let Err(denial) = snapshot.shows(&entry.claim) {
            return self.fail(now, denial.into());
        }
        let (place, mode) = (entry.place(), entry.acquire.mode);
        let queue = Queue::new(place, mode, snapshot, now.elapsed, doorway);
        let queue = Box::new(queue.with_front_max(self.front_max));
        self.ahead = queue.blockers().contenders();
        if queue.admits() {
            self.hold(now, entry);
        } else {
            let pause = queue.first_pause(now.elapsed, now.jitter);
            self.wait(now, entry, queue, pause);
        }
    }

    fn asked(
        &mut self,
        now: Now,
        mut entry: Entry,
        mut queue: Box<Queue>,
        question: Question,
        snapshot: &Snapshot,
        round_trip: Duration,
    ) {
        let one_left = match question {
            Question::Present(contender) => {
                let gone = queue.answered(contender, snapshot, now.elapsed);
                if gone {
                    queue.found_gone(now.elapsed, round_trip);
                }
                if SeededBug::OwnRowsUnread.is_planted() && queue.admits() {
                    return self.hold(now, entry);
                }
                gone
            }
            Question::Front | Question::All => {
                if let Err(denial) = snapshot.shows(&entry.claim)
                    && !SeededBug::OwnRowsUnread.is_planted()
                {
                    return self.leave_line(now, entry.acquire, denial);
                }
                let one_left = queue.confirmed(snapshot, now.elapsed);
                if one_left && question == Question::Front {
                    queue.found_gone(now.elapsed, round_trip);
                }
                self.ahead = queue.blockers().contenders();
                // Only a read that shows its own rows lets a contender in.
                if queue.admits() {
                    entry.succeed(queue.succession(now.elapsed));
                    return self.hold(now, entry);
                }
                // It has just seen all that it would ask for again.
                one_left && queue.front().is_none()
            }
        };
        let pause = if one_left {
            Duration::ZERO
        } else {
            queue.pause(now.elapsed, round_trip, now.jitter)
        };
        self.wait(now, entry, queue, pause);
    }

    /// Continues with the queue after a pause, unless a try sees that it would wait for a holder.
    fn wait(&mut self, now: Now, entry: Entry, queue: Box<Queue>, pause: Duration) {
        if entry.acquire.patience == Patience::Try && queue.is_taken() {
            self.taken(now);
        } else {
            let pause = within_patience(pause, now.elapsed, entry.acquire.gives_up);
            self.enter(State::Waiting(entry, queue));
            self.pace.pause(now, pause);
        }
    }

    /// Handles the acknowledgement of a renewal.
    fn renewed(&mut self, now: Now) {
        let entry = self.renewing_entry();
        entry.renewed(now.elapsed);
        let (lease, terms) = (entry.lease, entry.acquire.terms);
        if matches!(self.state, State::Held(_)) {
            self.event(ContenderEvent::Renewed { lease, terms });
        }
    }

    /// Handles a read of the contender's own rows, before a renewal or at the holder's request.
    fn checked(&mut self, now: Now, snapshot: &Snapshot) {
        if SeededBug::RenewalUnread.is_planted() || self.stands(now, snapshot) {
            let held = matches!(self.state, State::Held(_));
            let entry = self.renewing_entry();
            // While waiting, the rows are always renewed.
            let renews = entry.renews() || !held;
            entry.checked(now, renews);
            self.confirmed();
        }
    }

    /// Handles the read after a renewal.
    fn verified(&mut self, now: Now, snapshot: &Snapshot) {
        if !self.stands(now, snapshot) {
            return;
        }
        let later_holder = self.held_claim().and_then(|mine| snapshot.later_holder(mine));
        if let Some(holder) = later_holder {
            return self.lose(Loss::Conflict { holder });
        }
        self.renewing_entry().verified();
        self.confirmed();
    }

    /// Whether the contender's own rows are intact. If not, the round ends. A holder that is asked
    /// to leave keeps its rows until it is released, or its lease ends.
    fn stands(&mut self, now: Now, snapshot: &Snapshot) -> bool {
        let held = matches!(self.state, State::Held(_));
        let entry = self.renewing_entry();
        if !held {
            let Err(denial) = snapshot.shows(&entry.claim) else {
                return true;
            };
            let acquire = entry.acquire.clone();
            self.leave_line(now, acquire, denial);
            return false;
        }
        match snapshot.shows_holder(&entry.claim) {
            Ok(None) => true,
            Ok(Some(revocation)) => {
                self.ask_to_leave(now, revocation);
                matches!(self.state, State::Held(_))
            }
            Err(denial) => {
                self.lose(denial.into());
                false
            }
        }
    }

    fn ask_to_leave(&mut self, now: Now, revocation: &Revocation) {
        let entry = self.renewing_entry();
        if entry.revoked.is_none() {
            entry.revoked = Some(revocation.clone());
            self.event(ContenderEvent::Expiring(revocation.clone()));
        }
        if SeededBug::RevokedDeletesRows.is_planted() {
            self.withdraw(now, None);
        }
    }

    /// A waiter whose rows are missing begins a new round. That costs its place in the queue, but
    /// its caller asked for the lock, not for a place.
    fn leave_line(&mut self, now: Now, acquire: Acquire, denial: Denial) {
        match denial {
            Denial::RowMissing => self.withdraw(now, Some(acquire)),
            Denial::Revoked(_) => self.fail(now, denial.into()),
        }
    }

    fn confirmed(&mut self) {
        let held = matches!(self.state, State::Held(_));
        if held && self.renewing_entry().take_confirmed() {
            self.event(ContenderEvent::Confirmed);
        }
    }

    fn back_off(&mut self, now: Now, task: Task, longest: Duration) {
        let pace = match task {
            Task::Check | Task::Renew | Task::Verify => self.renewing_entry().renewal_pace(),
            Task::Announce
            | Task::Look
            | Task::TakeTicket
            | Task::Settle
            | Task::Ask(_)
            | Task::Delete => &mut self.pace,
        };
        pace.back_off(now, longest);
        if task == Task::Renew {
            self.renewing_entry().give_up_write();
        }
    }

    /// Handles a refused statement: a retry would be refused again.
    fn rejected(&mut self, now: Now, task: Task) {
        match self.state {
            State::Idle | State::Lost => unreachable!("nothing is outstanding in these states"),
            // A holder keeps the object until its lease ends, and rows must be deleted in any case.
            State::Held(_) | State::Releasing { .. } => self.back_off(now, task, BACKOFF_MAX),
            // No earlier try failed, so none is in flight: there are no rows to delete.
            State::Announcing(..) if self.pace.is_fresh() => {
                self.event(ContenderEvent::Failed(Failure::Rejected));
                self.gone(now, None);
            }
            State::Announcing(..)
            | State::Looking(_)
            | State::TakingTicket(..)
            | State::Settling(..)
            | State::Waiting(..) => self.fail(now, Failure::Rejected),
        }
    }

    /// The entry of a state that renews.
    pub(super) fn renewing_entry(&mut self) -> &mut Entry {
        match &mut self.state {
            State::Settling(entry, _) | State::Waiting(entry, _) | State::Held(entry) => entry,
            State::Idle
            | State::Announcing(..)
            | State::Looking(_)
            | State::TakingTicket(..)
            | State::Lost
            | State::Releasing { .. } => unreachable!("these states renew nothing"),
        }
    }
}

/// The longest pause after a read that failed: longer after a whole read of a contender that comes.
/// Where very many come at once, theirs keep the nodes busy for longer than a request may take, and
/// would do so for ever if they were made again every half second. One that fails at once costs
/// nothing. The last one of a waiter is excepted: all behind it wait for that.
fn longest_pause(now: Now, answered: &Outstanding) -> Duration {
    if matches!(answered.task, Task::Look | Task::Settle) {
        BACKOFF_MAX.max((now.elapsed - answered.sent) * PAUSE_PER_FAILED_READ)
    } else {
        BACKOFF_MAX
    }
}
