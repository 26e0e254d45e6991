//! A small model in which time passes: leases end, rows expire, and a contender that is told
//! something may be told much too late.
//!
//! There is one copy of the rows here, as the other models look after replicas, and time passes in
//! whole seconds. Each request takes effect at one moment and is answered at another one. Rows that
//! are old enough to be gone by the clock of some node and not by that of another one are seen by
//! one read and not by the next, however these follow each other.
//!
//! [`Course`] says what may go wrong: answers are late, or they are prompt and rows get lost
//! ([`lost`]).

mod lost;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stateright::{Model, Property};

use crate::core::bakery::{
    ContenderEvent, ContenderInput, LeaseTerms, Loss, Read, SeededBug, Statics,
};
use crate::peer::{Errand, Peer, Reaction};
use crate::scenario::Scenario;
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};
use crate::store::{Cell, Effects, KINDS, SeenRow, rows_asked};

/// In seconds, as all times here.
const MAX_CLOCK_SKEW: u64 = 1;

/// How time passes, and what goes wrong meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Answers are as late as they like.
    Late,
    /// All requests are answered within the second, and rows of one contender get lost, once. The
    /// wall clock of the first contender is ahead of the others by this many seconds.
    Losing { ahead: u64 },
}

/// A scenario for this many seconds.
#[derive(Debug)]
pub(crate) struct Expiry {
    scenario: Scenario,
    course: Course,
    seconds: u64,
    sightings: Arc<Sightings>,
    violations: FirstViolation,
    /// Fingerprints of moments from which all are served.
    served: Mutex<HashSet<u64>>,
}

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Moment {
    now: u64,
    peers: Vec<Arc<Peer>>,
    rows: Vec<Row>,
    /// Writes that have not taken effect.
    under_way: Vec<Effects>,
    /// Of each contender the request that took effect, and is not answered yet.
    unanswered: Vec<Option<Unanswered>>,
    /// What became of rows that got lost.
    loss: lost::Aftermath,
}

/// A request that took effect. Its answer comes in a later second: one that comes in the same
/// second comes at once, as no contender can tell the difference.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Unanswered {
    /// What a read shows.
    rows: Vec<SeenRow>,
    is_ripe: bool,
}

/// A row, and when it was last written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    cell: Cell,
    written: u64,
}

/// What can happen next. Contenders are told by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A second passes.
    Pass,
    /// Its caller wants the lock.
    Begin(usize),
    /// Its caller gives the lock back.
    Leave(usize),
    /// It wakes up because something is due.
    Wake(usize),
    /// A write takes effect that no contender waits for any more.
    ComeLate(Effects),
    /// Its write takes effect.
    Write(usize, Answered),
    /// Its read takes effect, and does not show these rows. Each is a bit.
    Read { reader: usize, expired: u16, answered: Answered },
    /// Its request, which took effect before, is answered.
    Answer(usize),
    /// Rows of its are forgotten. Each is a bit.
    Vanish { contender: usize },
}

/// When a request that takes effect is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    AtOnce,
    Later,
}

impl Expiry {
    pub(crate) fn new(
        scenario: Scenario,
        course: Course,
        seconds: u64,
        sightings: Arc<Sightings>,
    ) -> Self {
        let (violations, served) = Default::default();
        Expiry { scenario, course, seconds, sightings, violations, served }
    }

    fn with_peer(&self, moment: &mut Moment, i: usize, act: impl FnOnce(&mut Peer) -> Reaction) {
        SeededBug::plant(self.scenario.mutation());
        let before = Arc::clone(&moment.peers[i]);
        let reaction = act(Arc::make_mut(&mut moment.peers[i]));
        self.note(moment, i, &before, &reaction);
        moment.unanswered[i] = None;
        moment.under_way.extend(reaction.write);
        moment.under_way.sort_unstable();
        moment.under_way.dedup();
    }

    fn note(&self, moment: &Moment, i: usize, before: &Peer, reaction: &Reaction) {
        for event in &reaction.events {
            match event {
                ContenderEvent::Renewed { .. } => self.sightings.note(Sight::Renewed),
                ContenderEvent::Lost(Loss::Expired) => self.sightings.note(Sight::Expired),
                ContenderEvent::Lost(Loss::RowMissing) if before.reads_own_rows() => {
                    self.sightings.note(Sight::MissingBeforeRenewal);
                }
                ContenderEvent::Lost(Loss::Conflict { .. })
                    if moment.shows_later_holder(before) =>
                {
                    self.sightings.note(Sight::EarlierGivesWay);
                }
                ContenderEvent::Held { .. }
                | ContenderEvent::Expiring(_)
                | ContenderEvent::Confirmed
                | ContenderEvent::Taken
                | ContenderEvent::Failed(_)
                | ContenderEvent::Lost(
                    Loss::RowMissing | Loss::Revoked(_) | Loss::Conflict { .. },
                )
                | ContenderEvent::Released => {}
            }
        }
        let deletes = reaction.write.is_some_and(Effects::is_release);
        if deletes && reaction.events.is_empty() && moment.peers[i].may_leave() {
            self.sightings.note(Sight::BegunAnew);
        }
    }

    /// A write takes effect, each row of it unless something newer is there.
    fn take_effect(&self, moment: &mut Moment, write: Effects) {
        moment.under_way.retain(|other| *other != write);
        for (kind, cell) in write.cells.into_iter().enumerate() {
            let row = &mut moment.rows[write.contender * KINDS + kind];
            if let Some(cell) = cell.filter(|cell| cell.beats(row.cell)) {
                *row = Row { cell, written: moment.now };
            }
        }
    }

    /// The request of a contender took effect.
    fn done(&self, moment: &mut Moment, i: usize, rows: Vec<SeenRow>, answered: Answered) {
        moment.unanswered[i] = Some(Unanswered { rows, is_ripe: false });
        match answered {
            Answered::AtOnce => self.answer(moment, i),
            Answered::Later => {}
        }
    }

    fn answer(&self, moment: &mut Moment, i: usize) {
        if self.course != Course::Late {
            moment.loss.answered(i, moment.peers[i].asks_others());
        }
        let unanswered = moment.unanswered[i].take().expect("it took effect before its answer");
        match moment.peers[i].errand.expect("only what is under way is answered") {
            Errand::Write { .. } => self.with_peer(moment, i, Peer::acknowledged),
            Errand::Read { op, .. } => {
                let mode = |i: usize| self.scenario.requests[i].mode;
                let rows = unanswered.rows.iter().map(|row| row.stored(mode));
                let rows = Ok(rows.collect());
                let statics = Statics::default();
                let answer = ContenderInput::Read { op, rows, statics };
                self.with_peer(moment, i, |peer| peer.answered(answer));
            }
        }
    }

    /// Whether at most one contender holds the lock, by its own clock, as long as no rows got lost.
    fn is_exclusive(&self, moment: &Moment) -> bool {
        self.violations.allow(moment.holders() <= 1 || moment.loss.happened())
    }

    /// When requests that take effect may be answered.
    fn when(&self) -> &'static [Answered] {
        match self.course {
            Course::Late => &[Answered::AtOnce, Answered::Later],
            // Later in the same second makes no difference.
            Course::Losing { .. } => &[Answered::AtOnce],
        }
    }

    fn actions_of(&self, moment: &Moment, i: usize, actions: &mut Vec<Action>) {
        let peer = &moment.peers[i];
        if peer.is_idle() && peer.rounds_left > 0 {
            actions.push(Action::Begin(i));
        }
        if peer.holds() {
            actions.push(Action::Leave(i));
        }
        if peer.is_due(Duration::from_secs(moment.now)) {
            actions.push(Action::Wake(i));
        }
        match (peer.errand, &moment.unanswered[i]) {
            (Some(_), Some(unanswered)) if unanswered.is_ripe => actions.push(Action::Answer(i)),
            (Some(_), Some(_)) | (None, _) => {}
            (Some(Errand::Write { .. }), None) => {
                actions.extend(self.when().iter().map(|answered| Action::Write(i, *answered)));
            }
            (Some(Errand::Read { read, .. }), None) => {
                let doubtful = moment.doubtful(read, self.course.seen_until());
                for expired in (0..=doubtful).filter(|set| set & !doubtful == 0) {
                    let look = |&answered| Action::Read { reader: i, expired, answered };
                    actions.extend(self.when().iter().map(look));
                }
            }
        }
    }
}

impl Course {
    /// No search can tell TTLs apart but by what divides them: a short one is shorter, and a third
    /// of the other one is a whole second.
    fn ttl(self) -> u64 {
        match self {
            Course::Late => 5,
            Course::Losing { .. } => 6,
        }
    }

    /// A row is certainly there before this age: the TTL less its rounding, by a clock that is
    /// ahead.
    fn seen_until(self) -> u64 {
        self.ttl() - 1 - MAX_CLOCK_SKEW
    }

    /// A row is certainly gone from this age on, by a clock that is behind.
    fn gone_from(self) -> u64 {
        self.ttl() + MAX_CLOCK_SKEW
    }

    fn terms(self) -> LeaseTerms {
        LeaseTerms::new(Duration::from_secs(self.ttl()), Duration::from_secs(MAX_CLOCK_SKEW))
    }
}

impl Moment {
    /// How many hold, each by its own clock.
    fn holders(&self) -> usize {
        let now = Duration::from_secs(self.now);
        self.peers.iter().filter(|peer| peer.holds_at(now)).count()
    }

    /// Whether a peer holds that was let in after this holder, by their own clocks.
    fn shows_later_holder(&self, holder: &Peer) -> bool {
        self.peers.iter().any(|peer| peer.held_since() >= holder.held_since())
    }

    fn set_clocks(&mut self, course: Course) {
        for (i, peer) in self.peers.iter_mut().enumerate() {
            let peer = Arc::make_mut(peer);
            peer.set_clock(Duration::from_secs(self.now));
            if let Course::Losing { ahead } = course {
                peer.set_wall_clock(self.now + if i == 0 { ahead } else { 0 });
            }
        }
    }

    /// Whether the writer of a write waits for its answer.
    fn is_awaited(&self, write: Effects) -> bool {
        let errand = self.peers[write.contender].errand;
        matches!(errand, Some(Errand::Write { write: awaited, .. }) if awaited == write)
    }

    /// Brings moments to one form that no contender can ever tell apart: a write that would change
    /// nothing never will, what is not there has no age, and a deletion hides nothing once no older
    /// write is under way.
    fn tidy(&mut self) {
        let Moment { rows, under_way, .. } = self;
        under_way.retain(|write| {
            let own = &rows[write.contender * KINDS..];
            let cells = write.cells.iter().zip(own);
            cells.into_iter().any(|(cell, row)| cell.is_some_and(|cell| cell.beats(row.cell)))
        });
        let gone = rows.iter_mut().enumerate().filter(|(_, row)| !row.cell.is_there());
        for (i, row) in gone {
            row.written = 0;
            if under_way.iter().all(|write| write.contender != i / KINDS) {
                row.cell.vanish();
            }
        }
    }

    /// The rows that a read may show or not, because they expire about now. Each is a bit.
    fn doubtful(&self, read: Read, seen_until: u64) -> u16 {
        let rows = rows_asked(read, self.peers.len());
        let doubtful = rows.into_iter().filter(|row| {
            let row = &self.rows[*row];
            row.cell.is_there() && self.now - row.written >= seen_until
        });
        doubtful.fold(0_u16, |set, row| set | 1 << row)
    }

    fn look(&self, reader: usize, expired: u16) -> Vec<SeenRow> {
        let Some(Errand::Read { read, .. }) = self.peers[reader].errand else {
            unreachable!("only a reader looks")
        };
        let rows = rows_asked(read, self.peers.len()).into_iter();
        let rows = rows.filter(|row| expired & (1 << row) == 0);
        rows.filter_map(|row| SeenRow::of(row, self.rows[row].cell)).collect()
    }

    fn pass(&mut self, course: Course) {
        self.now += 1;
        self.loss.pass();
        self.set_clocks(course);
        for unanswered in self.unanswered.iter_mut().flatten() {
            unanswered.is_ripe = true;
        }
        for row in &mut self.rows {
            if self.now - row.written >= course.gone_from() {
                row.cell.expire();
            }
        }
    }
}

impl Model for Expiry {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let contenders = self.scenario.requests.len();
        let Scenario { rounds, exchanges, front_max, .. } = self.scenario;
        let on_store = |i| Peer::new(i, rounds, 0).exchanging(exchanges).with_front_max(front_max);
        let peer = |i| on_store(i).on(self.course.terms());
        let mut moment = Moment {
            now: 0,
            peers: (0..contenders).map(peer).map(Arc::new).collect(),
            rows: vec![Row::default(); contenders * KINDS],
            under_way: Vec::new(),
            unanswered: vec![None; contenders],
            loss: lost::Aftermath::default(),
        };
        moment.set_clocks(self.course);
        vec![moment]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for i in 0..moment.peers.len() {
            self.actions_of(moment, i, actions);
        }
        let late = moment.under_way.iter().filter(|write| !moment.is_awaited(**write));
        actions.extend(late.copied().map(Action::ComeLate));
        if moment.now < self.seconds && self.may_pass(moment) {
            actions.push(Action::Pass);
        }
        self.vanishings(moment, actions);
    }

    fn next_state(&self, moment: &Moment, action: Action) -> Option<Moment> {
        let mut next = moment.clone();
        match action {
            Action::Pass => next.pass(self.course),
            Action::Begin(i) => {
                let request = self.scenario.requests[i];
                self.with_peer(&mut next, i, |peer| peer.begin(request));
            }
            Action::Leave(i) => self.with_peer(&mut next, i, Peer::leave),
            Action::Wake(i) => self.with_peer(&mut next, i, Peer::wake),
            Action::ComeLate(write) => self.take_effect(&mut next, write),
            Action::Write(i, answered) => {
                let Some(Errand::Write { write, .. }) = next.peers[i].errand else {
                    unreachable!("only a writer writes")
                };
                self.take_effect(&mut next, write);
                self.done(&mut next, i, Vec::new(), answered);
            }
            Action::Read { reader, expired, answered } => {
                if let Some(Errand::Read { write: Some(write), .. }) = next.peers[reader].errand {
                    self.take_effect(&mut next, write);
                }
                let rows = next.look(reader, expired);
                self.done(&mut next, reader, rows, answered);
            }
            Action::Answer(i) => self.answer(&mut next, i),
            Action::Vanish { contender } => self.vanish(&mut next, contender),
        }
        self.watch(&mut next);
        next.tidy();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::always("at most one holds", Self::is_exclusive)];
        if self.course != Course::Late {
            properties
                .push(Property::always("two contenders hold for a while at most", Self::is_short));
        }
        // A flaw is caught where two contenders hold, not where a contender waits.
        if self.course != Course::Late && self.scenario.flaw.is_none() {
            properties.push(Property::always("no contender waits for ever", Self::is_going_on));
        }
        properties
    }
}

impl Tell for Action {
    fn tell(&self) -> String {
        match self {
            Action::Pass => "a second passes".to_owned(),
            Action::Begin(i) => format!("{i} begins"),
            Action::Leave(i) => format!("{i} leaves"),
            Action::Wake(i) => format!("{i} wakes up"),
            Action::ComeLate(write) => format!("{}: an old write takes effect", write.contender),
            Action::Write(i, answered) => format!("{i}: its write takes effect, {answered}"),
            Action::Read { reader, expired: 0, answered } => {
                format!("{reader}: its read takes effect, {answered}")
            }
            Action::Read { reader, expired, answered } => {
                let rows = expired.count_ones();
                format!("{reader}: its read takes effect (expired rows: {rows}), {answered}")
            }
            Action::Answer(i) => format!("{i}: its request is answered"),
            Action::Vanish { contender } => format!("{contender}: its row is lost"),
        }
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Answered::AtOnce => "and is answered",
            Answered::Later => "and is not answered yet",
        })
    }
}

impl Tell for Moment {
    fn tell(&self) -> String {
        let peers: Vec<_> = self.peers.iter().map(ToString::to_string).collect();
        format!("{} s: {}", self.now, peers.join(" | "))
    }
}
