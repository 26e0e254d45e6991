//! One object in one client: everything that decides about it, without any I/O.
//!
//! An [`Object`] has the callers that want the object, the places of this client for it, and who
//! uses them: its own callers and, by message, other clients.
//!
//! # The contract
//!
//! After each [`Object::handle`], take every output from [`Object::poll`] until it is empty, then
//! sleep for [`Object::sleep`] or until the next input. Read [`Now`] after the input has arrived,
//! not before. Outputs that say so are answered by an input, once; the answers may come in any
//! order. No output is made while others are taken.
//!
//! # Where to look
//!
//! [`io`] defines inputs and outputs. [`slot`] is one contender with the keeper of its place and
//! its users; callers that want an object with others up to a limit have a slot each. [`yielding`]
//! has the callers that let others go first. [`sweep`] hides the rows of clients that left or died.
//! [`memory`] is what counts when the object is used again.

pub(crate) mod callers;
pub(crate) mod io;
mod memory;
mod slot;
mod sweep;
#[cfg(any(test, instrumented))]
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod yielding;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use self::callers::Callers;
use self::io::{
    Caller, CallerId, Health, HolderRequest, Input, Now, Output, Refusal, Report, User,
};
pub(crate) use self::memory::Memory;
use self::slot::{SLOT_OF_TURNS, Slot};
use self::sweep::Sweep;
use self::yielding::Yielding;
use crate::core::bakery::{
    ContenderId, Failure, LeaseTerms, Mode, Patience, Read, ReadFailure, SeededBug, Seen,
    SeenContender, sweep as sweeps,
};
use crate::core::turns::{self, GuestId, KeptEnd, TurnId};

/// The most contenders of one client for limited callers of one object. Further callers wait until
/// one of these is free.
const LIMITED_MAX: i16 = 64;

/// What does not change while an object is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    /// How long guards wait for what they ask.
    pub(crate) patience: Duration,
    /// Whether several callers may use one place in turn.
    pub(crate) turns: bool,
    /// Whether the client has peers.
    pub(crate) has_network: bool,
    /// Whether the store writes and reads in one round trip.
    pub(crate) exchanges: bool,
    /// How long a guest may have a turn, if that is limited.
    pub(crate) guest_hold_max: Option<Duration>,
    /// How far the clocks of two nodes may differ.
    pub(crate) max_clock_skew: Duration,
    /// How long an idle place is kept at most; zero: not at all.
    pub(crate) keep_idle: Duration,
}

/// One object in one client; see the [module](self) for how to drive it.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The client, with the slot of turns.
    id: ContenderId,
    settings: Settings,
    /// Mostly there is one. A leaf of the map has room for eleven, which would be 30 KiB of slots
    /// for each lock that is held.
    slots: BTreeMap<i16, Box<Slot>>,
    /// The callers that no slot has: limited ones that wait until one is free, and all that wait
    /// until an earlier machine's rows are over.
    waiting: Callers,
    yielding: Yielding,
    sweep: Option<Sweep>,
    /// A report was made of the object's mark.
    mark_reported: bool,
    memory: Memory,
    /// The terms of the rows that live longest of all that it may have written.
    longest_terms: Option<LeaseTerms>,
    health: Health,
    is_closing: bool,
    outputs: VecDeque<Output>,
}

impl Object {
    /// An object that is not in use.
    pub(crate) fn new(id: ContenderId, settings: Settings, memory: Memory) -> Self {
        Object {
            id: ContenderId { slot: SLOT_OF_TURNS, ..id },
            settings,
            slots: BTreeMap::new(),
            waiting: Callers::default(),
            yielding: Yielding::default(),
            sweep: None,
            mark_reported: false,
            memory,
            longest_terms: None,
            health: Health::Good,
            is_closing: false,
            outputs: VecDeque::new(),
        }
    }

    /// Puts inputs that came together in the order in which they are handled: callers that wait
    /// come first. A place is given up when its last turn is returned, and for a try it counts as
    /// free.
    pub(crate) fn arrange(inputs: &mut [Input]) {
        let waits = |caller: &Caller| caller.acquire.patience == Patience::Wait;
        inputs.sort_by_key(|input| !matches!(input, Input::Acquire(caller) if waits(caller)));
    }

    /// Handles an input.
    pub(crate) fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::Acquire(caller) => self.acquire(now, caller),
            Input::Leave { caller } => self.leave(now, caller),
            Input::Holder { turn, request } => self.holder(now, turn, request),
            Input::Written { slot, op, outcome } => {
                self.with(slot, |slot| slot.written(now, op, outcome));
            }
            Input::Read { slot, op, read, seen } => {
                self.look_at(now, *read, seen.as_ref().ok());
                self.with(slot, |slot| slot.read(now, op, seen));
            }
            Input::OneReplicaRead { slot, rows } => {
                self.with(slot, |slot| slot.outsiders_read(now, &rows));
            }
            Input::Looked(seen) => self.looked(now, &seen),
            Input::SweepRead(seen) => self.sweep_read(now, seen),
            Input::SweepWritten(is_acknowledged) => self.sweep_written(is_acknowledged),
            Input::Block { round, block } => {
                self.with(SLOT_OF_TURNS, |slot| slot.block_issued(now, round, block));
            }
            Input::Connected { keeper, is_reachable } => {
                self.with(SLOT_OF_TURNS, |slot| slot.connected(now, keeper, is_reachable));
            }
            Input::Request { guest, name, request } => {
                self.with_turns(now, |slot| slot.guest_request(now, guest, name, request));
            }
            Input::GuestLeft { guest } => self.with(SLOT_OF_TURNS, |s| s.guest_left(now, guest)),
            Input::Response { keeper, response } => {
                self.with_turns(now, |slot| slot.response(now, keeper, response));
            }
            Input::Reconnected { keeper } => {
                self.with(SLOT_OF_TURNS, |slot| slot.reconnected(now, keeper));
            }
            Input::TooManyKept => {
                self.with(SLOT_OF_TURNS, |slot| slot.give_up_kept(now, KeptEnd::TooMany));
            }
            Input::Health(health) => self.health_changed(now, health),
            Input::Close => self.close(now),
            Input::Tick => {}
        }
        self.pass_time(now);
        self.forget_idle_slots(now);
    }

    /// The next output.
    #[must_use]
    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// How long until [`Input::Tick`] is due, unless another input comes first.
    #[must_use]
    pub(crate) fn sleep(&self, now: turns::Now) -> Option<Duration> {
        let sweep = self.sweep.as_ref().and_then(Sweep::deadline);
        let orphaned = self.memory.orphaned_until.filter(|_| !self.waiting.is_empty());
        let (waiting, yielding) = (self.waiting.deadline(), self.yielding.deadline());
        let others = [waiting, yielding, sweep, orphaned];
        let others = others.iter().flatten().copied();
        let by_clock = self.slots().filter_map(Slot::deadline).chain(others).min();
        let by_boot = self.slots().filter_map(Slot::deadline_by_boot).min();
        let by_clock = by_clock.map(|due| due.saturating_sub(now.elapsed));
        let by_boot = by_boot.map(|due| due.saturating_sub(now.boot));
        by_clock.into_iter().chain(by_boot).min()
    }

    /// Whether there is nothing left to do.
    pub(crate) fn is_idle(&self) -> bool {
        let is_over = self.is_closing && self.slots().all(Slot::is_over);
        let has_callers = !(self.waiting.is_empty() && self.yielding.is_empty());
        is_over || (self.slots.is_empty() && !has_callers && self.sweep.is_none())
    }

    /// What counts later.
    pub(crate) fn memory(&self, now: Now) -> Memory {
        let mut memory = self.memory.clone();
        for (number, slot) in &self.slots {
            note(&mut memory, now, *number, slot);
        }
        memory
    }

    /// The same after its task has failed: rows may be there that it has written, and guests may
    /// have a turn of them.
    pub(crate) fn memory_of_failed(&self, now: Now) -> Memory {
        let mut memory = self.memory(now);
        let is_needed = self.settings.has_network && !SeededBug::FailedTaskForgotten.is_planted();
        let terms = self.longest_terms.filter(|_| is_needed);
        let gone_by = terms.map(|terms| terms.gone_by(now.elapsed));
        memory.orphaned_until = memory.orphaned_until.max(gone_by);
        memory
    }

    // Callers.

    fn acquire(&mut self, now: Now, caller: Box<Caller>) {
        let refusal = match self.health {
            _ if self.is_closing => Refusal::Closed,
            Health::ClocksDiffer | Health::TableGone => Refusal::Unhealthy(self.health),
            Health::Good => {
                return match caller.yields {
                    Some(limit) => self.yielding.insert(now, limit, caller, &mut self.outputs),
                    None => self.admit(now, caller),
                };
            }
        };
        self.refuse(caller.number, refusal);
    }

    /// A read for callers that yield is answered.
    fn looked(&mut self, now: Now, seen: &Result<Seen, ReadFailure>) {
        let is_unshared = self.yielding.looked(now, seen.as_ref().ok());
        if is_unshared {
            while let Some(caller) = self.yielding.take_first() {
                self.admit(now, caller);
            }
        } else if seen.is_ok() {
            for caller in self.yielding.tries() {
                self.yielding.take(caller);
                self.refuse(caller, Refusal::Taken);
            }
        } else if seen.as_ref().is_err_and(|failure| *failure == ReadFailure::Rejected) {
            while let Some(caller) = self.yielding.take_first() {
                let waited = now.elapsed.saturating_sub(caller.asked);
                let refusal = Refusal::Failed { failure: Failure::Rejected, waited };
                self.refuse(caller.number, refusal);
            }
        }
    }

    fn time_out(&mut self, now: Now, caller: &Caller, ahead: Vec<SeenContender>) {
        let waited = now.elapsed.saturating_sub(caller.asked);
        self.refuse(caller.number, Refusal::TimedOut { waited, user: None, ahead });
    }

    /// Lets a caller come to a slot, or wait until one is free.
    fn admit(&mut self, now: Now, caller: Box<Caller>) {
        let terms = caller.acquire.terms;
        if self.longest_terms.is_none_or(|longest| longest.ttl() < terms.ttl()) {
            self.longest_terms = Some(terms);
        }
        let slot = if self.memory.is_orphaned(now) { None } else { self.slot_for(&caller) };
        match slot {
            Some(number) => {
                if number != SLOT_OF_TURNS {
                    // It would wait in the table for the place of its own client.
                    self.with(SLOT_OF_TURNS, |slot| slot.give_up_kept(now, KeptEnd::OtherMode));
                }
                self.use_slot(now, number);
                self.with(number, |slot| slot.join(now, caller));
            }
            None if caller.acquire.patience == Patience::Try => {
                self.refuse(caller.number, Refusal::Taken);
            }
            None => self.waiting.insert(caller),
        }
    }

    /// The slot that serves a caller: one place for those that use it in turn, and for each limited
    /// caller the first one that is free, if one is.
    fn slot_for(&self, caller: &Caller) -> Option<i16> {
        match caller.acquire.mode {
            Mode::Exclusive | Mode::Shared => Some(SLOT_OF_TURNS),
            Mode::Limited(_) => {
                let mut slots = SLOT_OF_TURNS + 1..=LIMITED_MAX;
                slots.find(|slot| !self.slots.contains_key(slot))
            }
        }
    }

    /// Begins to use a slot, unless it is in use.
    fn use_slot(&mut self, now: Now, number: i16) {
        let (id, settings) = (ContenderId { slot: number, ..self.id }, self.settings);
        let memory = &self.memory;
        self.slots.entry(number).or_insert_with(|| Box::new(Slot::new(now, id, settings, memory)));
    }

    fn leave(&mut self, now: Now, caller: CallerId) {
        if self.waiting.take(caller).or_else(|| self.yielding.take(caller)).is_some() {
            return;
        }
        // The slots that don't have it change nothing.
        self.for_each(|slot| slot.leave(now, caller));
    }

    fn refuse(&mut self, caller: CallerId, refusal: Refusal) {
        self.outputs.push_back(Output::Refused { caller, refusal });
    }

    // Holders.

    /// A turn of this client's own place is of its slot; one of another client is of the slot of
    /// turns.
    fn holder(&mut self, now: Now, turn: TurnId, request: HolderRequest) {
        let is_own = turn.place.client == self.id.client;
        let number = if is_own { turn.place.slot } else { SLOT_OF_TURNS };
        if self.slots.contains_key(&number) {
            self.with(number, |slot| slot.holder_request(now, turn, request));
        } else {
            slot::answer_over(&request, &mut self.outputs);
        }
    }

    // The client.

    fn health_changed(&mut self, now: Now, health: Health) {
        self.health = health;
        self.for_each(|slot| slot.health_changed(now, health));
        if health != Health::Good {
            self.dismiss_waiting(&Refusal::Unhealthy(health));
        }
    }

    fn close(&mut self, now: Now) {
        self.is_closing = true;
        // Nothing waits for it, and it is harmless at any step.
        self.sweep = None;
        self.dismiss_waiting(&Refusal::Closed);
        self.for_each(|slot| slot.close(now));
    }

    fn dismiss_waiting(&mut self, refusal: &Refusal) {
        for caller in self.waiting.take_all() {
            self.refuse(caller.number, refusal.clone());
        }
        while let Some(caller) = self.yielding.take_first() {
            self.refuse(caller.number, refusal.clone());
        }
    }

    // Sweeps.

    /// Begins a sweep, if a read calls for one. It runs alongside all else, and delays nothing.
    /// Only a whole read shows all rows that must stay. Where contenders exchange, none does: one
    /// that has written its row at one replica only may be let in later (rule M11 of the design of
    /// masters).
    fn look_at(&mut self, now: Now, read: Read, seen: Option<&Seen>) {
        self.look_at_mark(now, seen.and_then(|seen| seen.statics.mark));
        let is_healthy = self.health == Health::Good && !self.is_closing;
        let is_free = is_healthy && self.sweep.is_none() && !self.settings.exchanges;
        if let Some(seen) = seen.filter(|_| read == Read::Object && is_free) {
            self.sweep = Sweep::called_for(now, seen, self.settings.max_clock_skew);
        }
    }

    /// Reports a mark that only a wrong clock can have written, once.
    fn look_at_mark(&mut self, now: Now, mark: Option<i64>) {
        let max_clock_skew = self.settings.max_clock_skew;
        let ahead = mark.and_then(|mark| sweeps::ahead(mark, now.wall, max_clock_skew));
        if let Some(ahead) = ahead.filter(|_| !self.mark_reported) {
            self.mark_reported = true;
            self.outputs.push_back(Output::Report(Report::MarkAhead(ahead)));
        }
    }

    fn sweep_read(&mut self, now: Now, seen: Option<Seen>) {
        if let Some(sweep) = self.sweep.take() {
            self.sweep = sweep.read(now, seen, &mut self.outputs);
        }
    }

    fn sweep_written(&mut self, is_acknowledged: bool) {
        if let Some(sweep) = self.sweep.take() {
            self.sweep = sweep.written(is_acknowledged, &mut self.outputs);
        }
    }

    // Time.

    fn pass_time(&mut self, now: Now) {
        self.for_each(|slot| slot.tick(now));
        if let Some(sweep) = self.sweep.take() {
            self.sweep = Some(sweep.tick(now, &mut self.outputs));
        }
        while let Some(caller) = self.waiting.take_expired(now.elapsed) {
            self.time_out(now, &caller, Vec::new());
        }
        while let Some(caller) = self.yielding.take_due(now) {
            if caller.deadline <= now.elapsed {
                self.time_out(now, &caller, self.yielding.sharers().to_vec());
            } else {
                self.admit(now, caller);
            }
        }
        self.yielding.tick(now, &mut self.outputs);
    }

    /// Slots that have nothing left to do make room for callers that wait.
    fn forget_idle_slots(&mut self, now: Now) {
        let memory = &mut self.memory;
        self.slots.retain(|number, slot| {
            let is_idle = slot.is_idle();
            if is_idle {
                note(memory, now, *number, slot);
            }
            !is_idle
        });
        if self.memory.is_orphaned(now) {
            return;
        }
        self.memory.orphaned_until = None;
        while let Some(caller) = self.waiting.first()
            && self.slot_for(caller).is_some()
            && let Some(caller) = self.waiting.take_first()
        {
            self.admit(now, caller);
        }
    }

    // Slots.

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values().map(Box::as_ref)
    }

    /// The slot of turns, if it is in use.
    fn turns(&self) -> Option<&Slot> {
        self.slots.get(&SLOT_OF_TURNS).map(Box::as_ref)
    }

    fn with(&mut self, number: i16, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(&number) {
            change(slot);
            self.outputs.extend(slot.outputs());
        }
    }

    fn for_each(&mut self, mut change: impl FnMut(&mut Slot)) {
        for slot in self.slots.values_mut() {
            change(slot);
            self.outputs.extend(slot.outputs());
        }
    }

    /// Changes the slot of turns, also if it is not in use: then it has no place, and returns a
    /// turn that comes for it.
    fn with_turns(&mut self, now: Now, change: impl FnOnce(&mut Slot)) {
        self.use_slot(now, SLOT_OF_TURNS);
        self.with(SLOT_OF_TURNS, change);
    }

    // What is known.

    /// Whether this client keeps a place for turns, or a lost one whose turn is not over.
    pub(crate) fn has_place(&self) -> bool {
        self.turns().is_some_and(Slot::has_place)
    }

    /// Who has the turn, as far as this client knows.
    pub(crate) fn user(&self) -> Option<User> {
        self.turns()?.user()
    }

    /// How many wait in the line of its place.
    pub(crate) fn waiting(&self) -> usize {
        self.turns().map_or(0, Slot::waiting)
    }

    /// Who waits in the line of its place, the first one first.
    pub(crate) fn line(&self) -> impl Iterator<Item = User> {
        self.turns().into_iter().flat_map(Slot::line)
    }

    /// Whether turns of this client followed each other, and no further caller waits: one that
    /// returned its turn may be about to come back.
    pub(crate) fn was_handed_on(&self) -> bool {
        self.turns().is_some_and(Slot::was_handed_on)
    }

    /// Whether its place is kept idle.
    pub(crate) fn is_kept(&self) -> bool {
        self.turns().is_some_and(Slot::is_kept)
    }

    /// Whether the name of a guest is known, for people.
    pub(crate) fn knows_name(&self, guest: GuestId) -> bool {
        self.turns().is_some_and(|slot| slot.knows_name(guest))
    }
}

/// Notes what counts of a slot.
fn note(memory: &mut Memory, now: Now, number: i16, slot: &Slot) {
    memory.note_raised(now, number, slot.raised_by());
    if number == SLOT_OF_TURNS {
        (memory.remembered, memory.usage) = (slot.remembered(), slot.usage());
    }
}
