//! Drives a contender, and holds what it says against what it was shown.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::super::design;
use super::super::rows::{ME, one_of_each_key, rows_of};
use crate::core::bakery::{
    Acquire, Change, Claim, Contender, ContenderEvent, ContenderId, ContenderInput,
    ContenderOutput, Failure, Lease, Loss, Mode, Now, OpId, Patience, QueuePosition, Read,
    ReadFailure, Revocation, RevokeKind, Standing, Statics, StoredRow, Write, WriteOutcome,
    row_name,
};

pub(super) const TTL: Duration = Duration::from_secs(60);
pub(super) const SKEW: Duration = Duration::from_secs(1);

/// How long a lease is: the TTL less what nodes round it by, less the clock skew.
const LEASE: Duration = Duration::from_secs(58);

/// What comes of the operation that a contender waits for, be it a read or a write.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) outcome: WriteOutcome,
    pub(super) failure: Option<ReadFailure>,
    pub(super) own: Own,
    pub(super) others: Vec<StoredRow>,
}

impl Answer {
    /// A write is applied; a read shows what was written, and these rows.
    pub(super) fn honest(others: Vec<StoredRow>) -> Self {
        Answer { outcome: WriteOutcome::Applied, failure: None, own: Own::AsWritten, others }
    }
}

/// What a read shows of the contender's own rows.
#[derive(Clone, Debug)]
pub(super) enum Own {
    AsWritten,
    Missing,
    /// Of a round that is this many after the present one.
    OfRound(i64),
    WithTicket(Option<i64>),
    /// As written, and it is asked to leave the round that is this many after the present one.
    Revoked(i64),
    /// As written, and one that it never wrote.
    And(Box<StoredRow>),
}

/// What may happen to a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    HeldAtOnce,
    HeldWithTicket,
    HeldAfterWaiting,
    Renewed,
    Confirmed,
    Taken,
    RowsMissing,
    Revoked,
    Refused,
    NoTicketLeft,
    LostRows,
    AskedToLeave,
    LostByRevocation,
    LostToLaterHolder,
    Expired,
    BeganAgain,
    Released,
}

impl Turn {
    pub(super) const ALL: [Turn; 17] = [
        Turn::HeldAtOnce,
        Turn::HeldWithTicket,
        Turn::HeldAfterWaiting,
        Turn::Renewed,
        Turn::Confirmed,
        Turn::Taken,
        Turn::RowsMissing,
        Turn::Revoked,
        Turn::Refused,
        Turn::NoTicketLeft,
        Turn::LostRows,
        Turn::AskedToLeave,
        Turn::LostByRevocation,
        Turn::LostToLaterHolder,
        Turn::Expired,
        Turn::BeganAgain,
        Turn::Released,
    ];
}

/// A contender, and what is known of it from outside.
pub(super) struct Trial {
    contender: Contender,
    acquire: Acquire,
    now: Duration,
    stamp: i64,
    /// What waits for its answer.
    asked: Option<ContenderOutput>,
    /// What its rows say, by the last write of them.
    claim: Option<Claim>,
    /// The stamp of that write, and when it was first tried.
    tried: (i64, Duration),
    /// The stamp of the last write of its rows that was acknowledged.
    acknowledged: i64,
    /// The first try of the last write of its rows that was acknowledged.
    counts_from: Duration,
    /// The contenders in the way, since the first whole read with a ticket.
    in_the_way: Option<Vec<Blocker>>,
    /// Since when it holds.
    held_since: Option<i64>,
    /// It was asked to leave, or said that it does.
    leaves: bool,
    /// It was asked to leave while it held.
    expires: bool,
    turns: Vec<Turn>,
}

/// One that was in the way when it was first seen with a ticket of ours.
struct Blocker {
    who: ContenderId,
    /// Which round of it is in the way, once that could be read.
    round: Option<i64>,
    /// Its rows have said that it is a limited one.
    limited: bool,
}

/// What a read has just shown.
struct Sight {
    read: Read,
    rows: Vec<StoredRow>,
    /// The design allows to be let in by it, if there is time left.
    lets_in: bool,
    /// It is the first whole read with a ticket.
    settles: bool,
}

impl Trial {
    /// A contender that has begun to acquire, in a store that writes and reads in one round trip if
    /// `exchanges`.
    pub(super) fn new(acquire: Acquire, exchanges: bool) -> Result<Self, TestCaseError> {
        let mut trial = Trial {
            contender: Contender::new(ME).exchanging(exchanges),
            acquire,
            now: Duration::from_secs(1_000),
            stamp: 1_700_000_000_000_000,
            asked: None,
            claim: None,
            tried: (0, Duration::ZERO),
            acknowledged: 0,
            counts_from: Duration::ZERO,
            in_the_way: None,
            held_since: None,
            leaves: true,
            expires: false,
            turns: Vec::new(),
        };
        trial.acquire()?;
        Ok(trial)
    }

    pub(super) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Answers what the contender waits for. Where that is nothing, time passes until it is.
    pub(super) fn answer(&mut self, answer: Answer) -> TestCaseResult {
        match self.asked.take() {
            Some(ContenderOutput::Write { op, write }) => {
                self.note_outcome(write.stamp, answer.outcome);
                self.handle(ContenderInput::Written { op, outcome: answer.outcome }, None)
            }
            Some(ContenderOutput::Read { op, read }) => self.show(op, read, answer),
            Some(ContenderOutput::Exchange { op, write, read }) => {
                self.note_outcome(write.stamp, answer.outcome);
                if answer.outcome == WriteOutcome::Applied {
                    self.show(op, read, answer)
                } else {
                    self.handle(ContenderInput::Written { op, outcome: answer.outcome }, None)
                }
            }
            Some(ContenderOutput::Event(_)) => unreachable!("an event waits for no answer"),
            None if self.contender.is_idle() => self.acquire(),
            None => {
                self.now = self.contender.deadline().unwrap_or(self.now).max(self.now);
                self.handle(ContenderInput::Tick, None)
            }
        }
    }

    fn note_outcome(&mut self, stamp: i64, outcome: WriteOutcome) {
        if outcome == WriteOutcome::Applied && self.tried.0 == stamp {
            (self.acknowledged, self.counts_from) = self.tried;
        }
    }

    fn show(&mut self, op: OpId, read: Read, answer: Answer) -> TestCaseResult {
        if let Some(failure) = answer.failure {
            let (rows, statics) = (Err(failure), Statics::default());
            return self.handle(ContenderInput::Read { op, rows, statics }, None);
        }
        let rows = [self.own_rows(answer.own), answer.others].concat();
        let rows = one_of_each_key(rows);
        let sight = self.look(read, rows.clone());
        let statics = Statics::default();
        self.handle(ContenderInput::Read { op, rows: Ok(rows), statics }, Some(&sight))
    }

    pub(super) fn tell(&mut self, input: ContenderInput) -> TestCaseResult {
        let leaves = matches!(input, ContenderInput::Release);
        self.handle(input, None)?;
        self.leaves |= leaves;
        Ok(())
    }

    fn acquire(&mut self) -> TestCaseResult {
        (self.leaves, self.expires, self.claim) = (false, false, None);
        self.handle(ContenderInput::Acquire(self.acquire.clone()), None)
    }

    fn own_rows(&self, own: Own) -> Vec<StoredRow> {
        let claim = self.claim.clone().expect("it has announced itself");
        let round = claim.round;
        let written = rows_of(&claim);
        match own {
            Own::AsWritten => written,
            Own::Missing => Vec::new(),
            Own::OfRound(after) => rows_of(&Claim { round: round + after, ..claim }),
            Own::WithTicket(ticket) => rows_of(&Claim { ticket, ..claim }),
            Own::Revoked(after) => {
                let (by, why) = (String::new(), String::new());
                let (round, kind) = (round + after, RevokeKind::Request);
                let revocation = Revocation { contender: ME, round, by, why, kind };
                [written, vec![StoredRow::revoked(&revocation)]].concat()
            }
            Own::And(row) => [written, vec![*row]].concat(),
        }
    }

    fn handle(&mut self, input: ContenderInput, sight: Option<&Sight>) -> TestCaseResult {
        self.stamp += 1;
        let now = Now { elapsed: self.now, stamp: self.stamp, jitter: 0.5 };
        self.contender.handle(now, input);
        let (mut is_held, mut is_lost) = (false, false);
        while let Some(output) = self.contender.poll() {
            match &output {
                ContenderOutput::Event(event) => {
                    is_held |= matches!(event, ContenderEvent::Held { .. });
                    is_lost |= matches!(event, ContenderEvent::Lost(_));
                    self.says(event, sight)?;
                    continue;
                }
                ContenderOutput::Exchange { write, .. } if write.stamp == self.acknowledged => {
                    self.writes_again(write)?;
                }
                ContenderOutput::Write { write, .. } | ContenderOutput::Exchange { write, .. } => {
                    match &write.change {
                        Change::Put { claim, .. } => self.writes(write.stamp, claim, sight)?,
                        Change::Delete { .. } => {}
                        Change::Revoke { .. } | Change::Mark | Change::Sweep { .. } => {
                            prop_assert!(false, "a contender writes {write:?}");
                        }
                    }
                }
                ContenderOutput::Read { .. } => {}
            }
            self.asked = Some(output);
        }
        self.check_waiting(is_held, sight)?;
        if is_lost {
            // Its rows stay until then.
            return self.handle(ContenderInput::Release, None);
        }
        let deadline = self.contender.deadline();
        prop_assert_eq!(deadline.is_none(), self.contender.is_idle());
        prop_assert!(deadline.is_none_or(|deadline| deadline > self.now), "it is due already");
        Ok(())
    }

    // What it says.

    fn says(&mut self, event: &ContenderEvent, sight: Option<&Sight>) -> TestCaseResult {
        let turn = match event {
            ContenderEvent::Held { lease, .. } => {
                prop_assert!(!self.leaves, "let in although it leaves");
                prop_assert!(sight.is_some_and(|sight| sight.lets_in), "let in by nothing");
                self.check_lease(*lease)?;
                self.held_since = Some(self.stamp / 1000);
                match (&self.in_the_way, sight.is_some_and(|sight| sight.settles)) {
                    (None, _) => Turn::HeldAtOnce,
                    (Some(_), true) => Turn::HeldWithTicket,
                    (Some(_), false) => Turn::HeldAfterWaiting,
                }
            }
            ContenderEvent::Renewed { lease, .. } => {
                prop_assert!(!self.leaves && !self.expires, "renewed although it leaves");
                self.check_lease(*lease)?;
                Turn::Renewed
            }
            ContenderEvent::Confirmed => {
                prop_assert!(sight.is_some_and(|sight| self.shows_own(&sight.rows)));
                Turn::Confirmed
            }
            ContenderEvent::Expiring(_) => {
                prop_assert!(!self.leaves && !self.expires, "it is asked to leave twice");
                prop_assert!(sight.is_some_and(|sight| self.shows_own(&sight.rows)));
                self.expires = true;
                Turn::AskedToLeave
            }
            ContenderEvent::Taken => self.leaves_by(Turn::Taken)?,
            ContenderEvent::Failed(failure) => self.leaves_by(match failure {
                Failure::RowMissing => Turn::RowsMissing,
                Failure::Revoked(_) => Turn::Revoked,
                Failure::Rejected => Turn::Refused,
                Failure::NoTicketLeft => Turn::NoTicketLeft,
                Failure::MarkOutOfReach { .. } => unreachable!("no mark is shown"),
            })?,
            ContenderEvent::Lost(loss) => self.leaves_by(match loss {
                Loss::Expired => Turn::Expired,
                Loss::RowMissing => Turn::LostRows,
                Loss::Revoked(_) => Turn::LostByRevocation,
                Loss::Conflict { .. } => {
                    let shown = sight.is_some_and(|sight| self.is_overtaken(sight));
                    prop_assert!(shown, "there is no later holder");
                    Turn::LostToLaterHolder
                }
            })?,
            ContenderEvent::Released => Turn::Released,
        };
        self.turns.push(turn);
        Ok(())
    }

    fn leaves_by(&mut self, turn: Turn) -> Result<Turn, TestCaseError> {
        prop_assert!(!self.leaves, "it leaves twice");
        self.leaves = true;
        Ok(turn)
    }

    fn check_lease(&self, lease: Lease) -> TestCaseResult {
        prop_assert_eq!(lease.deadline(), self.counts_from + LEASE);
        prop_assert!(self.now < lease.deadline(), "the lease is over");
        Ok(())
    }

    /// A contender that has time and no blocker is let in. What limited ones say of themselves may
    /// change in odd tables, and then it may wait longer.
    fn check_waiting(&self, is_held: bool, sight: Option<&Sight>) -> TestCaseResult {
        let in_time = self.now < self.counts_from + LEASE;
        let certain = match self.acquire.mode {
            Mode::Exclusive | Mode::Shared => self.acquire.patience == Patience::Wait,
            Mode::Limited(_) => false,
        };
        let lets_in = sight.is_some_and(|sight| sight.lets_in);
        prop_assert!(is_held || !(lets_in && in_time && certain), "no contender is in its way");
        Ok(())
    }

    fn writes(&mut self, stamp: i64, claim: &Claim, sight: Option<&Sight>) -> TestCaseResult {
        prop_assert!(!self.leaves && !self.expires, "it writes rows although it leaves");
        let is_new = self.tried.0 != stamp;
        if is_new {
            prop_assert!(stamp > self.tried.0, "stamps grow");
            self.tried = (stamp, self.now);
        }
        let before = self.claim.replace(claim.clone());
        let round_before = before.as_ref().map(|before| before.round);
        if round_before != Some(claim.round) {
            prop_assert!(round_before < Some(claim.round), "rounds grow");
            prop_assert_eq!(claim.ticket, None);
            // It begins again only when its rows are gone.
            (self.in_the_way, self.held_since) = (None, None);
            self.turns.extend(round_before.map(|_| Turn::BeganAgain));
        } else if before.as_ref().map(|before| before.ticket) == Some(claim.ticket) {
            let renewed = before.map(|before| Claim { held_since: self.held_since, ..before });
            prop_assert_eq!(renewed.as_ref(), Some(claim), "only the grant is added");
            let read = sight.filter(|sight| sight.read == Read::Contender(ME));
            let read = read.is_some_and(|sight| self.stands(&sight.rows));
            prop_assert!(read || !is_new, "it writes rows again that it has not seen");
        } else {
            let announced = before.map(|before| Claim { ticket: claim.ticket, ..before });
            prop_assert_eq!(announced.as_ref(), Some(claim), "only a ticket is added");
            let rows = sight.map_or(&[][..], |sight| &sight.rows);
            let understood = rows.iter().filter(|row| design::is_understood(row));
            let announced = understood.filter(|row| row.row_name == row_name::ENTERING);
            let largest = announced.filter_map(|row| row.ticket).max();
            prop_assert!(claim.ticket > largest.max(Some(0)), "a ticket not above {largest:?}");
        }
        Ok(())
    }

    /// The last acknowledged write goes with each question of a waiter, and with the announcement
    /// if the read failed that was to follow it.
    fn writes_again(&mut self, write: &Write) -> TestCaseResult {
        let Change::Put { claim, .. } = &write.change else {
            return Err(TestCaseError::fail(format!("a waiter writes {write:?}")));
        };
        prop_assert!(!self.leaves && self.held_since.is_none(), "it waits for nothing");
        prop_assert_eq!(self.claim.as_ref(), Some(claim), "its rows are others by now");
        Ok(())
    }

    // What it is shown.

    fn look(&mut self, read: Read, rows: Vec<StoredRow>) -> Sight {
        let settles = read == Read::Object && self.in_the_way.is_none();
        let ticket = self.claim.as_ref().and_then(|claim| claim.ticket);
        let none_in_the_way = match (read, ticket) {
            (Read::Object, None) => {
                let others = design::contenders(&rows).into_iter().filter(|who| *who != ME);
                let standings = others.filter_map(|who| design::standing(&rows, who));
                let modes: Vec<_> = standings.map(Standing::mode).collect();
                design::let_in(self.acquire.mode, &modes)
            }
            (Read::Object, Some(ticket)) => {
                self.look_at_all(&rows, QueuePosition { ticket, contender: ME });
                self.is_let_in()
            }
            (Read::Contender(_) | Read::Entering(_) | Read::Front { .. }, Some(ticket)) => {
                let mine = QueuePosition { ticket, contender: ME };
                let mode = self.acquire.mode;
                if let Some(blockers) = &mut self.in_the_way {
                    blockers.retain_mut(|blocker| {
                        let is_asked = read.asks_for(row_name::ENTERING, blocker.who);
                        !is_asked || blocker.stays(&rows, mine, mode)
                    });
                }
                matches!(read, Read::Front { own: ME, .. }) && self.is_let_in()
            }
            (Read::Contender(_) | Read::Entering(_) | Read::Front { .. }, None) => false,
        };
        // A holder reads the whole object too.
        let waits = self.held_since.is_none();
        let lets_in = waits && none_in_the_way && self.stands(&rows);
        Sight { read, rows, lets_in, settles: settles && ticket.is_some() }
    }

    /// Whether rows show ours, and no request to leave.
    fn stands(&self, rows: &[StoredRow]) -> bool {
        let round = self.claim.as_ref().map(|claim| claim.round);
        let mut own = rows.iter().filter(|row| row.contender == ME);
        let revoked = own.any(|row| row.row_name == row_name::REVOKED && row.round == round);
        self.shows_own(rows) && !revoked
    }

    /// Whether rows show ours.
    fn shows_own(&self, rows: &[StoredRow]) -> bool {
        let Some(claim) = &self.claim else {
            return false;
        };
        let standing = design::standing(rows, ME);
        let seen = standing.and_then(|standing| standing.round().zip(Some(standing.ticket())));
        seen == Some((claim.round, claim.ticket))
    }

    /// Whether a whole read shows our rows, and such that were granted the object later and leave
    /// no room for us.
    fn is_overtaken(&self, sight: &Sight) -> bool {
        let mine = self.held_since.map(|since| (since, ME));
        let others = design::contenders(&sight.rows).into_iter().filter(|who| *who != ME);
        let later = others.filter_map(|who| {
            let since = design::held_since(&sight.rows, who)?;
            (Some((since, who)) > mine).then(|| design::standing(&sight.rows, who))?
        });
        let modes: Vec<_> = later.map(Standing::mode).collect();
        let room = design::let_in(self.acquire.mode, &modes);
        sight.read == Read::Object && self.shows_own(&sight.rows) && !room
    }

    /// The first whole read fixes who is in the way; later ones only take away.
    fn look_at_all(&mut self, rows: &[StoredRow], mine: QueuePosition) {
        let mode = self.acquire.mode;
        if let Some(blockers) = &mut self.in_the_way {
            blockers.retain_mut(|blocker| blocker.stays(rows, mine, mode));
        } else {
            let others = design::contenders(rows).into_iter().filter(|who| *who != ME);
            let blockers = others.filter_map(|who| Blocker::new(who, rows, mine, mode));
            self.in_the_way = Some(blockers.collect());
        }
    }

    fn is_let_in(&self) -> bool {
        let in_the_way = self.in_the_way.as_deref().unwrap_or_default();
        match self.acquire.mode {
            Mode::Exclusive | Mode::Shared => in_the_way.is_empty(),
            Mode::Limited(most) => {
                let count = i32::try_from(in_the_way.len()).expect("there are few");
                count < most && in_the_way.iter().all(|blocker| blocker.limited)
            }
        }
    }
}

impl Blocker {
    /// `None` for who is absent, behind us, or goes together with us.
    fn new(who: ContenderId, rows: &[StoredRow], mine: QueuePosition, mode: Mode) -> Option<Self> {
        design::standing(rows, who)?;
        let mut blocker = Blocker { who, round: None, limited: false };
        blocker.stays(rows, mine, mode).then_some(blocker)
    }

    /// Whether it was not seen gone: absent, on another round, behind us, or together with us from
    /// now on.
    fn stays(&mut self, rows: &[StoredRow], mine: QueuePosition, mode: Mode) -> bool {
        let Some(seen) = design::standing(rows, self.who) else {
            return false;
        };
        if (mode, seen.mode()) == (Mode::Shared, Some(Mode::Shared)) {
            return false;
        }
        let behind = |ticket| QueuePosition { ticket, contender: self.who } > mine;
        if seen.ticket().is_some_and(behind) {
            return false;
        }
        let rounds = self.round.zip(seen.round());
        self.round = self.round.or(seen.round());
        self.limited |= matches!(seen.mode(), Some(Mode::Limited(_)));
        rounds.is_none_or(|(before, now)| before == now)
    }
}
