//! One slot of an object: a contender of this client, the keeper of its place, and who uses that.
//!
//! The contender acquires, renews and releases the place in the table; the keeper decides who uses
//! it, in turn. Both are plain values: what they ask for is taken from them, one output after the
//! other, before an input is done with, and leads to changes of the other one or to outputs of the
//! object.
//!
//! # Where to look
//!
//! [`events`] says what the contender's events mean, [`turns`] what the keeper asks for,
//! [`requests`] what guards ask for. [`holders`] has those who use the place, [`releases`] who
//! waits until it is released, [`remote_turns`] the turns of other keepers, [`token_requests`]
//! fencing tokens.

mod events;
mod holders;
mod releases;
mod remote_turns;
mod requests;
mod token_requests;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::holders::Holders;
use self::releases::Releases;
pub(super) use self::remote_turns::Remembered;
use self::remote_turns::RemoteTurns;
pub(super) use self::requests::answer_over;
use self::token_requests::TokenRequests;
use super::callers::Callers;
use super::io::{
    Caller, CallerId, CheckReason, Expiring, Health, Loss, Now, Output, Refusal, Report, User,
};
use super::{Memory, Settings};
use crate::core::bakery::{
    self, Acquire, Contender, ContenderId, Lease, OpId, ReadFailure, SeededBug, Seen,
    SeenContender, Snapshot, StoredRow, WriteOutcome,
};
use crate::core::turns::{
    CompetingKeepers, Demand, GuestId, Keeper, KeeperInput, KeptEnd, LineUser, TimedRequest,
    TurnId, TurnOf, Usage,
};

/// The slot whose place callers and guests use in turn. The others are for limited callers, each
/// for itself.
pub(crate) const SLOT_OF_TURNS: i16 = 0;

/// The names of this many guests are remembered that neither wait nor have a turn.
const NAMES_MAX: usize = 1_024;

/// The names of guests, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct GuestNames(BTreeMap<GuestId, Arc<str>>);

impl GuestNames {
    fn note(&mut self, guest: GuestId, name: Arc<str>, keeper: &Keeper) {
        if self.0.len() >= NAMES_MAX && !self.0.contains_key(&guest) {
            self.0.retain(|guest, _| keeper.serves(*guest));
        }
        self.0.insert(guest, name);
    }

    fn of(&self, guest: GuestId) -> Option<Arc<str>> {
        self.0.get(&guest).cloned()
    }
}

/// One slot; see the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Slot {
    id: ContenderId,
    settings: Settings,
    contender: Contender,
    keeper: Keeper,
    callers: Callers,
    holders: Holders,
    releases: Releases,
    remote_turns: RemoteTurns,
    /// The last turn that a guest was granted: that is repeated until the guest knows.
    counted_sublease: Option<TurnId>,
    names: GuestNames,
    competing_keepers: CompetingKeepers,
    token_requests: TokenRequests,
    /// How the place was wanted last.
    wanted: Option<Acquire>,
    clocks_differ: bool,
    is_closing: bool,
    outputs: VecDeque<Output>,
}

impl Slot {
    /// A slot without a place. What counts of an earlier one is remembered.
    pub(super) fn new(now: Now, id: ContenderId, settings: Settings, memory: &Memory) -> Self {
        let gives_turns = settings.turns && id.slot == SLOT_OF_TURNS;
        let contender = Contender::raised(id, memory.raised_by(now, id.slot));
        let keeper = Keeper::new(gives_turns)
            .with_guest_hold_max(settings.guest_hold_max)
            .with_keep_idle(settings.keep_idle, memory.usage);
        Slot {
            id,
            settings,
            contender: contender.exchanging(settings.exchanges),
            keeper,
            callers: Callers::default(),
            holders: Holders::new(settings.patience),
            releases: Releases::default(),
            remote_turns: RemoteTurns::remembering(memory.remembered),
            counted_sublease: None,
            names: GuestNames::default(),
            competing_keepers: CompetingKeepers::default(),
            token_requests: TokenRequests::default(),
            wanted: None,
            clocks_differ: false,
            is_closing: false,
            outputs: VecDeque::new(),
        }
    }

    /// The outputs since the last call.
    pub(super) fn outputs(&mut self) -> impl Iterator<Item = Output> {
        self.outputs.drain(..)
    }

    /// When something is due, by the library's clock.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let asked = self.releases.first_asked();
        let released = asked.map(|asked| asked.saturating_add(self.settings.patience));
        let (contender, callers) = (self.contender.deadline(), self.callers.deadline());
        let (holders, guests) = (self.holders.deadline(), self.remote_turns.deadline());
        [contender, callers, holders, released, guests].iter().flatten().min().copied()
    }

    /// The same by boot time.
    pub(super) fn deadline_by_boot(&self) -> Option<Duration> {
        self.keeper.deadline()
    }

    /// Whether there is nothing left to do.
    pub(super) fn is_idle(&self) -> bool {
        self.contender.is_idle() && self.keeper.is_idle() && self.remote_turns.is_done()
    }

    /// Whether it is to end although its rows stay: for the rest of a `min_hold`, after a shutdown.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing && self.keeper.outlasts_process()
    }

    /// How far the stamps of its contender are raised.
    pub(super) fn raised_by(&self) -> i64 {
        self.contender.raised_by()
    }

    /// How its places were used.
    pub(super) fn usage(&self) -> Usage {
        self.keeper.usage()
    }

    // What happens to it.

    /// A caller joins the line.
    pub(super) fn join(&mut self, now: Now, caller: Box<Caller>) {
        let Caller { number, min_hold, at_least, .. } = *caller;
        let Acquire { mode, terms, patience, .. } = caller.acquire;
        self.callers.insert(caller);
        let demand = Demand { mode, terms, patience, min_hold, at_least };
        self.keeper.handle(now.of_turns(), KeeperInput::Join { caller: number, demand });
        self.settle(now);
    }

    /// A caller leaves the line, if it is there.
    pub(super) fn leave(&mut self, now: Now, caller: CallerId) {
        if self.callers.take(caller).is_some() {
            self.caller_left(now, caller);
        }
    }

    /// The contender's write is answered.
    pub(super) fn written(&mut self, now: Now, op: OpId, outcome: WriteOutcome) {
        if outcome == WriteOutcome::Rejected {
            self.check(CheckReason::Refusal);
        }
        self.answered(now, bakery::ContenderInput::Written { op, outcome });
    }

    /// The contender's read is answered.
    pub(super) fn read(&mut self, now: Now, op: OpId, seen: Result<Seen, ReadFailure>) {
        let (rows, statics) = match seen {
            Ok(Seen { rows, statics, .. }) => (Ok(rows), statics),
            Err(failure) => {
                if failure == ReadFailure::Rejected {
                    self.check(CheckReason::Refusal);
                }
                (Err(failure), bakery::Statics::default())
            }
        };
        self.answered(now, bakery::ContenderInput::Read { op, rows, statics });
    }

    /// The keeper's look for outsiders is answered. Contenders whose clients stand in the line are
    /// none of the table's.
    pub(super) fn outsiders_read(&mut self, now: Now, rows: &[StoredRow]) {
        let (snapshot, claim) = (Snapshot::of(rows), self.contender.held_claim());
        let is_revoked = claim.is_some_and(|claim| snapshot.is_revoked(claim));
        let seen = claim.map(|claim| snapshot.conflicting(claim.contender, claim.mode));
        let seen = seen.unwrap_or_default();
        let clients = seen.iter().map(|contender| contender.client);
        let mut outsiders = clients.filter(|client| !self.keeper.serves(*client)).peekable();
        let any = outsiders.peek().is_some();
        self.competing_keepers.seen(outsiders);
        if any {
            self.outputs.push_back(Output::Report(Report::OutsidersWait));
        }
        self.keeper.handle(now.of_turns(), KeeperInput::Looked { outsiders: any });
        if is_revoked && !SeededBug::KeptThroughRevocation.is_planted() {
            // The holder of one in use is told at its next renewal.
            self.keeper.handle(now.of_turns(), KeeperInput::GiveUpKept(KeptEnd::Revoked));
        }
        self.settle(now);
    }

    /// Gives up its place if that is kept idle.
    pub(super) fn give_up_kept(&mut self, now: Now, end: KeptEnd) {
        self.keeper.handle(now.of_turns(), KeeperInput::GiveUpKept(end));
        self.settle(now);
    }

    /// A guest asks for something.
    pub(super) fn guest_request(
        &mut self,
        now: Now,
        guest: GuestId,
        name: Option<Arc<str>>,
        request: TimedRequest,
    ) {
        if let Some(name) = name {
            self.names.note(guest, name, &self.keeper);
        }
        self.keeper.handle(now.of_turns(), KeeperInput::Request { guest, request });
        self.settle(now);
    }

    /// The connection of a guest has ended.
    pub(super) fn guest_left(&mut self, now: Now, guest: GuestId) {
        self.keeper.handle(now.of_turns(), KeeperInput::GuestLeft { guest });
        self.settle(now);
    }

    /// What the client knows of clocks and table has changed.
    pub(super) fn health_changed(&mut self, now: Now, health: Health) {
        let is_in_doubt = health != Health::Good;
        self.keeper.handle(now.of_turns(), KeeperInput::InDoubt(is_in_doubt));
        self.settle(now);
        let differ = health == Health::ClocksDiffer;
        self.clocks_differ = differ;
        let outputs = &mut self.outputs;
        self.holders.for_each(|holder| {
            holder.clocks_differ = differ;
            holder.warn_if_at_risk(now.elapsed, outputs);
        });
        match health {
            Health::Good => return,
            // A holder continues.
            Health::ClocksDiffer => {}
            Health::TableGone => self.place_is_lost(now, &Loss::TableGone),
        }
        self.dismiss_all(now, &Refusal::Unhealthy(health));
        self.settle(now);
    }

    /// The client is shut down.
    pub(super) fn close(&mut self, now: Now) {
        self.keeper.handle(now.of_turns(), KeeperInput::Shutdown);
        self.settle(now);
        self.is_closing = true;
        match self.holders.only() {
            Some(turn)
                if self.keeper.outlasts_return(turn, now.boot)
                    && !SeededBug::ShutdownFreesPlace.is_planted() =>
            {
                self.lose_turn(now, turn, Loss::Closed);
            }
            Some(_) | None => self.place_is_lost(now, &Loss::Closed),
        }
        self.dismiss_all(now, &Refusal::Closed);
        self.settle(now);
    }

    /// Does what is due by now.
    pub(super) fn tick(&mut self, now: Now) {
        if self.contender.deadline().is_some_and(|due| due <= now.elapsed) {
            self.contender.handle(now.of_contender(), bakery::ContenderInput::Tick);
        }
        self.settle(now);
        if self.keeper.deadline().is_some_and(|due| due <= now.boot) {
            self.keeper.handle(now.of_turns(), KeeperInput::Tick);
        }
        self.settle(now);
        self.tick_guests(now);
        self.look_at_holders(now);
        self.dismiss_expired(now);
        self.settle(now);
    }

    // What follows.

    /// Takes all that contender, guests and keeper ask for, until none asks for anything. The
    /// contender comes first: the keeper must not take a place for held that is lost.
    fn settle(&mut self, now: Now) {
        loop {
            if let Some(output) = self.contender.poll() {
                self.contender_asks(now, output);
            } else if let Some((keeper, output)) = self.remote_turns.poll() {
                self.guest_asks(now, keeper, output);
            } else if let Some(output) = self.keeper.poll() {
                self.keeper_asks(now, output);
            } else {
                return;
            }
        }
    }

    fn contender_asks(&mut self, now: Now, output: bakery::ContenderOutput) {
        let slot = self.id.slot;
        match output {
            bakery::ContenderOutput::Write { op, write } => {
                self.outputs.push_back(Output::Write { slot, op, write });
            }
            bakery::ContenderOutput::Read { op, read } => {
                self.outputs.push_back(Output::Read { slot, op, read: Box::new(read) });
            }
            bakery::ContenderOutput::Exchange { op, write, read } => {
                let read = Box::new(read);
                self.outputs.push_back(Output::Exchange { slot, op, write, read });
            }
            bakery::ContenderOutput::Event(event) => self.event(now, event),
        }
    }

    fn answered(&mut self, now: Now, input: bakery::ContenderInput) {
        self.contender.handle(now.of_contender(), input);
        self.settle(now);
        self.look_for_keeper(now);
    }

    /// Takes a caller out of the line; it is no longer among the callers.
    fn caller_left(&mut self, now: Now, caller: CallerId) {
        self.keeper.handle(now.of_turns(), KeeperInput::Leave { caller });
        self.settle(now);
        self.reconsider_asking(now);
        self.settle(now);
    }

    /// Ends turns that time has ended, by their lease or their hold limit, and does what else is
    /// due for holders.
    fn look_at_holders(&mut self, now: Now) {
        let (elapsed, patience) = (now.elapsed, self.settings.patience);
        for turn in self.holders.due(elapsed) {
            let outputs = &mut self.outputs;
            let loss = self.holders.with(turn, |holder| {
                holder.look(elapsed, patience, outputs);
                holder.loss(elapsed)
            });
            if let Some(loss) = loss.flatten() {
                self.turn_is_lost(now, turn, loss);
                self.settle(now);
            }
        }
    }

    /// Dismisses callers whose timeout has passed.
    fn dismiss_expired(&mut self, now: Now) {
        // Before the first one leaves: without it, this client may leave the line of the keeper.
        let is_due = self.callers.deadline().is_some_and(|deadline| deadline <= now.elapsed);
        let user = if is_due { self.user() } else { None };
        // One after the other: the next one in the line may leave as well.
        while let Some(caller) = self.callers.take_expired(now.elapsed) {
            self.caller_left(now, caller.number);
            let waited = now.elapsed.saturating_sub(caller.asked);
            let refusal = Refusal::TimedOut { waited, user: user.clone(), ahead: self.ahead() };
            self.refuse(caller.number, refusal);
        }
        let (limit, outputs) = (self.settings.patience, &mut self.outputs);
        self.releases.dismiss_expired(now.elapsed, limit, outputs);
    }

    fn dismiss_all(&mut self, now: Now, refusal: &Refusal) {
        // One after the other: when one leaves, the keeper turns to the next.
        while let Some(caller) = self.callers.take_first() {
            self.caller_left(now, caller.number);
            self.refuse(caller.number, refusal.clone());
        }
    }

    fn refuse(&mut self, caller: CallerId, refusal: Refusal) {
        self.outputs.push_back(Output::Refused { caller, refusal });
    }

    fn check(&mut self, reason: CheckReason) {
        self.outputs.push_back(Output::Report(Report::Check(reason)));
    }

    // What is known.

    /// The contenders that hold the object, or will hold it before the first caller.
    fn ahead(&self) -> Vec<SeenContender> {
        match self.contender.held_claim() {
            Some(claim) => vec![SeenContender::from(claim)],
            None => self.contender.ahead().to_vec(),
        }
    }

    /// The first caller in the line; `None` if there is none, or a guest comes first.
    fn first(&self) -> Option<&Caller> {
        self.callers.get(self.keeper.first_caller()?).map(Box::as_ref)
    }

    /// Whether the keeper has a place, or a lost one whose turn is not over.
    pub(super) fn has_place(&self) -> bool {
        self.keeper.has_place()
    }

    /// Whether the place was used more than once, and no one waits for it.
    pub(super) fn was_handed_on(&self) -> bool {
        self.keeper.was_handed_on()
    }

    /// Whether the place is kept idle.
    pub(super) fn is_kept(&self) -> bool {
        self.keeper.is_kept()
    }

    /// How many wait in the line of the place.
    pub(super) fn waiting(&self) -> usize {
        self.keeper.line().len()
    }

    /// Who waits in the line of the place, the first one first.
    pub(super) fn line(&self) -> impl Iterator<Item = User> {
        self.keeper.line().filter_map(|user| match user {
            LineUser::Caller(number, _) => {
                self.callers.get(number).map(|caller| User::Own(caller.acquire.owner.clone()))
            }
            LineUser::Guest(guest) => Some(User::Guest(guest, self.names.of(guest))),
        })
    }

    /// Whether the name of a guest is known.
    pub(super) fn knows_name(&self, guest: GuestId) -> bool {
        self.names.of(guest).is_some()
    }

    /// Who has the turn, as far as this client knows: of its own place, or of the one in whose line
    /// it waits.
    pub(super) fn user(&self) -> Option<User> {
        let owner = self.contender.held_claim().map(|claim| claim.owner.clone());
        match (self.keeper.user(), owner) {
            (Some(TurnOf::Caller), Some(owner)) => Some(User::Own(owner)),
            (Some(TurnOf::Guest(guest)), _) => Some(User::Guest(guest, self.names.of(guest))),
            (Some(TurnOf::Caller) | None, _) => self.user_of_keeper(),
        }
    }

    fn user_of_keeper(&self) -> Option<User> {
        if let Some(turn) = self.remote_turns.turn() {
            return self.holders.get(turn).map(|holder| User::Own(holder.owner.clone()));
        }
        self.remote_turns.keeper().map(User::OfKeeper)
    }

    /// All holders are to finish: their leases are not renewed any more.
    fn expire_all(&mut self, now: Now, reason: &Expiring) {
        let outputs = &mut self.outputs;
        self.holders.for_each(|holder| holder.expire(now.elapsed, reason, outputs));
    }

    /// All holders have another lease. Returns whether one needs yet another one.
    fn renew_all(&mut self, now: Now, lease: Lease) -> bool {
        let (mut renew_again, outputs) = (false, &mut self.outputs);
        self.holders.for_each(|holder| renew_again |= holder.renew(now.elapsed, lease, outputs));
        renew_again
    }
}
