//! The model: what can happen next, and what must be true.

use std::collections::HashSet;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use stateright::{Model, Property};

use crate::core::bakery::{
    ContenderEvent, ContenderInput, Failure, Loss, Mode, Patience, Read, ReadFailure, RevokeKind,
    SeededBug, Statics, WriteOutcome, sweep,
};
use crate::peer::{Errand, HORIZON, Peer, Reaction, Removal, fingerprint};
use crate::scenario::{Flaw, Revoking, Scenario};
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};
use crate::store::{Effects, SeenRow, Store, id_of, stored};

/// A scenario, with rows in a store of a kind.
#[derive(Debug)]
pub(crate) struct Contention<S> {
    scenario: Scenario,
    sightings: Arc<Sightings>,
    /// Fingerprints of states from which every contender is served once the weather is fine.
    served: Mutex<HashSet<u64>>,
    /// Fingerprints of all that contenders were in together, whatever the rows.
    met: Mutex<HashSet<u64>>,
    /// Whether something unsafe was found.
    violations: FirstViolation,
    store: PhantomData<fn() -> S>,
}

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct World<S> {
    // Most steps change one only, and share the others.
    peers: Vec<Arc<Peer>>,
    store: S,
    revoker: Revoker,
    sweeper: Sweeper,
    /// How often the lock was granted, where a holder may renew, and tell since when it holds.
    grants: u64,
}

/// The client that asks a contender to leave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Revoker {
    Idle,
    /// The `revoked::` row is under way.
    Asking {
        round: i64,
        write: Effects,
    },
    /// It is acknowledged.
    Asked {
        round: i64,
        target: usize,
    },
    /// The removal of the contender's rows is under way.
    Removing {
        round: i64,
        write: Effects,
    },
    Done,
}

/// The client that sweeps the object. It may stop at any step, and for any time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sweeper {
    Idle,
    /// The mark is under way.
    Marking {
        write: Effects,
    },
    Reading,
    /// What it deletes is under way, if it deletes anything.
    Done,
}

/// What can happen next. Contenders are told by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action<W> {
    /// Its caller wants the lock.
    Begin(usize),
    /// Its request gets on.
    Progress(usize, W),
    /// Its request fails, and it is not known whether it will have an effect.
    Fail(usize),
    /// Its write counts as acknowledged, although it is under way.
    CountAsAcknowledged(usize),
    /// Its caller gives the lock back, or gives up.
    Leave(usize),
    /// It releases, and begins its next round before that is acknowledged.
    Hurry(usize),
    /// It dies, and its rows expire.
    Die(usize),
    /// It has waited as long as it will.
    LosePatience(usize),
    /// It renews its hold.
    Renew(usize),
    /// It is asked to leave.
    Revoke(usize),
    /// The client that asks it gets on.
    RevokerProgress(W),
    /// Its rows are removed by a write of this stamp.
    Remove { target: usize, stamp: i64 },
    /// A client begins to sweep the object.
    Sweep,
    /// The client that sweeps gets on.
    SweeperProgress(W),
}

/// What came of a step.
#[derive(Debug, Default)]
struct Outcome {
    events: Vec<ContenderEvent>,
    rows: Vec<SeenRow>,
}

impl<S: Store> Contention<S> {
    pub(crate) fn new(scenario: Scenario, sightings: Arc<Sightings>) -> Self {
        Contention {
            scenario,
            sightings,
            served: Mutex::default(),
            met: Mutex::default(),
            violations: FirstViolation::default(),
            store: PhantomData,
        }
    }

    /// All that contenders were in together, in short.
    pub(crate) fn met(&self) -> (usize, u64) {
        let met = self.met.lock().expect("no search panics");
        (met.len(), met.iter().fold(0, |sum, fingerprint| sum ^ fingerprint))
    }

    fn mode(&self, contender: usize) -> Mode {
        self.scenario.requests[contender].mode
    }

    fn modes(&self) -> Vec<Mode> {
        self.scenario.requests.iter().map(|request| request.mode).collect()
    }

    /// Where the store has the mark, and the read of the client that sweeps.
    fn sweepers_place(&self) -> usize {
        self.scenario.requests.len()
    }

    // What a step does.

    fn take(&self, world: &mut World<S>, action: &Action<S::Way>) -> Outcome {
        SeededBug::plant(self.scenario.mutation());
        let outcome = match *action {
            Action::Begin(i) => {
                let request = self.scenario.requests[i];
                self.with_peer(world, i, |peer| peer.begin(request))
            }
            Action::Progress(i, way) => self.progress(world, i, way),
            Action::Fail(i) => self.fail(world, i),
            Action::CountAsAcknowledged(i) => self.with_peer(world, i, Peer::acknowledged),
            Action::Leave(i) => self.with_peer(world, i, Peer::leave),
            Action::Hurry(i) => {
                let request = self.scenario.requests[i];
                self.with_peer(world, i, |peer| {
                    peer.forget();
                    peer.begin(request)
                })
            }
            Action::Die(i) => {
                Arc::make_mut(&mut world.peers[i]).die();
                world.store.forget_read(i);
                world.store.expire(i);
                Outcome::default()
            }
            Action::LosePatience(i) => self.with_peer(world, i, Peer::wait),
            Action::Renew(i) => self.with_peer(world, i, Peer::renew),
            Action::Revoke(_) | Action::RevokerProgress(_) | Action::Remove { .. } => {
                self.revoke(world, action);
                Outcome::default()
            }
            Action::Sweep | Action::SweeperProgress(_) => {
                self.sweep(world, action);
                Outcome::default()
            }
        };
        world.store.tidy();
        outcome
    }

    fn with_peer(
        &self,
        world: &mut World<S>,
        i: usize,
        act: impl FnOnce(&mut Peer) -> Reaction,
    ) -> Outcome {
        let peer = Arc::make_mut(&mut world.peers[i]);
        let held = peer.holds();
        let reaction = act(peer);
        if peer.holds() && !held && self.scenario.renewals() > 0 {
            world.grants += 1;
            // A later grant bears a later time, as where clocks differ by less than is between two.
            world
                .peers
                .iter_mut()
                .for_each(|peer| Arc::make_mut(peer).set_wall_clock(world.grants));
        }
        let peer = &world.peers[i];
        match (reaction.read, peer.errand) {
            (Some(read), _) => world.store.begin_read(i, read, reaction.write),
            (None, Some(Errand::Read { .. })) => {}
            (None, Some(Errand::Write { .. }) | None) => world.store.forget_read(i),
        }
        if let Some(write) = reaction.write {
            world.store.send(write);
        }
        Outcome { events: reaction.events, rows: Vec::new() }
    }

    fn progress(&self, world: &mut World<S>, i: usize, way: S::Way) -> Outcome {
        match world.peers[i].errand.expect("only what is under way gets on") {
            Errand::Write { write, .. } => {
                world.store.acknowledge(write, way);
                self.with_peer(world, i, Peer::acknowledged)
            }
            Errand::Read { op, .. } => match world.store.read_on(i, way) {
                Some(rows) => {
                    let (rows_seen, statics) = stored(&rows, &self.modes());
                    let answer = ContenderInput::Read { op, rows: Ok(rows_seen), statics };
                    let outcome = self.with_peer(world, i, |peer| peer.answered(answer));
                    Outcome { rows, ..outcome }
                }
                None => Outcome::default(),
            },
        }
    }

    fn fail(&self, world: &mut World<S>, i: usize) -> Outcome {
        let answer = match world.peers[i].errand.expect("only what is under way fails") {
            Errand::Write { op, .. } => {
                ContenderInput::Written { op, outcome: WriteOutcome::Unknown }
            }
            Errand::Read { op, write: Some(_), .. } => {
                ContenderInput::Written { op, outcome: WriteOutcome::Unknown }
            }
            Errand::Read { op, write: None, .. } => {
                let (rows, statics) = (Err(ReadFailure::Failed), Statics::default());
                ContenderInput::Read { op, rows, statics }
            }
        };
        self.with_peer(world, i, |peer| peer.answered(answer))
    }

    fn revoke(&self, world: &mut World<S>, action: &Action<S::Way>) {
        world.revoker = match (&world.revoker, action) {
            (Revoker::Idle, &Action::Revoke(target)) => {
                let peer = &world.peers[target];
                let round = peer.round();
                let kind = match self.scenario.troubles.revocation {
                    Revoking::Force => RevokeKind::Force,
                    Revoking::Asking | Revoking::Never => RevokeKind::Request,
                };
                let write = Effects::revocation(target, round, peer.stamp_of_revocation(), kind);
                world.store.send(write);
                Revoker::Asking { round, write }
            }
            (&Revoker::Asking { round, write }, &Action::RevokerProgress(way)) => {
                world.store.acknowledge(write, way);
                match self.scenario.troubles.revocation {
                    Revoking::Force => Revoker::Asked { round, target: write.contender },
                    Revoking::Asking | Revoking::Never => Revoker::Done,
                }
            }
            (&Revoker::Asked { round, .. }, &Action::Remove { target, stamp }) => {
                let write = Effects::removal(target, stamp);
                world.store.send(write);
                let peer = Arc::make_mut(&mut world.peers[target]);
                peer.removed(round, Removal::Sent);
                Revoker::Removing { round, write }
            }
            (&Revoker::Removing { round, write }, &Action::RevokerProgress(way)) => {
                world.store.acknowledge(write, way);
                let peer = Arc::make_mut(&mut world.peers[write.contender]);
                peer.removed(round, Removal::Done);
                Revoker::Done
            }
            (revoker, action) => unreachable!("{action:?} of {revoker:?}"),
        };
    }

    fn sweep(&self, world: &mut World<S>, action: &Action<S::Way>) {
        let place = self.sweepers_place();
        world.sweeper = match (&world.sweeper, action) {
            (Sweeper::Idle, Action::Sweep) => {
                let write = Effects::mark(place, HORIZON);
                world.store.send(write);
                if self.scenario.flaw == Some(Flaw::SweepReadsEarly) {
                    world.store.begin_read(place, Read::Object, None);
                    Sweeper::Reading
                } else {
                    Sweeper::Marking { write }
                }
            }
            (&Sweeper::Marking { write }, &Action::SweeperProgress(way)) => {
                world.store.acknowledge(write, way);
                world.store.begin_read(place, Read::Object, None);
                Sweeper::Reading
            }
            (Sweeper::Reading, &Action::SweeperProgress(way)) => {
                match world.store.read_on(place, way) {
                    None => Sweeper::Reading,
                    Some(rows) => {
                        self.sweep_others(world, &rows);
                        Sweeper::Done
                    }
                }
            }
            (sweeper, action) => unreachable!("{action:?} of {sweeper:?}"),
        };
    }

    /// A range delete does to the rows of each contender what a delete of them does.
    fn sweep_others(&self, world: &mut World<S>, rows: &[SeenRow]) {
        let (rows, statics) = stored(rows, &self.modes());
        let Some(spared) = sweep::spared(&rows, statics.mark, HORIZON) else {
            return;
        };
        self.sightings.note(Sight::Swept);
        for contender in 0..world.peers.len() {
            if spared.contains(&id_of(contender)) {
                self.sightings.note(Sight::Spared);
            } else {
                world.store.send(Effects::removal(contender, HORIZON));
            }
        }
    }

    // What must be true.

    /// Whether all holders may hold together. A holder that is removed by force is left to fencing
    /// tokens.
    fn is_exclusive(&self, world: &World<S>) -> bool {
        let met = fingerprint(&world.peers);
        self.met.lock().expect("no search panics").insert(met);
        self.violations.allow(self.may_hold_together(world))
    }

    fn may_hold_together(&self, world: &World<S>) -> bool {
        let peers = world.peers.iter().enumerate();
        let inside = peers.filter(|(_, peer)| peer.holds() && peer.removal == Removal::None);
        let inside: Vec<_> = inside.map(|(i, _)| self.mode(i)).collect();
        may_hold_together(&inside)
    }

    /// Whether no contender was let in whose rows had been removed before it looked.
    fn is_seen(&self, world: &World<S>) -> bool {
        self.violations.allow(!world.peers.iter().any(|peer| peer.let_in_unseen))
    }

    /// Whether none wrote its rows again that was asked to leave.
    fn is_not_renewed(&self, world: &World<S>) -> bool {
        self.violations.allow(!world.peers.iter().any(|peer| peer.renewed_anyway))
    }

    /// Whether every living contender is served if nothing goes wrong from now on.
    fn is_going_on(&self, world: &World<S>) -> bool {
        let mut world = world.clone();
        let mut passed = Vec::new();
        for _ in 0..PATIENCE {
            let fingerprint = fingerprint(&world);
            let known = self.served.lock().expect("no search panics").contains(&fingerprint);
            passed.push(fingerprint);
            if known || world.peers.iter().all(|peer| peer.is_done()) {
                self.served.lock().expect("no search panics").extend(passed);
                return true;
            }
            self.go_on_calmly(&mut world);
        }
        false
    }

    /// Everything under way arrives, and each gets on by one request.
    fn go_on_calmly(&self, world: &mut World<S>) {
        for i in 0..world.peers.len() {
            world.store.calm_down();
            world.store.tidy();
            let action = self.calm_action(world, i);
            if let Some(action) = action {
                self.take(world, &action);
            }
        }
    }

    fn calm_action(&self, world: &World<S>, i: usize) -> Option<Action<S::Way>> {
        let peer = &world.peers[i];
        match peer.errand {
            Some(_) => {
                let way = self.ways(world, i).into_iter().next();
                Some(Action::Progress(i, way.expect("what is under way gets on in calm weather")))
            }
            None if peer.is_dead() => None,
            None if peer.is_idle() => (peer.rounds_left > 0).then_some(Action::Begin(i)),
            None => Some(Action::Leave(i)),
        }
    }

    /// Whether no row is left once all have left.
    fn is_clean(&self, world: &World<S>) -> bool {
        if !world.peers.iter().all(|peer| peer.is_done()) {
            return true;
        }
        let mut store = world.store.clone();
        // A release that no contender waited for is lost in the worst case; then rows expire.
        if self.scenario.troubles.haste || world.revoker != Revoker::Idle {
            store.calm_down();
        }
        !store.shows_rows()
    }

    // What can happen.

    fn ways(&self, world: &World<S>, i: usize) -> Vec<S::Way> {
        match world.peers[i].errand {
            Some(Errand::Write { write, .. }) => world.store.acknowledgements(write),
            Some(Errand::Read { .. }) => world.store.readings(i),
            None => Vec::new(),
        }
    }

    fn actions_of(&self, world: &World<S>, i: usize, actions: &mut Vec<Action<S::Way>>) {
        let peer = &world.peers[i];
        let troubles = self.scenario.troubles;
        if peer.is_idle() && peer.rounds_left > 0 {
            actions.push(Action::Begin(i));
        }
        if self.counts_as_acknowledged(peer) {
            actions.push(Action::CountAsAcknowledged(i));
        } else {
            let ways = self.ways(world, i).into_iter();
            actions.extend(ways.map(|way| Action::Progress(i, way)));
        }
        if troubles.failures && peer.errand.is_some() {
            actions.push(Action::Fail(i));
        }
        if peer.may_leave() && (peer.holds() || troubles.giving_up) {
            actions.push(Action::Leave(i));
        }
        if troubles.haste && peer.is_releasing() && peer.rounds_left > 0 {
            actions.push(Action::Hurry(i));
        }
        let dead = world.peers.iter().filter(|peer| peer.is_dead()).count();
        if dead < troubles.deaths && !peer.is_dead() && !peer.is_idle() {
            actions.push(Action::Die(i));
        }
        if self.scenario.requests[i].patience == Patience::Try && peer.may_lose_patience() {
            actions.push(Action::LosePatience(i));
        }
        if peer.holds() && peer.errand.is_none() && peer.renewals_left > 0 {
            actions.push(Action::Renew(i));
        }
    }

    /// Whether the flaw answers the write at once.
    fn counts_as_acknowledged(&self, peer: &Peer) -> bool {
        let early = self.scenario.flaw == Some(Flaw::ReadBeforeAcknowledgement);
        early && matches!(peer.errand, Some(Errand::Write { write, .. }) if !write.is_release())
    }

    fn actions_of_sweeper(&self, world: &World<S>, actions: &mut Vec<Action<S::Way>>) {
        let ways = match world.sweeper {
            Sweeper::Idle => {
                actions.extend(self.scenario.troubles.sweep.then_some(Action::Sweep));
                return;
            }
            Sweeper::Marking { write } => world.store.acknowledgements(write),
            Sweeper::Reading => world.store.readings(self.sweepers_place()),
            Sweeper::Done => return,
        };
        actions.extend(ways.into_iter().map(Action::SweeperProgress));
    }

    fn actions_of_revoker(&self, world: &World<S>, actions: &mut Vec<Action<S::Way>>) {
        match world.revoker {
            Revoker::Idle if self.scenario.troubles.revocation != Revoking::Never => {
                let peers = world.peers.iter().enumerate();
                let there = peers.filter(|(i, peer)| {
                    peer.may_leave() && !world.store.newest_stamps(*i, peer.round()).is_empty()
                });
                actions.extend(there.map(|(i, _)| Action::Revoke(i)));
            }
            Revoker::Asking { write, .. } | Revoker::Removing { write, .. } => {
                let ways = world.store.acknowledgements(write);
                actions.extend(ways.into_iter().map(Action::RevokerProgress));
            }
            Revoker::Asked { round, target } => {
                let newest = world.store.newest_stamps(target, round).into_iter();
                actions.extend(newest.map(|newest| Action::Remove { target, stamp: newest + 1 }));
            }
            Revoker::Idle | Revoker::Done => {}
        }
    }

    // What is worth noting.

    fn note(
        &self,
        before: &World<S>,
        after: &World<S>,
        action: &Action<S::Way>,
        outcome: &Outcome,
    ) {
        let note = |sight| self.sightings.note(sight);
        match *action {
            Action::Leave(i) if !before.peers[i].holds() => {
                let drawn = before.peers[i].ticket().is_some();
                note(if drawn { Sight::GivenUpInTheQueue } else { Sight::GivenUpInTheDoorway });
            }
            Action::Die(i) => {
                let held = before.peers[i].holds();
                note(if held { Sight::HolderDied } else { Sight::ContenderDied });
            }
            Action::Hurry(_) => note(Sight::NextRoundInHaste),
            Action::Progress(i, _) => self.note_progress(before, after, i),
            Action::Leave(_)
            | Action::Begin(_)
            | Action::Fail(_)
            | Action::CountAsAcknowledged(_)
            | Action::LosePatience(_)
            | Action::Renew(_)
            | Action::Revoke(_)
            | Action::RevokerProgress(_)
            | Action::Remove { .. }
            | Action::Sweep
            | Action::SweeperProgress(_) => {}
        }
        let is_over = |(contender, round): (usize, i64)| {
            let peer = before.peers.get(contender);
            peer.is_some_and(|peer| peer.is_idle() || peer.round() != round)
        };
        if outcome.rows.iter().filter_map(|row| row.announced()).any(is_over) {
            note(Sight::StaleRow);
        }
        for event in &outcome.events {
            match event {
                ContenderEvent::Taken => note(Sight::Taken),
                ContenderEvent::Expiring(_) | ContenderEvent::Lost(Loss::Revoked(_)) => {
                    note(Sight::HolderRevoked);
                }
                ContenderEvent::Failed(Failure::Revoked(_)) => note(Sight::WaiterRevoked),
                ContenderEvent::Lost(Loss::RowMissing)
                | ContenderEvent::Failed(Failure::RowMissing) => {
                    note(Sight::RowMissing);
                }
                ContenderEvent::Lost(Loss::Conflict { .. }) => {
                    let removed = before.peers.iter().any(|peer| peer.removal != Removal::None);
                    assert!(removed, "a holder gave way, though no rows were removed");
                    // A torn read may show it its successor before the request to leave.
                    note(Sight::EarlierGivesWay);
                }
                ContenderEvent::Lost(Loss::Expired)
                | ContenderEvent::Failed(
                    Failure::Rejected | Failure::NoTicketLeft | Failure::MarkOutOfReach { .. },
                ) => {
                    unreachable!(
                        "leases do not end, no row is lost, nothing is refused, and all have the \
                         same limit"
                    )
                }
                ContenderEvent::Held { .. }
                | ContenderEvent::Renewed { .. }
                | ContenderEvent::Confirmed
                | ContenderEvent::Released => {}
            }
        }
    }

    fn note_progress(&self, before: &World<S>, after: &World<S>, i: usize) {
        let (was, is) = (&before.peers[i], &after.peers[i]);
        if self.scenario.troubles.sweep && was.is_looking() && is.is_beginning_anew() {
            self.sightings.note(Sight::SentBack);
        }
        if is.holds() && !was.holds() {
            let short = is.ticket().is_none();
            self.sightings.note(if short { Sight::FastPath } else { Sight::ThroughTheQueue });
            if was.asks_the_front() {
                self.sightings.note(Sight::FromTheFront);
            }
        }
        let others = after.peers.iter().enumerate().filter(|(other, _)| *other != i);
        let tickets = others.filter_map(|(_, other)| other.ticket());
        let ticket = is.ticket().filter(|_| was.ticket().is_none());
        if let Some(ticket) = ticket
            && tickets.clone().any(|other| other == ticket)
        {
            self.sightings.note(Sight::Tie);
        }
    }
}

/// Whether holders of these modes may hold together.
pub(crate) fn may_hold_together(inside: &[Mode]) -> bool {
    inside.iter().all(|mode| match mode {
        Mode::Exclusive => inside.len() == 1,
        Mode::Shared => inside.iter().all(|other| *other == Mode::Shared),
        Mode::Limited(most) => {
            let alike = inside.iter().all(|other| other == mode);
            alike && i32::try_from(inside.len()).is_ok_and(|holders| holders <= *most)
        }
    })
}

/// How many requests of each it takes at most until all are served.
const PATIENCE: usize = 200;

impl<S: Store> Model for Contention<S> {
    type State = World<S>;
    type Action = Action<S::Way>;

    fn init_states(&self) -> Vec<World<S>> {
        let contenders = self.scenario.requests.len();
        let renewals = self.scenario.renewals();
        let Scenario { rounds, exchanges, front_max, .. } = self.scenario;
        let peer =
            |i| Peer::new(i, rounds, renewals).exchanging(exchanges).with_front_max(front_max);
        let peers = (0..contenders).map(peer).map(Arc::new).collect();
        let store = S::new(&self.scenario);
        vec![World { peers, store, revoker: Revoker::Idle, sweeper: Sweeper::Idle, grants: 0 }]
    }

    fn actions(&self, world: &World<S>, actions: &mut Vec<Action<S::Way>>) {
        for i in 0..world.peers.len() {
            self.actions_of(world, i, actions);
        }
        self.actions_of_revoker(world, actions);
        self.actions_of_sweeper(world, actions);
    }

    fn next_state(&self, world: &World<S>, action: Action<S::Way>) -> Option<World<S>> {
        let mut next = world.clone();
        let outcome = self.take(&mut next, &action);
        self.note(world, &next, &action, &outcome);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let safe = vec![
            Property::always("only compatible holders hold together", Self::is_exclusive),
            Property::always("a removed contender is not let in", Self::is_seen),
            Property::always("a revoked holder is not renewed", Self::is_not_renewed),
        ];
        let live = vec![
            Property::always("no contender waits for ever", Self::is_going_on),
            Property::always("no row is left when all have left", Self::is_clean),
        ];
        // A flaw is caught where two contenders hold, not where it is merely untidy.
        if self.scenario.flaw.is_some() { safe } else { [safe, live].concat() }
    }
}

impl<W: Display> Tell for Action<W> {
    fn tell(&self) -> String {
        match self {
            Action::Begin(i) => format!("{i} begins"),
            Action::Progress(i, way) => format!("{i}: {way}"),
            Action::Fail(i) => format!("{i}: its request fails"),
            Action::CountAsAcknowledged(i) => format!("{i}: its write counts as acknowledged"),
            Action::Leave(i) => format!("{i} leaves"),
            Action::Hurry(i) => format!("{i} begins its next round in haste"),
            Action::Die(i) => format!("{i} dies"),
            Action::LosePatience(i) => format!("{i} loses its patience"),
            Action::Renew(i) => format!("{i} renews"),
            Action::Revoke(i) => format!("{i} is asked to leave"),
            Action::RevokerProgress(way) => format!("the revoker: {way}"),
            Action::Remove { target, .. } => format!("the rows of {target} are removed"),
            Action::Sweep => "a client begins to sweep".to_owned(),
            Action::SweeperProgress(way) => format!("the client that sweeps: {way}"),
        }
    }
}

impl<S: Store> Tell for World<S> {
    fn tell(&self) -> String {
        let peers: Vec<_> = self.peers.iter().map(ToString::to_string).collect();
        peers.join(" | ")
    }
}
