//! A small model of its own, of `release_for_dead` (docs/daemon.md, "The journal").
//!
//! A process grants its place to an owner, notes that in its journal, and dies at any moment, with
//! its writes under way. Its successor knows by a lock on the journal that it is dead, and deletes
//! the rows that the journal names once the owner wants the lock no more. Deletes are late and
//! repeated, and the successor's clock is behind or ahead of all that the dead process wrote. The
//! next holder waits in the table. While it lives, the process renews, hands its place on, releases
//! it and takes it again, loses it, and an operator removes its rows by force.
//!
//! Rows are those of [`Replicas`], and who is let in is decided by the shipped [`Snapshot`]. Which
//! rows are deleted, and with what stamp, is `src/admin/dead.rs` and `round_rows.rs` written once
//! more, and the order of notes and releases is that of `tools/src/lockd/daemon.rs`.
//! All owners may use their lock as long as the journal promises, however long that is; their rows
//! end after that. Both places of the table differ in the client; so would those of a successor
//! with the same host number.

use std::sync::Arc;

use stateright::{Model, Property};

use crate::core::bakery::{Change, Claim, Mode, Read, Snapshot, Write};
use crate::scenario::{EXCLUSIVE, Scenario};
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};
use crate::store::replicas::{Replicas, Way};
use crate::store::{Effects, SeenRow, Store, id_of, stored};

/// The contender of the process that dies, and the next holder's.
const PROCESS: usize = 0;
const NEXT: usize = 1;

/// What is between two stamps of the process.
const STEP: i64 = 10;

/// What the successor's clock shows: less and more than any stamp of the process.
const CLOCKS: [i64; 2] = [0, 1_000];

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Rows are deleted without a proof that the process is dead.
    NoProof,
    /// The end of a lock is not noted before its place is handed on or released.
    EndNotNoted,
    /// The delete is stamped below the newest row.
    StampedTooLow,
    /// All rows of the contender are deleted, whatever their round.
    AnyRound,
    /// The rows of all clients of the host are deleted.
    WholeHost,
    /// The journal names the rows of a place that others use as well.
    NotAlone,
}

/// What the process does before it dies, and what is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often it writes its rows again.
    pub(crate) renewals: u8,
    /// Whether it has a ticket.
    pub(crate) has_ticket: bool,
    /// Whether the owners share the lock, and with it the place, so that the journal does not name
    /// its rows.
    pub(crate) is_shared: bool,
    /// How many deletes successors begin.
    pub(crate) deletes: u8,
    /// Whether an operator removes the first rows by force.
    pub(crate) is_forced: bool,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) must_see: &'static [Sight],
}

/// A process of a plan.
#[derive(Debug)]
pub(crate) struct Dead {
    plan: Plan,
    sightings: Arc<Sightings>,
    violations: FirstViolation,
}

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    store: Replicas,
    stage: Stage,
    is_dead: bool,
    /// The last stamp that the process drew.
    stamp: i64,
    renewals_left: u8,
    /// The first owner, and the second one.
    owners: [Owner; 2],
    /// Whether the end of the first owner's lock has yet to be noted, which it lost.
    is_to_be_noted: bool,
    deletes_left: u8,
    /// Whether an operator has removed the rows of the first round.
    is_forced: bool,
    next: Next,
    is_expired: bool,
}

/// Someone who may use the lock, and what the journal says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    is_inside: bool,
    is_noted: bool,
    round: i64,
    deletion: Deletion,
}

/// What became of the newest delete of an owner's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Deletion {
    Never,
    /// It is under way; whether it was above all that the process wrote.
    Sent {
        write: Effects,
        is_above_all: bool,
    },
    Acknowledged {
        is_above_all: bool,
    },
}

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The first owner has the place.
    Held,
    /// It has returned it.
    Returned,
    /// The second owner has it in the same round.
    HandedOn,
    /// The rows are being deleted, and the slot is free.
    Free,
    /// The process takes the lock again, in another round, for the second owner.
    Announcing(Effects),
    Looking,
    HeldAgain,
}

/// How far the next holder has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Outside,
    Announcing(Effects),
    Looking,
    Inside,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Renew,
    /// The second owner shares the place.
    Join,
    /// The first owner returns the lock.
    Return,
    /// Its place is handed on to the second one.
    HandOn,
    Release,
    /// The process finds that its lease is over, or its rows are gone.
    Lose,
    /// The journal says so.
    NoteLoss,
    /// The process takes the lock again.
    Again,
    AcknowledgeAgain(Way),
    AnswerAgain(Way),
    Die,
    /// An owner of a dead process wants the lock no more, or its time is over.
    Leave(usize),
    /// The successor deletes the rows of an owner, with this stamp.
    Delete(usize, i64),
    AcknowledgeDelete(usize, Way),
    /// An operator deletes the rows of the first round.
    Force(i64),
    /// The rows of the dead process expire, each at any moment from now on.
    Expire,
    BeginNext,
    AcknowledgeNext(Way),
    AnswerNext(Way),
}

impl Dead {
    pub(crate) fn new(plan: Plan, sightings: Arc<Sightings>) -> Self {
        Dead { plan, sightings, violations: FirstViolation::default() }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaw == Some(flaw)
    }

    // What a step does.

    /// The process writes the rows of a round.
    fn put(&self, moment: &mut Moment, round: i64) -> Effects {
        let write = rows_of(PROCESS, round, moment.stamp, self.plan.has_ticket);
        moment.store.send(write);
        write
    }

    fn release(moment: &mut Moment) {
        moment.stamp += STEP;
        moment.store.send(Effects::removal(PROCESS, moment.stamp));
        moment.stage = Stage::Free;
    }

    fn give_second(&self, moment: &mut Moment, round: i64, stage: Stage) {
        moment.owners[1] =
            Owner { is_inside: true, is_noted: true, round, deletion: Deletion::Never };
        moment.stage = stage;
        self.sightings.note(Sight::SecondOwner);
    }

    fn announce_again(&self, moment: &mut Moment) {
        moment.stamp += STEP;
        let round = moment.stamp;
        moment.owners[1].round = round;
        moment.stage = Stage::Announcing(self.put(moment, round));
    }

    /// An announcement is acknowledged: its contender looks at the object.
    fn look(moment: &mut Moment, contender: usize, write: Effects, way: Way) {
        moment.store.acknowledge(write, way);
        moment.store.begin_read(contender, Read::Object, None);
    }

    fn answer_again(&self, moment: &mut Moment, way: Way) {
        let Some(rows) = moment.store.read_on(PROCESS, way) else { return };
        if is_let_in(&rows, PROCESS) {
            let round = moment.owners[1].round;
            self.give_second(moment, round, Stage::HeldAgain);
        } else {
            moment.store.begin_read(PROCESS, Read::Object, None);
        }
    }

    fn answer_next(&self, moment: &mut Moment, way: Way) {
        let Some(rows) = moment.store.read_on(NEXT, way) else { return };
        if is_let_in(&rows, NEXT) {
            moment.next = Next::Inside;
            self.sightings.note(Sight::NextHolderEntered);
        } else {
            moment.store.begin_read(NEXT, Read::Object, None);
        }
    }

    fn delete(&self, moment: &mut Moment, owner: usize, stamp: i64) {
        let write = Effects::removal(PROCESS, stamp);
        moment.store.send(write);
        if self.has(Flaw::WholeHost) {
            moment.store.send(Effects::removal(NEXT, stamp));
        }
        moment.deletes_left -= 1;
        // All that the process wrote was seen, or the clock is ahead of it.
        let is_above_all = stamp > moment.stamp || {
            let seen = self.stamps(moment, moment.owners[owner].round);
            seen.contains(&moment.stamp) && !self.is_late(moment)
        };
        moment.owners[owner].deletion = Deletion::Sent { write, is_above_all };
        self.sightings.note(Sight::DeletedForDead);
    }

    fn deleted(&self, moment: &mut Moment, owner: usize, way: Way) {
        let Deletion::Sent { write, is_above_all } = moment.owners[owner].deletion else {
            unreachable!("it was sent")
        };
        moment.store.acknowledge(write, way);
        moment.owners[owner].deletion = Deletion::Acknowledged { is_above_all };
        if Self::is_left(moment, owner) {
            self.sightings.note(Sight::LateRow);
        }
    }

    /// Whether a read can miss the newest row of the process.
    fn is_late(&self, moment: &Moment) -> bool {
        let rounds = moment.owners.map(|owner| owner.round);
        let seen = rounds.map(|round| self.stamps(moment, round));
        !seen.iter().flatten().all(|stamp| *stamp == moment.stamp)
    }

    /// What the newest stamp of the rows of a round can be, by a read; none if they are not there.
    fn stamps(&self, moment: &Moment, round: i64) -> Vec<i64> {
        let mut stamps = moment.store.newest_stamps(PROCESS, round);
        if self.has(Flaw::AnyRound) {
            let others = moment.owners.map(|owner| owner.round);
            stamps.extend(others.iter().flat_map(|it| moment.store.newest_stamps(PROCESS, *it)));
            stamps.sort_unstable();
            stamps.dedup();
        }
        stamps
    }

    // What can happen.

    fn actions_of_process(&self, moment: &Moment, actions: &mut Vec<Action>) {
        let renews = [Stage::Held, Stage::Returned, Stage::HandedOn].contains(&moment.stage);
        if renews && moment.renewals_left > 0 {
            actions.push(Action::Renew);
        }
        match moment.stage {
            Stage::Held if self.plan.is_shared => actions.push(Action::Join),
            Stage::Held => actions.extend([Action::Return, Action::Lose]),
            Stage::Returned => actions.extend([Action::HandOn, Action::Release]),
            Stage::Free => actions.push(Action::Again),
            Stage::Announcing(write) => {
                let ways = moment.store.acknowledgements(write).into_iter();
                actions.extend(ways.map(Action::AcknowledgeAgain));
            }
            Stage::Looking => {
                let ways = moment.store.readings(PROCESS).into_iter();
                actions.extend(ways.map(Action::AnswerAgain));
            }
            Stage::HandedOn | Stage::HeldAgain => {}
        }
        if moment.is_to_be_noted {
            actions.push(Action::NoteLoss);
        }
        actions.push(Action::Die);
    }

    fn actions_of_successor(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for (number, owner) in moment.owners.iter().enumerate() {
            if owner.is_inside && moment.is_dead {
                actions.push(Action::Leave(number));
            }
            if let Deletion::Sent { write, .. } = owner.deletion {
                let ways = moment.store.acknowledgements(write).into_iter();
                actions.extend(ways.map(|way| Action::AcknowledgeDelete(number, way)));
            }
            let is_over = !owner.is_inside && moment.is_dead || self.has(Flaw::NoProof);
            let has_rows = owner.is_noted && (!self.plan.is_shared || self.has(Flaw::NotAlone));
            if !has_rows || !is_over || moment.deletes_left == 0 {
                continue;
            }
            let stamps = self.stamps(moment, owner.round);
            if stamps.is_empty() {
                self.sightings.note(Sight::NothingToDelete);
            }
            for newest in stamps {
                actions.extend(CLOCKS.map(|clock| {
                    let stamp = if self.has(Flaw::StampedTooLow) {
                        newest - 1
                    } else {
                        clock.max(newest + 1)
                    };
                    Action::Delete(number, stamp)
                }));
            }
        }
        let is_used = moment.owners.iter().any(|owner| owner.is_inside);
        if moment.is_dead && !is_used && !moment.is_expired {
            actions.push(Action::Expire);
        }
    }

    fn actions_of_next(moment: &Moment, actions: &mut Vec<Action>) {
        match moment.next {
            Next::Outside => actions.push(Action::BeginNext),
            Next::Announcing(write) => {
                let ways = moment.store.acknowledgements(write).into_iter();
                actions.extend(ways.map(Action::AcknowledgeNext));
            }
            Next::Looking => {
                let ways = moment.store.readings(NEXT).into_iter();
                actions.extend(ways.map(Action::AnswerNext));
            }
            Next::Inside => {}
        }
    }

    // What must be true.

    /// Whether an owner may rely on the lock: one whose rows an operator removed may not.
    fn relies(moment: &Moment, owner: &Owner) -> bool {
        owner.is_inside && !(moment.is_forced && owner.round == STEP)
    }

    fn is_exclusive(&self, moment: &Moment) -> bool {
        let owners = moment.owners.iter().filter(|owner| Self::relies(moment, owner)).count();
        let owners = if self.plan.is_shared { owners.min(1) } else { owners };
        let inside = owners + usize::from(moment.next == Next::Inside);
        self.violations.allow(inside <= 1)
    }

    /// Whether the rows of all who are inside stand, whatever is still under way.
    fn stand(&self, moment: &Moment) -> bool {
        let mut calm = moment.store.clone();
        calm.calm_down();
        let owners = moment.owners.iter().filter(|owner| Self::relies(moment, owner));
        let stands = |contender, round| !calm.newest_stamps(contender, round).is_empty();
        let next = moment.next != Next::Inside || stands(NEXT, STEP);
        self.violations.allow(next && owners.map(|it| it.round).all(|it| stands(PROCESS, it)))
    }

    /// Whether the rows of an owner are there once all under way has arrived.
    fn is_left(moment: &Moment, owner: usize) -> bool {
        let mut calm = moment.store.clone();
        calm.calm_down();
        !calm.newest_stamps(PROCESS, moment.owners[owner].round).is_empty()
    }

    /// Whether nothing is left once rows were deleted, if the delete was above all of them.
    fn is_free(&self, moment: &Moment) -> bool {
        let is_done = |owner: &usize| {
            let deletion = moment.owners[*owner].deletion;
            deletion == Deletion::Acknowledged { is_above_all: true }
        };
        let mut deleted = (0..moment.owners.len()).filter(is_done);
        self.violations.allow(!deleted.any(|owner| Self::is_left(moment, owner)))
    }
}

impl Model for Dead {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let scenario = Scenario::of(&[EXCLUSIVE; 2]);
        let mut store = Replicas::new(&scenario);
        let write = rows_of(PROCESS, STEP, STEP, self.plan.has_ticket);
        store.send(write);
        let way = store.acknowledgements(write)[0];
        store.acknowledge(write, way);
        store.tidy();
        let owner = |is_first, round| Owner {
            is_inside: is_first,
            is_noted: is_first,
            round,
            deletion: Deletion::Never,
        };
        vec![Moment {
            store,
            stage: Stage::Held,
            is_dead: false,
            stamp: STEP,
            renewals_left: self.plan.renewals,
            owners: [owner(true, STEP), owner(false, 0)],
            is_to_be_noted: false,
            deletes_left: self.plan.deletes,
            is_forced: false,
            next: Next::Outside,
            is_expired: false,
        }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        if !moment.is_dead {
            self.actions_of_process(moment, actions);
        }
        self.actions_of_successor(moment, actions);
        Self::actions_of_next(moment, actions);
        if self.plan.is_forced && !moment.is_forced {
            let stamps = moment.store.newest_stamps(PROCESS, STEP).into_iter();
            actions.extend(stamps.map(|newest| Action::Force(newest + 1)));
        }
    }

    fn next_state(&self, moment: &Moment, action: Action) -> Option<Moment> {
        let mut next = moment.clone();
        match action {
            Action::Renew => {
                next.renewals_left -= 1;
                next.stamp += STEP;
                self.put(&mut next, STEP);
            }
            Action::Join => self.give_second(&mut next, STEP, Stage::HandedOn),
            Action::Return => {
                next.owners[0].is_inside = false;
                next.owners[0].is_noted = self.has(Flaw::EndNotNoted);
                next.stage = Stage::Returned;
            }
            Action::HandOn => self.give_second(&mut next, STEP, Stage::HandedOn),
            Action::Release => Self::release(&mut next),
            Action::Lose => {
                next.owners[0].is_inside = false;
                next.is_to_be_noted = true;
                Self::release(&mut next);
            }
            Action::NoteLoss => {
                next.owners[0].is_noted = false;
                next.is_to_be_noted = false;
            }
            Action::Again => self.announce_again(&mut next),
            Action::AcknowledgeAgain(way) => {
                let Stage::Announcing(write) = next.stage else { unreachable!("it is written") };
                Self::look(&mut next, PROCESS, write, way);
                next.stage = Stage::Looking;
            }
            Action::AnswerAgain(way) => self.answer_again(&mut next, way),
            Action::Die => {
                next.is_dead = true;
                next.store.forget_read(PROCESS);
            }
            Action::Leave(owner) => next.owners[owner].is_inside = false,
            Action::Delete(owner, stamp) => self.delete(&mut next, owner, stamp),
            Action::AcknowledgeDelete(owner, way) => self.deleted(&mut next, owner, way),
            Action::Force(stamp) => {
                next.is_forced = true;
                next.store.send(Effects::removal(PROCESS, stamp));
            }
            Action::Expire => {
                next.is_expired = true;
                next.store.expire(PROCESS);
            }
            Action::BeginNext => {
                let write = rows_of(NEXT, STEP, STEP, false);
                next.store.send(write);
                next.next = Next::Announcing(write);
            }
            Action::AcknowledgeNext(way) => {
                let Next::Announcing(write) = next.next else { unreachable!("it is written") };
                Self::look(&mut next, NEXT, write, way);
                next.next = Next::Looking;
            }
            Action::AnswerNext(way) => self.answer_next(&mut next, way),
        }
        next.store.tidy();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holds the lock", Self::is_exclusive),
            Property::always("the rows of those inside stand", Self::stand),
            Property::always("the lock is free once its rows are deleted", Self::is_free),
        ]
    }
}

/// The write of the rows of a round.
fn rows_of(contender: usize, round: i64, stamp: i64, has_ticket: bool) -> Effects {
    let claim = Claim {
        contender: id_of(contender),
        round,
        mode: Mode::Exclusive,
        ticket: has_ticket.then_some(1),
        owner: "".into(),
        held_since: None,
    };
    Effects::of(&Write { stamp, change: Change::Put { claim, ttl_seconds: 0 } })
}

/// Whether a read of the whole object lets a contender in on the fast path.
fn is_let_in(rows: &[SeenRow], contender: usize) -> bool {
    let (rows, _) = stored(rows, &[Mode::Exclusive; 2]);
    let blockers = Snapshot::of(&rows).blockers_before_ticket(id_of(contender), Mode::Exclusive);
    blockers.admit(Mode::Exclusive)
}

impl Tell for Action {
    fn tell(&self) -> String {
        match self {
            Action::Renew => "the process writes its rows again".to_owned(),
            Action::Join => "the second owner shares the place".to_owned(),
            Action::Return => "the first owner returns the lock".to_owned(),
            Action::HandOn => "the place is handed on".to_owned(),
            Action::Release => "the process releases it".to_owned(),
            Action::Lose => "the process finds that the lock is lost".to_owned(),
            Action::NoteLoss => "the journal says so".to_owned(),
            Action::Again => "the process takes the lock again".to_owned(),
            Action::AcknowledgeAgain(way) | Action::AnswerAgain(way) => {
                format!("the process: {way}")
            }
            Action::Die => "the process dies".to_owned(),
            Action::Leave(owner) => format!("owner {owner} leaves"),
            Action::Delete(owner, stamp) => format!("rows of owner {owner} deleted at {stamp}"),
            Action::AcknowledgeDelete(owner, _) => format!("that of owner {owner} is acknowledged"),
            Action::Force(stamp) => format!("an operator deletes the rows at {stamp}"),
            Action::Expire => "the rows of the dead process begin to expire".to_owned(),
            Action::BeginNext => "the next holder announces itself".to_owned(),
            Action::AcknowledgeNext(way) | Action::AnswerNext(way) => {
                format!("the next holder: {way}")
            }
        }
    }
}

impl Tell for Moment {
    fn tell(&self) -> String {
        let inside = self.owners.map(|owner| if owner.is_inside { "inside" } else { "out" });
        let alive = if self.is_dead { "dead" } else { "alive" };
        format!("{alive} {:?} | {} | {:?}", self.stage, inside.join(" "), self.next)
    }
}
