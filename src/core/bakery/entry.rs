//! A contender's own rows in one round: their content, their lease and their renewal (design
//! section 5).

#[cfg(instrumented)]
mod fingerprint;

use std::sync::Arc;
use std::time::Duration;

use super::admission::QueuePosition;
use super::io::{Acquire, Assignment, Change, Now, Write};
use super::lease::{Lease, LeaseTerms};
use super::queue::Succession;
use super::row::{Claim, ContenderId, LastRelease, MICROS_PER_MILLI, Mode, Revocation};
use super::seeded_bug::SeededBug;

/// A round whose `entering::` row is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) acquire: Acquire,
    pub(super) claim: Claim,
    /// The stamp of the last acknowledged write.
    pub(super) stamp: i64,
    pub(super) lease: Lease,
    renewal: Renewal,
    announced: Duration,
    /// How it was let in, if it had waited: its release reports that to waiters.
    succession: Option<Succession>,
    /// Who asked the holder to leave, if one did: the lease is not renewed any more.
    pub(super) revoked: Option<Revocation>,
    /// The object is idle: nothing is renewed until it is reassigned.
    rests: bool,
}

impl Entry {
    /// The entry once its announcement is acknowledged.
    pub(super) fn announced(acquire: Acquire, claim: Claim, announcement: &Attempt) -> Self {
        let announced = announcement.first_try;
        let lease = Lease::new(acquire.terms, announced);
        let renewal = Renewal::resting();
        let (stamp, succession, revoked, rests) = (announcement.write.stamp, None, None, false);
        Entry { acquire, claim, stamp, lease, renewal, announced, succession, revoked, rests }
    }

    /// The place in the queue.
    pub(super) fn place(&self) -> QueuePosition {
        let ticket = self.claim.ticket.expect("a place is asked for once a ticket is drawn");
        QueuePosition { ticket, contender: self.claim.contender }
    }

    /// The time from the announcement to `now`.
    pub(super) fn doorway(&self, now: Duration) -> Duration {
        now - self.announced
    }

    /// Grants the object from `now` on. A renewal in progress starts over, because a holder's rows
    /// state since when it holds.
    pub(super) fn grant(&mut self, now: Now) {
        self.claim.held_since = Some(now.stamp / MICROS_PER_MILLI);
        self.renewal.stage = Stage::Resting;
    }

    /// Notes how it is let in after it has waited in the queue.
    pub(super) fn succeed(&mut self, succession: Succession) {
        self.succession = Some(succession);
    }

    /// What its release at `now` reports to waiters; nothing if it did not wait itself, or if
    /// others may hold at the same time: then the queue does not move one by one. Reported by each
    /// holder, it would make an uncontended release, one delete, a tenth slower.
    pub(super) fn last_release(&self, now: Now) -> Option<LastRelease> {
        let succession = self.succession.filter(|_| self.acquire.mode == Mode::Exclusive)?;
        let Claim { contender: ContenderId { client, .. }, round, .. } = self.claim;
        let stamp = succession.stamp_after().max(now.stamp);
        Some(LastRelease { client, round, handoff: succession.handoff(now.elapsed), stamp })
    }

    /// Handles the acknowledgement of a write of these rows, which begins a new lease.
    pub(super) fn extend(&mut self, acknowledged: &Attempt, now: Duration) {
        let lease = self.lease.renewed(self.acquire.terms, acknowledged.first_try, now);
        self.lease = lease.expect("no answer is taken once the lease is over");
        self.stamp = acknowledged.write.stamp;
    }

    /// The last acknowledged write, which a waiter makes again on each replica that it asks
    /// (rule M11 of the design of masters).
    pub(super) fn acknowledged_write(&self) -> Write {
        let (claim, ttl_seconds) = (self.claim.clone(), self.acquire.terms.ttl_seconds());
        Write { stamp: self.stamp, change: Change::Put { claim, ttl_seconds } }
    }

    /// When to retry a failed step of the renewal.
    pub(super) fn renewal_pace(&mut self) -> &mut Pace {
        &mut self.renewal.pace
    }

    /// The next step of the renewal, and when it is due.
    pub(super) fn renewal_step(&self) -> (Duration, RenewalStep) {
        let Renewal { stage, pace, asked } = &self.renewal;
        match stage {
            Stage::Resting if asked.confirms() => (pace.not_before, RenewalStep::Check),
            Stage::Resting => (self.renewal_due().max(pace.not_before), RenewalStep::Check),
            Stage::Checking => (pace.not_before, RenewalStep::Check),
            Stage::Writing(_) => (pace.not_before, RenewalStep::Write),
            Stage::Verifying => (pace.not_before, RenewalStep::Verify),
        }
    }

    /// When to read rows that are not renewed: if the holder requested a read, or after a renewal
    /// for an earlier holder.
    pub(super) fn reading_step(&self) -> Option<(Duration, RenewalStep)> {
        let Renewal { stage, pace, asked } = &self.renewal;
        let step = match stage {
            Stage::Verifying => RenewalStep::Verify,
            Stage::Checking => RenewalStep::Check,
            Stage::Resting | Stage::Writing(_) if asked.confirms() => RenewalStep::Check,
            Stage::Resting | Stage::Writing(_) => return None,
        };
        Some((pace.not_before, step))
    }

    /// Holds on other terms from now on. Returns whether a write in progress is given up. On
    /// another TTL the rows are read and written again; without renewal the write would be retried
    /// long after the rows were read.
    pub(super) fn reassign(&mut self, assignment: Assignment) -> bool {
        let Assignment { terms, renew, owner, shares, at_once } = assignment;
        let is_rewritten = terms != self.acquire.terms || at_once;
        let gives_up = matches!(self.renewal.stage, Stage::Writing(_)) && (is_rewritten || !renew);
        (self.acquire.terms, self.acquire.renew, self.rests) = (terms, renew, false);
        self.acquire.owner = Arc::clone(&owner);
        self.claim.owner = owner;
        if shares {
            (self.acquire.mode, self.claim.mode) = (Mode::Shared, Mode::Shared);
        }
        if is_rewritten {
            self.renew_now();
        }
        if gives_up {
            self.renewal.stage = if renew { Stage::Checking } else { Stage::Resting };
        }
        gives_up
    }

    /// Renews nothing until it is reassigned. A write that was not sent, or whose try failed, is
    /// given up: it would be tried again long after the rows were read.
    pub(super) fn rest(&mut self, is_writing: bool) {
        self.rests = !SeededBug::KeptPlaceRenewed.is_planted();
        if SeededBug::KeptWithoutLease.is_planted() {
            self.lease = Lease::sublease(self.announced, Duration::from_secs(1_000_000));
        }
        if !is_writing {
            self.give_up_write();
        }
    }

    /// Gives up a write whose try has failed, unless it is to be tried again.
    pub(super) fn give_up_write(&mut self) {
        if self.rests && matches!(self.renewal.stage, Stage::Writing(_)) {
            self.renewal.stage = Stage::Resting;
        }
    }

    /// Whether a holder renews its lease.
    pub(super) fn renews(&self) -> bool {
        let ends = self.revoked.is_some() && !SeededBug::RevokedRenews.is_planted();
        self.acquire.renew && !ends && !self.rests
    }

    /// Makes the renewal due now.
    pub(super) fn renew_now(&mut self) {
        self.renewal.asked.renewal = true;
    }

    /// Requests a read of the rows that begins after this call.
    pub(super) fn confirm_now(&mut self) {
        self.renewal.asked.confirmation = Confirmation::Asked;
    }

    /// Notes that a read of the rows begins.
    pub(super) fn reading(&mut self, step: RenewalStep) {
        if step == RenewalStep::Check {
            self.renewal.stage = Stage::Checking;
        }
        if self.renewal.asked.confirms() {
            self.renewal.asked.confirmation = Confirmation::Reading;
        }
    }

    /// Whether a requested read was answered and no other was requested since it began.
    pub(super) fn take_confirmed(&mut self) -> bool {
        let asked = &mut self.renewal.asked;
        let confirmed = asked.confirmation == Confirmation::Reading;
        if confirmed {
            asked.confirmation = Confirmation::NotAsked;
        }
        confirmed
    }

    /// Handles a read that shows the rows intact. Now a due renewal may write them: whole, with a
    /// new stamp. A read that was only requested ends here.
    pub(super) fn checked(&mut self, now: Now, renews: bool) {
        self.renewal.pace = Pace::default();
        let due = renews && self.renewal_due() <= now.elapsed;
        self.renewal.stage = if due {
            self.renewal.asked.renewal = false;
            Stage::Writing(Attempt::put(now, &self.claim, self.acquire.terms))
        } else {
            Stage::Resting
        };
    }

    /// The write of the renewal in progress. Once it is sent, the rows may end with its TTL, even
    /// if that is shorter than the one before and the write is never acknowledged (rule R5 of
    /// design section 7).
    pub(super) fn renewal_write(&mut self) -> Write {
        let Stage::Writing(attempt) = &self.renewal.stage else {
            unreachable!("rows are written once they were read");
        };
        self.lease = self.lease.until(self.acquire.terms.deadline(attempt.first_try));
        attempt.write.clone()
    }

    /// Handles the acknowledgement of the renewal in progress.
    pub(super) fn renewed(&mut self, now: Duration) {
        let Stage::Writing(attempt) = std::mem::replace(&mut self.renewal.stage, Stage::Verifying)
        else {
            unreachable!("a renewal was acknowledged, so it was being written");
        };
        self.renewal.pace = Pace::default();
        self.extend(&attempt, now);
    }

    /// Ends a renewal that was read back.
    pub(super) fn verified(&mut self) {
        self.renewal.stage = Stage::Resting;
        self.renewal.pace = Pace::default();
    }

    fn renewal_due(&self) -> Duration {
        if self.renewal.asked.renewal {
            Duration::ZERO
        } else {
            self.lease.renewal_due(self.acquire.terms)
        }
    }
}

/// A write that is retried with one stamp until it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) write: Write,
    pub(super) first_try: Duration,
}

impl Attempt {
    /// The first try to write a claim.
    pub(super) fn put(now: Now, claim: &Claim, terms: LeaseTerms) -> Self {
        let change = Change::Put { claim: claim.clone(), ttl_seconds: terms.ttl_seconds() };
        Attempt { write: Write { stamp: now.stamp, change }, first_try: now.elapsed }
    }
}

/// The state of a lease's renewal.
#[derive(Clone, Debug)]
struct Renewal {
    stage: Stage,
    pace: Pace,
    asked: Asked,
}

/// What the holder requested before it is due.
#[derive(Clone, Debug, Default, Hash)]
struct Asked {
    renewal: bool,
    confirmation: Confirmation,
}

/// The state of a read that the holder requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Confirmation {
    #[default]
    NotAsked,
    /// Requested, and yet to begin.
    Asked,
    /// Begun.
    Reading,
}

impl Asked {
    /// Whether a requested read has yet to begin.
    fn confirms(&self) -> bool {
        self.confirmation == Confirmation::Asked
    }
}

impl Renewal {
    /// No renewal is in progress.
    fn resting() -> Self {
        Renewal { stage: Stage::Resting, pace: Pace::default(), asked: Asked::default() }
    }
}

#[derive(Clone, Debug)]
enum Stage {
    /// Nothing to do until the renewal is due.
    Resting,
    /// Reading the rows, which must be intact before they are written again: writing them unread
    /// would bring back rows that other contenders have seen gone.
    Checking,
    /// Writing the rows again.
    Writing(Attempt),
    /// Reading them back.
    Verifying,
}

/// The next step of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenewalStep {
    /// Read the rows.
    Check,
    /// Write them.
    Write,
    /// Read them back.
    Verify,
}

/// When a step may be taken, and how often it failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    pub(super) not_before: Duration,
    failures: u32,
}

/// The pause after a failed try, doubled each time up to a maximum, jittered by a quarter.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The maximum of most steps.
pub(super) const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// The maximum of any step, in doublings: 20 s.
const DOUBLINGS_MAX: u32 = 11;
const _: () = assert!(BACKOFF_MIN.as_millis() << DOUBLINGS_MAX > BACKOFF_MAX.as_millis());

impl Pace {
    /// Pauses after a failed step, longer each time: an overloaded database needs fewer requests.
    pub(super) fn back_off(&mut self, now: Now, longest: Duration) {
        let wait = BACKOFF_MIN * (1 << self.failures.min(DOUBLINGS_MAX));
        self.not_before = now.elapsed + wait.min(longest).mul_f64(0.75 + now.jitter / 2.0);
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether no try of the step has failed.
    pub(super) fn is_fresh(&self) -> bool {
        self.failures == 0
    }

    /// Repeats a step that brought nothing new after `pause`.
    pub(super) fn pause(&mut self, now: Now, pause: Duration) {
        self.not_before = now.elapsed + pause;
    }
}
