//! A contender of the shipped protocol, and its caller.
//!
//! Every pause is made nothing. Where leases never end, time can stand still: a contender always
//! has a request under way unless it is idle, or holds the lock.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::core::bakery::{
    Acquire, Change, Contender, ContenderEvent, ContenderInput, ContenderOutput, Fingerprint,
    Lease, LeaseTerms, Now, OpId, Read, Write, WriteOutcome,
};
use crate::scenario::LockRequest;
use crate::store::{Effects, id_of};

/// Of the stamps of a round: this many are kept free for it.
const STAMPS_OF_A_ROUND: i64 = 100;
/// Above the first stamps of a first round, and below those of a contender that began it again when
/// it looked.
pub(crate) const HORIZON: i64 = STAMPS_OF_A_ROUND + 5;
/// A contender leaves between two of its stamps room for another client's.
const BETWEEN_STAMPS: i64 = 2;
/// Above every other stamp of the round, so that rounds look alike however they went.
const STAMP_OF_A_RELEASE: i64 = STAMPS_OF_A_ROUND - 1;
/// Of a moment that wall clocks tell from the one before it. The rows say since when a holder holds
/// in thousands of stamps, so two that are let in at the same moment say the same.
const STAMPS_OF_A_MOMENT: i64 = 10_000;
/// Makes every pause nothing: a pause is lengthened by the half of it, from three quarters on.
const NO_PAUSE: f64 = -1.5;

/// A contender and its caller.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// `None` once it is dead.
    contender: Option<Contender>,
    index: usize,
    /// What it has asked for, and what is not answered yet.
    pub(crate) errand: Option<Errand>,
    pub(crate) rounds_left: u8,
    /// How often its next hold may be renewed.
    pub(crate) renewals_left: u8,
    pub(crate) removal: Removal,
    /// Whether it was let in although it was removed before.
    pub(crate) let_in_unseen: bool,
    exchanges: bool,
    front_max: usize,
    rounds_begun: i64,
    /// The stamp that is the name of its round.
    round: i64,
    last_stamp: i64,
    clock: Duration,
    /// What its wall clock says, in the units of stamps: none of them is below.
    wall_clock: i64,
    terms: LeaseTerms,
    lease: Option<Lease>,
    ticket: Option<i64>,
    leaving: bool,
    /// Its caller has the lock: it was granted, and neither lost nor released since.
    inside: bool,
    /// It was asked to leave while its caller had the lock.
    expiring: bool,
    /// It wrote its rows again after that.
    pub(crate) renewed_anyway: bool,
}

/// A request that is not answered.
#[expect(clippy::large_enum_variant, reason = "a search keeps fingerprints, and few of these")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errand {
    Write {
        op: OpId,
        write: Effects,
    },
    /// Each replica that answers makes the write first, if there is one.
    Read {
        op: OpId,
        read: Read,
        write: Option<Effects>,
        after_removal: bool,
    },
}

/// Whether another client removes the contender's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Removal {
    #[default]
    None,
    /// It is under way.
    Sent,
    /// It is acknowledged.
    Done,
}

/// What a contender does when it is told something.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) write: Option<Effects>,
    pub(crate) read: Option<Read>,
    pub(crate) events: Vec<ContenderEvent>,
}

impl Peer {
    pub(crate) fn new(index: usize, rounds: u8, renewals: u8) -> Self {
        Peer {
            contender: Some(Contender::new(id_of(index))),
            index,
            errand: None,
            rounds_left: rounds,
            renewals_left: renewals,
            removal: Removal::None,
            let_in_unseen: false,
            exchanges: false,
            front_max: 0,
            rounds_begun: 0,
            round: 0,
            last_stamp: 0,
            clock: Duration::ZERO,
            wall_clock: 0,
            // Longer than any search.
            terms: LeaseTerms::new(Duration::from_secs(1_000_000_000), Duration::from_secs(1)),
            lease: None,
            ticket: None,
            leaving: false,
            inside: false,
            expiring: false,
            renewed_anyway: false,
        }
    }

    /// The contender, with leases on these terms.
    pub(crate) fn on(self, terms: LeaseTerms) -> Self {
        Peer { terms, ..self }
    }

    /// The contender, in a store that writes and reads in one round trip if `exchanges`.
    pub(crate) fn exchanging(self, exchanges: bool) -> Self {
        let contender = self.contender.map(|contender| contender.exchanging(exchanges));
        Peer { contender, exchanges, ..self }
    }

    /// The contender, which asks for no more than this many of those ahead at once.
    pub(crate) fn with_front_max(self, front_max: usize) -> Self {
        let contender = self.contender.map(|contender| contender.with_front_max(front_max));
        Peer { contender, front_max, ..self }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.contender.is_none()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.contender.as_ref().is_some_and(Contender::is_idle)
    }

    pub(crate) fn holds(&self) -> bool {
        self.inside
    }

    /// Whether it may be told to leave.
    pub(crate) fn may_leave(&self) -> bool {
        !self.is_dead() && !self.is_idle() && !self.leaving
    }

    /// Whether its rows are being deleted.
    pub(crate) fn is_releasing(&self) -> bool {
        !self.is_idle() && self.leaving
    }

    /// Whether it wants nothing any more, or never will.
    pub(crate) fn is_done(&self) -> bool {
        self.is_dead() || (self.is_idle() && self.rounds_left == 0)
    }

    /// Whether it looks at the rows for the first time in its round.
    pub(crate) fn is_looking(&self) -> bool {
        let reads_all = matches!(self.errand, Some(Errand::Read { read: Read::Object, .. }));
        reads_all && self.ticket.is_none()
    }

    /// Whether it deletes its rows to announce itself once more.
    pub(crate) fn is_beginning_anew(&self) -> bool {
        let deletes =
            matches!(self.errand, Some(Errand::Write { write, .. }) if write.is_release());
        deletes && !self.leaving
    }

    /// Its ticket in this round.
    pub(crate) fn ticket(&self) -> Option<i64> {
        self.ticket
    }

    /// Whether it asks whether those ahead are still there.
    pub(crate) fn asks_others(&self) -> bool {
        match self.errand {
            Some(Errand::Read { read: Read::Contender(whose) | Read::Entering(whose), .. }) => {
                whose != id_of(self.index)
            }
            Some(Errand::Read { read: Read::Front { .. }, .. }) => true,
            Some(Errand::Read { read: Read::Object, .. } | Errand::Write { .. }) | None => false,
        }
    }

    /// Whether it reads its own rows and those of all blockers.
    pub(crate) fn asks_the_front(&self) -> bool {
        matches!(self.errand, Some(Errand::Read { read: Read::Front { .. }, .. }))
    }

    /// Whether it reads its own rows, before it writes them again.
    pub(crate) fn reads_own_rows(&self) -> bool {
        let own = Read::Contender(id_of(self.index));
        matches!(self.errand, Some(Errand::Read { read, .. }) if read == own)
    }

    /// The stamp that is the name of its round.
    pub(crate) fn round(&self) -> i64 {
        self.round
    }

    /// Above every stamp of the rows of this round, and below that of its release.
    pub(crate) fn stamp_of_revocation(&self) -> i64 {
        self.rounds_begun * STAMPS_OF_A_ROUND + STAMP_OF_A_RELEASE - 1
    }

    /// Its caller wants the lock.
    pub(crate) fn begin(&mut self, request: LockRequest) -> Reaction {
        self.rounds_left -= 1;
        self.rounds_begun += 1;
        self.last_stamp = self.last_stamp.max(self.rounds_begun * STAMPS_OF_A_ROUND);
        self.tell(ContenderInput::Acquire(Acquire {
            mode: request.mode,
            terms: self.terms,
            patience: request.patience,
            renew: true,
            gives_up: None,
            owner: "".into(),
        }))
    }

    /// Its caller gives the lock back, or gives up.
    pub(crate) fn leave(&mut self) -> Reaction {
        let errand = self.errand.take();
        let release = self.rounds_begun * STAMPS_OF_A_ROUND + STAMP_OF_A_RELEASE;
        self.last_stamp = self.last_stamp.max(release - BETWEEN_STAMPS);
        (self.leaving, self.inside, self.expiring) = (true, false, false);
        let reaction = self.tell(ContenderInput::Release);
        if reaction.write.is_none() {
            // A contender that begins again deletes its rows already, and continues with that.
            self.errand = errand;
        }
        reaction
    }

    /// Another state machine takes its place, and knows nothing of it.
    pub(crate) fn forget(&mut self) {
        let contender = Contender::new(id_of(self.index)).exchanging(self.exchanges);
        self.contender = Some(contender.with_front_max(self.front_max));
        self.errand = None;
        self.ticket = None;
        (self.leaving, self.inside, self.expiring) = (false, false, false);
    }

    pub(crate) fn die(&mut self) {
        *self = Peer { contender: None, ..Peer::new(self.index, 0, 0) };
    }

    /// Its clock says something else.
    pub(crate) fn set_clock(&mut self, now: Duration) {
        self.clock = now;
    }

    /// Its wall clock shows that another lock was granted, or how many seconds have passed.
    pub(crate) fn set_wall_clock(&mut self, moment: u64) {
        let moment = i64::try_from(moment).expect("a history is short");
        self.wall_clock = moment * STAMPS_OF_A_MOMENT;
    }

    /// Since when it holds, as its rows say from its next renewal on.
    pub(crate) fn held_since(&self) -> Option<i64> {
        self.contender.as_ref()?.held_claim()?.held_since
    }

    /// Whether it holds by its own clock.
    pub(crate) fn holds_at(&self, now: Duration) -> bool {
        self.holds() && self.lease.is_some_and(|lease| lease.is_valid(now))
    }

    /// Whether something is due.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let deadline = self.contender.as_ref().and_then(Contender::deadline);
        deadline.is_some_and(|deadline| deadline <= now)
    }

    /// It does what is due. A request that is not answered yet stays so, or another one follows.
    pub(crate) fn wake(&mut self) -> Reaction {
        self.tell(ContenderInput::Tick)
    }

    /// Time passes until something must be done.
    pub(crate) fn wait(&mut self) -> Reaction {
        let contender = self.contender.as_ref().expect("the dead do not wait");
        self.clock = contender.deadline().expect("a contender that is not idle has a deadline");
        self.errand = None;
        self.tell(ContenderInput::Tick)
    }

    /// Whether the end of its patience is near, as that of its lease never is.
    pub(crate) fn may_lose_patience(&self) -> bool {
        let deadline = self.contender.as_ref().and_then(Contender::deadline);
        deadline.is_some_and(|deadline| deadline < self.clock + Duration::from_secs(1))
    }

    /// It renews its hold now.
    pub(crate) fn renew(&mut self) -> Reaction {
        self.renewals_left -= 1;
        self.tell(ContenderInput::Renew)
    }

    /// Its write is acknowledged.
    pub(crate) fn acknowledged(&mut self) -> Reaction {
        let Some(Errand::Write { op, .. }) = self.errand else {
            unreachable!("only a write is acknowledged")
        };
        self.answered(ContenderInput::Written { op, outcome: WriteOutcome::Applied })
    }

    /// Its request is answered.
    pub(crate) fn answered(&mut self, answer: ContenderInput) -> Reaction {
        let after_removal = matches!(self.errand, Some(Errand::Read { after_removal: true, .. }));
        let held = self.holds();
        self.errand = None;
        let reaction = self.tell(answer);
        self.let_in_unseen |= after_removal && !held && self.holds();
        reaction
    }

    /// Another client removes its rows of a round.
    pub(crate) fn removed(&mut self, round: i64, removal: Removal) {
        if self.round() == round && !self.is_idle() && !self.is_dead() {
            self.removal = removal;
        }
    }

    fn tell(&mut self, input: ContenderInput) -> Reaction {
        let now = Now { elapsed: self.clock, stamp: self.next_stamp(), jitter: NO_PAUSE };
        let contender = self.contender.as_mut().expect("the dead are told nothing");
        contender.handle(now, input);
        let mut reaction = Reaction::default();
        self.take_all(&mut reaction);
        // Its runner releases what is lost at once: no guest has a turn here.
        let is_lost = reaction.events.iter().any(|event| matches!(event, ContenderEvent::Lost(_)));
        if let (true, Some(contender)) = (is_lost, &mut self.contender) {
            contender.handle(now, ContenderInput::Release);
            self.take_all(&mut reaction);
        }
        reaction
    }

    fn take_all(&mut self, reaction: &mut Reaction) {
        while let Some(output) = self.contender.as_mut().and_then(Contender::poll) {
            self.take(output, reaction);
        }
    }

    fn next_stamp(&self) -> i64 {
        (self.last_stamp + BETWEEN_STAMPS).max(self.wall_clock)
    }

    /// Notes what it writes.
    fn sends(&mut self, write: &Write) -> Effects {
        if let Change::Put { claim, .. } = &write.change {
            self.renewed_anyway |= self.expiring;
            self.ticket = claim.ticket;
            if self.round != claim.round {
                // Perhaps it found its rows missing, and begins again by itself.
                self.round = claim.round;
                self.removal = Removal::None;
            }
        }
        self.last_stamp = self.last_stamp.max(write.stamp);
        Effects::of(write)
    }

    fn take(&mut self, output: ContenderOutput, reaction: &mut Reaction) {
        match output {
            ContenderOutput::Write { op, write } => {
                let write = self.sends(&write);
                self.errand = Some(Errand::Write { op, write });
                reaction.write = Some(write);
            }
            ContenderOutput::Read { op, read } => {
                let after_removal = self.removal == Removal::Done;
                self.errand = Some(Errand::Read { op, read, write: None, after_removal });
                reaction.read = Some(read);
            }
            ContenderOutput::Exchange { op, write, read } => {
                let write = Some(self.sends(&write));
                let after_removal = self.removal == Removal::Done;
                self.errand = Some(Errand::Read { op, read, write, after_removal });
                (reaction.write, reaction.read) = (write, Some(read));
            }
            ContenderOutput::Event(event) => {
                match event {
                    ContenderEvent::Held { lease, .. } => {
                        (self.inside, self.lease) = (true, Some(lease));
                    }
                    ContenderEvent::Renewed { lease, .. } => self.lease = Some(lease),
                    ContenderEvent::Expiring(_) => self.expiring = true,
                    ContenderEvent::Confirmed => {}
                    ContenderEvent::Taken | ContenderEvent::Failed(_) | ContenderEvent::Lost(_) => {
                        (self.leaving, self.inside, self.expiring) = (true, false, false);
                    }
                    ContenderEvent::Released => {
                        self.leaving = false;
                        self.ticket = None;
                    }
                }
                reaction.events.push(event);
            }
        }
    }
}

/// How it stands, for people.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stands = match &self.contender {
            None => "dead",
            Some(contender) if contender.is_idle() => "idle",
            Some(_) if self.holds() => "HOLDS",
            Some(_) if self.leaving => "leaving",
            Some(_) => "waiting",
        };
        f.write_str(stands)?;
        if let Some(ticket) = self.ticket {
            write!(f, ", ticket {ticket}")?;
        }
        match self.errand {
            Some(Errand::Write { .. }) => f.write_str(", writes"),
            Some(Errand::Read { write: None, .. }) => f.write_str(", reads"),
            Some(Errand::Read { write: Some(_), .. }) => f.write_str(", writes and reads"),
            None => Ok(()),
        }
    }
}

/// All that decides what can follow.
impl Hash for Peer {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Peer {
            contender,
            index: _,
            errand,
            rounds_left,
            renewals_left,
            removal,
            let_in_unseen,
            // The same for all.
            exchanges: _,
            front_max: _,
            rounds_begun,
            round,
            last_stamp,
            clock,
            // Where it matters it is the same for all, or follows from the time.
            wall_clock: _,
            terms: _,
            // It says no more than the contender itself.
            lease: _,
            ticket: _,
            leaving: _,
            inside,
            expiring,
            renewed_anyway,
        } = self;
        (rounds_left, renewals_left, removal, let_in_unseen, rounds_begun).hash(hasher);
        (inside, expiring, renewed_anyway).hash(hasher);
        match errand {
            Some(Errand::Write { op: _, write }) => write.hash(hasher),
            Some(Errand::Read { op: _, read: _, write, after_removal }) => {
                (write, after_removal).hash(hasher);
            }
            None => {}
        }
        if let Some(contender) = contender {
            // A round begins with stamps of its own, so between rounds the last one is forgotten.
            (contender.is_idle() || *last_stamp == 0, contender.is_idle()).hash(hasher);
            if !contender.is_idle() {
                (round, last_stamp).hash(hasher);
            }
            contender.feed(*clock, hasher);
        }
    }
}

/// Equal where nothing differs that matters; a search compares fingerprints, not states.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        fingerprint(self) == fingerprint(other)
    }
}

/// What stands for all that is hashed.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
