//! The keeper of one object: gives turns to its line while its contender holds the place.
//!
//! This file has the states and what follows from them; [`requests`] handles what
//! guests ask, [`delayed`] answers that wait for a better one, [`min_hold`] turns that are returned
//! early, [`issuing`] fencing tokens, [`keeping`] idle places that are kept, [`tries`] callers and
//! guests that do not wait.
//! A turn ends when it is returned, or when its time is certainly over; until then no other turn is
//! given and the rows stay.

mod delayed;
pub(crate) mod io;
mod issuing;
mod keeping;
mod line;
mod min_hold;
mod requests;
#[cfg(test)]
mod tests;
mod tries;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use self::delayed::Delayed;
use self::io::{Demand, KeeperInput, KeeperOutput, KeptEnd};
use self::keeping::Kept;
pub(crate) use self::keeping::Usage;
pub(crate) use self::line::LineUser;
use self::line::{Line, Waiter};
use self::min_hold::MinHold;
use self::tries::Try;
use super::messages::{Extended, Granted, GuestId, Now, Response, TurnId};
use super::sublease::{FIRST_LENGTH_MAX, Sublease, is_over, needed_length, needed_of_place};
use super::tokens::TokenBlock;
use crate::core::bakery::{ContenderId, LeaseTerms, Mode, Patience, SeededBug};

/// A guest that was silent for this long has no turn granted, and leaves the line (rule R4).
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// A turn is granted again at this interval until the guest shows that it knows.
const REPEAT_AFTER: Duration = Duration::from_millis(250);

/// Contenders in the table are looked for no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// While a shared place stays in use, one that waited in the table may have left; callers that wait
/// for its turn are not kept out for longer than this.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Turns are given for this long once another contender is known to wait in the table.
const TURNS_BESIDE_OUTSIDERS: Duration = Duration::from_millis(100);

/// The finished requests of this many guests are remembered.
const FINISHED_MAX: usize = 1_024;

/// Who has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOf {
    /// A caller's of this process.
    Caller,
    /// A guest's.
    Guest(GuestId),
}

/// The keeper of one object; see the [module](super) for how to drive it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keeper {
    /// Whether a place is used more than once.
    gives_turns: bool,
    /// How long a guest may have a turn, if that is limited.
    guest_hold_max: Option<Duration>,
    place: Place,
    line: Line,
    turn: Option<Turn>,
    /// The turns of callers that share the place; then there is no other one.
    shared_turns: BTreeSet<TurnId>,
    /// The number of the last turn of this round.
    last_turn: u64,
    /// The last finished request of each guest.
    finished: BTreeMap<GuestId, Finished>,
    /// Answers to guests that wait for a better one.
    delayed: Delayed,
    /// The tokens of this round that are left.
    block: Option<TokenBlock>,
    /// How long an idle place is kept at most; zero: not at all.
    keep_idle: Duration,
    /// Clocks or table are in doubt: no place is kept.
    is_in_doubt: bool,
    usage: Usage,
    is_closing: bool,
    outputs: VecDeque<KeeperOutput>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// No rows, and no use for them.
    None,
    /// A place for the line is on its way.
    Wanted(Wanted),
    /// A turn at another keeper, for one caller.
    GuestTurn {
        turn: TurnId,
        is_given: bool,
    },
    Held(Held),
    /// The place is lost, and its rows wait for the end of the turn.
    Lost,
    /// The rows are being deleted.
    Releasing,
}

/// A place that is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    /// How the first in the line wants it; `None` for a guest.
    demand: Option<Demand>,
    /// Another keeper is asked for a turn. Then no guest may join: a client with a line of guests
    /// never asks another keeper (rule R8), or lines would wait for each other.
    is_asking: bool,
}

/// A held place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    id: ContenderId,
    round: i64,
    mode: Mode,
    terms: LeaseTerms,
    /// The terms that a caller wanted last: those of guests.
    usual_terms: LeaseTerms,
    /// No turn lasts longer, by the library's clock.
    deadline: Duration,
    /// The next turn waits for a renewal on these terms.
    renewing: Option<LeaseTerms>,
    /// When contenders were last looked for in the table.
    looked: Duration,
    /// A look has no answer yet.
    is_looking: bool,
    /// Since when contenders outside the line are known to wait in the table.
    outsiders_since: Option<Duration>,
    /// A block of tokens is being issued.
    is_issuing: bool,
    /// The place is revoked: no turn follows those that are out.
    is_expiring: bool,
    /// No turn is out, and the place is kept for the next one.
    kept: Option<Kept>,
}

/// A turn that was given and is not over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Turn {
    id: TurnId,
    /// `None`: it is a caller's.
    guest_turn: Option<GuestTurn>,
    /// How long the place stays taken even if the turn is returned before.
    min_hold: Option<MinHold>,
    /// The number of the last token that was asked for, and the token once it is issued.
    token: Option<(u64, Option<i64>)>,
}

/// The last finished request of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Finished {
    /// Its number. Late messages of finished requests are ignored.
    request: u64,
    /// Whether the guest asked again at once.
    comes_back: bool,
}

/// The guest that has the turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GuestTurn {
    guest: GuestId,
    ttl: Duration,
    granted: Granted,
    extended: Option<Extended>,
    /// The renewal that is answered once the place is renewed: when it was sent, and how long the
    /// turn is to last.
    owed: Option<(Duration, Duration)>,
    /// When the turn is certainly over.
    ends: Duration,
    /// When it is granted once more; `None` once the guest has named the turn.
    repeat: Option<Duration>,
    /// When it is asked to leave; `None` if that is not limited, or once it was.
    limit: Option<Duration>,
    /// It was asked to leave, and its turn is extended no more.
    leaves: bool,
    /// How often it was asked whether it has the turn.
    checks: u64,
    /// A try waits for its answer.
    tried: Option<Try>,
}

impl Held {
    /// The turn of this number.
    fn turn(&self, number: u64) -> TurnId {
        let mut id = TurnId { place: self.id, round: self.round, number };
        if SeededBug::TurnWithoutRound.is_planted() {
            id.round = 0;
        }
        if SeededBug::TurnWithoutClient.is_planted() {
            id.place.client = 0;
        }
        id
    }

    /// Whether to look for contenders in the table. Once some are known to wait, nothing more is to
    /// be learned: the place is released soon.
    fn is_look_due(&self, now: Now) -> bool {
        let is_settled = self.is_looking || self.outsiders_since.is_some();
        !is_settled && now.boot >= self.looked + LOOK_EVERY
    }
}

impl Turn {
    /// The guest that has it; `None`: it is a caller's.
    fn guest(&self) -> Option<GuestId> {
        self.guest_turn.as_ref().map(|guest_turn| guest_turn.guest)
    }
}

impl Keeper {
    /// A keeper without a place and without a line. Unless it gives turns, it releases its place
    /// after each use.
    pub(crate) fn new(gives_turns: bool) -> Self {
        Keeper {
            gives_turns,
            guest_hold_max: None,
            place: Place::None,
            line: Line::default(),
            turn: None,
            shared_turns: BTreeSet::new(),
            last_turn: 0,
            finished: BTreeMap::new(),
            delayed: Delayed::default(),
            block: None,
            keep_idle: Duration::ZERO,
            is_in_doubt: false,
            usage: Usage::default(),
            is_closing: false,
            outputs: VecDeque::new(),
        }
    }

    /// The same keeper, which asks guests to leave that have had a turn for so long.
    pub(crate) fn with_guest_hold_max(self, guest_hold_max: Option<Duration>) -> Self {
        Keeper { guest_hold_max, ..self }
    }

    /// The same keeper, which keeps places for so long, if the object is used as it was before.
    pub(crate) fn with_keep_idle(self, keep_idle: Duration, usage: Usage) -> Self {
        Keeper { keep_idle, usage, ..self }
    }

    /// Handles an input.
    pub(crate) fn handle(&mut self, now: Now, input: KeeperInput) {
        self.end_turn_in_time(now);
        self.limit_turn(now);
        self.end_try_in_time(now);
        self.end_rest_in_time(now);
        self.end_expectations(now);
        match input {
            KeeperInput::Held { place, round, terms, deadline } => {
                self.held(now, (place, round), terms, deadline);
            }
            KeeperInput::Failed => self.failed(),
            KeeperInput::Asking(is_asking) => self.asking(is_asking),
            KeeperInput::GuestTurn { turn } => self.guest_turn_granted(turn),
            KeeperInput::Renewed { terms, deadline } => self.renewed(now, terms, deadline),
            KeeperInput::Expiring => self.expiring(now),
            KeeperInput::Lost => self.lost(),
            KeeperInput::Released => self.place = Place::None,
            KeeperInput::Join { caller, demand } => self.join(now, caller, demand),
            KeeperInput::Leave { caller } => drop(self.line.remove_caller(caller)),
            KeeperInput::Returned { turn } if self.outlasts_return(turn, now.boot) => {
                self.begin_rest(now);
            }
            KeeperInput::Returned { turn } => drop(self.end_turn(now, turn, None)),
            KeeperInput::Shares { turn } => self.shares(turn),
            KeeperInput::IssueToken { turn, number } => self.issue_token(None, turn, number),
            KeeperInput::Block { round, block } => self.block_issued(round, block),
            KeeperInput::Request { guest, request } => self.request(now, guest, request),
            KeeperInput::GuestLeft { guest } => drop(self.line.remove_guest(guest)),
            KeeperInput::Looked { outsiders } => self.looked(now, outsiders),
            KeeperInput::Disband => self.disband(),
            KeeperInput::InDoubt(is_in_doubt) => self.is_in_doubt = is_in_doubt,
            KeeperInput::GiveUpKept(end) => self.give_up_kept(end),
            KeeperInput::Shutdown => {
                self.is_closing = true;
                self.send_guests_elsewhere();
            }
            KeeperInput::Tick => {}
        }
        self.proceed(now);
        // The next one first: it waits.
        self.answer_delayed(now);
    }

    /// The next output.
    #[must_use]
    pub(crate) fn poll(&mut self) -> Option<KeeperOutput> {
        self.outputs.pop_front()
    }

    /// When to send [`KeeperInput::Tick`], by boot time, unless another input comes first.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let guest_turn = self.guest_turn();
        let ends = guest_turn.map(|guest_turn| guest_turn.ends);
        let repeat = guest_turn.and_then(|guest_turn| guest_turn.repeat);
        let limit = guest_turn.and_then(|guest_turn| guest_turn.limit);
        let returned = self.min_hold().and_then(MinHold::ends_turn);
        let (kept, looks) = (self.kept_deadline(), self.looks_again());
        let (tries, delayed) = (self.try_deadline(), self.delayed_deadline());
        let due = [ends, repeat, limit, returned, kept, looks, tries, delayed];
        due.iter().flatten().min().copied()
    }

    /// Whether another keeper may be asked for a turn: a place is wanted, and no guest waits for it
    /// (rule R8).
    pub(crate) fn may_ask(&self) -> bool {
        matches!(self.place, Place::Wanted(_)) && !self.has_guests()
    }

    /// Whether guests wait.
    pub(crate) fn has_guests(&self) -> bool {
        self.line.has_guests()
    }

    /// Whether a place is wanted and not there yet.
    pub(crate) fn wants_place(&self) -> bool {
        matches!(self.place, Place::Wanted(_))
    }

    /// Whether the place is being released.
    pub(crate) fn is_releasing(&self) -> bool {
        self.place == Place::Releasing
    }

    /// Whether a client stands in the line, or has the turn.
    pub(crate) fn serves(&self, client: GuestId) -> bool {
        self.line.has_guest(client)
            || self.guest_turn().is_some_and(|guest_turn| guest_turn.guest == client)
    }

    /// The present turn's user, if a turn is out.
    pub(crate) fn user(&self) -> Option<TurnOf> {
        match &self.turn {
            Some(turn) => Some(turn.guest().map_or(TurnOf::Caller, TurnOf::Guest)),
            None => (!self.shared_turns.is_empty()).then_some(TurnOf::Caller),
        }
    }

    /// The line, the first one first.
    pub(crate) fn line(&self) -> impl ExactSizeIterator<Item = LineUser> {
        self.line.users()
    }

    /// Whether there is a place of its own, or a lost one whose turn is not over yet.
    pub(crate) fn has_place(&self) -> bool {
        matches!(self.place, Place::Held(_) | Place::Lost)
    }

    /// The first in the line, if it is a caller.
    pub(crate) fn first_caller(&self) -> Option<u64> {
        match self.line.first()? {
            LineUser::Caller(caller, _) => Some(caller),
            LineUser::Guest(_) => None,
        }
    }

    /// Whether the place was used more than once, and no one waits for it.
    pub(crate) fn was_handed_on(&self) -> bool {
        self.gives_turns && self.last_turn > 1 && self.line.is_empty()
    }

    /// Whether there is no place, no line and nothing to remember.
    pub(crate) fn is_idle(&self) -> bool {
        self.place == Place::None
            && self.line.is_empty()
            && self.turn.is_none()
            && self.delayed.is_empty()
    }

    /// A caller that does not want to wait has its answer at once, unless the object is free for
    /// all that is known here, or a guest must say.
    fn join(&mut self, now: Now, caller: u64, demand: Demand) {
        let is_taken = self.turn.is_some() || !self.line.is_empty() || !self.may_share(now, demand);
        let is_in_vain = is_taken && demand.patience == Patience::Try;
        let checks_guest = is_in_vain && self.may_check_guest();
        if is_in_vain && !checks_guest {
            return self.outputs.push_back(KeeperOutput::Taken { caller });
        }
        self.line.push_caller(caller, demand);
        if checks_guest {
            self.check_guest(now, LineUser::Caller(caller, demand));
        }
    }

    // What happens to the place.

    fn held(
        &mut self,
        now: Now,
        (id, round): (ContenderId, i64),
        terms: LeaseTerms,
        deadline: Duration,
    ) {
        let Place::Wanted(Wanted { demand, .. }) = self.place else {
            unreachable!("a place is acquired when it is wanted")
        };
        self.last_turn = 0;
        self.block = TokenBlock::in_next_round(self.block);
        self.place = Place::Held(Held {
            id,
            round,
            mode: demand.map_or(Mode::Exclusive, |demand| demand.mode),
            terms,
            usual_terms: terms,
            deadline,
            renewing: None,
            looked: now.boot,
            is_looking: false,
            outsiders_since: None,
            is_issuing: false,
            is_expiring: false,
            kept: None,
        });
    }

    fn asking(&mut self, is_asking: bool) {
        if let Place::Wanted(wanted) = &mut self.place {
            wanted.is_asking = is_asking;
        }
    }

    /// Only while there is no place: guests of a held one have their turns sooner than elsewhere.
    fn disband(&mut self) {
        if matches!(self.place, Place::Wanted(_)) {
            self.send_guests_elsewhere();
        }
    }

    fn guest_turn_granted(&mut self, turn: TurnId) {
        assert!(self.may_ask(), "a guest's turn begins while a place is wanted and no guest waits");
        self.place = Place::GuestTurn { turn, is_given: false };
    }

    /// The acquisition failed for the first in the line. The rest has another try.
    fn failed(&mut self) {
        self.place = Place::Releasing;
        match self.line.first() {
            Some(LineUser::Caller(caller, _)) => drop(self.line.remove_caller(caller)),
            Some(LineUser::Guest(guest)) => self.send_elsewhere(guest),
            None => {}
        }
    }

    /// No new turns. Those that are out last for as long as they were given for; a turn that was
    /// returned early is over.
    fn expiring(&mut self, now: Now) {
        let Place::Held(held) = &mut self.place else {
            return;
        };
        held.is_expiring = true;
        if self.outlasts_turn() {
            self.end_rest(now);
        }
        self.ask_guest_to_leave();
        self.send_guests_elsewhere();
    }

    /// No new turns. The rows stay until the turn is over (rule R5), because its guest may not
    /// know for a while.
    fn lost(&mut self) {
        if !matches!(self.place, Place::Held(_) | Place::GuestTurn { .. }) {
            return;
        }
        self.end_kept(KeptEnd::Lost);
        self.place = Place::Lost;
        if let Some(Turn { id, guest_turn: Some(guest_turn), .. }) = &self.turn {
            let (guest, response) = (guest_turn.guest, Response::Lost { turn: *id });
            self.send(guest, response);
        }
        // A caller's guard knows by the lease of the place.
        if self.guest_turn().is_none() {
            self.turn = None;
        }
        self.shared_turns.clear();
        self.send_guests_elsewhere();
    }

    /// A renewal on other terms than the next turn waits for was sent earlier and counts for
    /// nothing: once shorter rows are under way, no turn may last longer (rule R5).
    fn renewed(&mut self, now: Now, terms: LeaseTerms, deadline: Duration) {
        if let Place::Held(held) = &mut self.place
            && held.renewing.is_none_or(|wanted| wanted == terms)
        {
            (held.terms, held.deadline, held.renewing) = (terms, deadline, None);
            self.note_rest(now, terms, deadline);
            self.renew_owed(now);
        }
    }

    fn looked(&mut self, now: Now, outsiders: bool) {
        if let Place::Held(held) = &mut self.place {
            held.is_looking = false;
            let since = held.outsiders_since.unwrap_or(now.boot);
            held.outsiders_since = outsiders.then_some(since);
            if outsiders && self.may_keep() {
                self.usage.outsiders_came(now.boot);
            }
        }
    }

    // What follows.

    fn proceed(&mut self, now: Now) {
        self.repeat_grant(now);
        if self.turn.is_some() {
            self.spoil_rows(now);
            return;
        }
        let next = self.next_user(now);
        match (&self.place, next) {
            (Place::None, Some(next)) => {
                self.place = Place::Wanted(Wanted { demand: next.demand(), is_asking: false });
                self.outputs.push_back(KeeperOutput::Acquire { caller: self.first_caller() });
            }
            (Place::None, None) => self.finished.clear(),
            (Place::Wanted(wanted), Some(next)) if is_fit(wanted.demand, next.demand()) => {}
            (
                Place::GuestTurn { turn, is_given: false },
                Some(LineUser::Caller(caller, demand)),
            ) if demand.mode == Mode::Exclusive => {
                let turn = *turn;
                self.place = Place::GuestTurn { turn, is_given: true };
                self.give(caller, turn, None);
            }
            (Place::Wanted(_) | Place::GuestTurn { .. } | Place::Lost, _) => self.release(),
            // All that share a place begin at once.
            (Place::Held(_), _) => while self.next_turn(now) && self.turn.is_none() {},
            (Place::Releasing, _) => {}
        }
    }

    /// Gives the next turn, or prepares for it, or releases the place unless it is in use. Returns
    /// whether a turn was given.
    fn next_turn(&mut self, now: Now) -> bool {
        if self.expects_guest(now) {
            return false;
        }
        let is_shared = !self.shared_turns.is_empty();
        let is_used_up = self.last_turn > 0 && !self.gives_turns && !is_shared;
        let next = self.next_user(now).filter(|_| !is_used_up);
        let Place::Held(held) = &mut self.place else {
            unreachable!("turns are given of a held place")
        };
        let next = next.filter(|user| mode(*user) == held.mode && !held.is_expiring);
        let Some(user) = next.filter(|_| !is_left_to_outsiders(held, now)) else {
            if !is_shared {
                self.keep_or_release(now);
            } else if self.looks_again().is_some_and(|due| due <= now.boot) {
                self.look_for_outsiders(now);
            }
            return false;
        };
        let kept_ends = held.end_kept(KeptEnd::Used);
        let was_kept = kept_ends.is_some();
        self.outputs.extend(kept_ends);
        let demand = user.demand();
        // A place that is in use is shared on its terms. A guest takes the usual ones.
        let wanted = match demand {
            _ if is_shared => held.terms,
            Some(demand) => demand.terms,
            None if SeededBug::GuestOnTermsOfRest.is_planted() => held.terms,
            None => held.usual_terms,
        };
        if held.renewing == Some(wanted) {
            return false;
        }
        let needed = match user {
            // A place that is in use is shared on its terms.
            LineUser::Caller(..) if is_shared => Duration::ZERO,
            LineUser::Caller(..) if SeededBug::TooLittleTime.is_planted() => Duration::ZERO,
            LineUser::Caller(_, demand) => demand.min_hold.max(demand.at_least),
            LineUser::Guest(guest) => {
                needed_of_place(self.line.guest(guest).map_or(Duration::ZERO, |it| it.least))
            }
        };
        let least = (wanted.lease() / 2).max(needed);
        let has_time = held.deadline >= now.elapsed + least
            || was_kept && SeededBug::KeptWithoutLease.is_planted();
        let is_fit = wanted == held.terms && has_time;
        if held.renewing.is_some() || !is_fit {
            held.usual_terms = wanted;
            let renew = held.renew_on(now, wanted);
            self.outputs.push_back(renew);
            return false;
        }
        // As a turn is given: one that lasts asks nothing of the database.
        self.last_turn += 1;
        let (id, deadline) = (held.turn(self.last_turn), held.deadline);
        if held.is_look_due(now) {
            self.look_for_outsiders(now);
        }
        if self.may_keep() {
            self.usage.turn_begins(now.boot, self.keep_idle);
        }
        match user {
            LineUser::Caller(caller, demand) if demand.mode == Mode::Shared => {
                self.share(caller, id);
            }
            LineUser::Caller(caller, demand) => {
                self.give(caller, id, MinHold::from(now, demand.min_hold));
            }
            LineUser::Guest(guest) => self.grant(now, guest, id, deadline),
        }
        true
    }

    /// Looks for contenders in the table.
    fn look_for_outsiders(&mut self, now: Now) {
        if let Place::Held(held) = &mut self.place {
            (held.looked, held.is_looking) = (now.boot, true);
            self.outputs.push_back(KeeperOutput::Look);
        }
    }

    /// When to look whether those in the table still wait that keep the next one out of a place
    /// that it could share.
    fn looks_again(&self) -> Option<Duration> {
        let Place::Held(held) = &self.place else {
            return None;
        };
        let waits = self.line.first().is_some_and(|next| mode(next) == held.mode);
        let is_in_use = !self.shared_turns.is_empty() && !self.is_closing;
        let closed = held.outsiders_since.filter(|_| waits && is_in_use && !held.is_looking)?;
        Some((closed + TURNS_BESIDE_OUTSIDERS).max(held.looked + LOOK_AGAIN))
    }

    /// Whether a caller could have the place together with those that share it, if any do.
    fn may_share(&self, now: Now, demand: Demand) -> bool {
        let is_open = match &self.place {
            Place::Held(held) => demand.mode == held.mode && !is_left_to_outsiders(held, now),
            Place::None
            | Place::Wanted(_)
            | Place::GuestTurn { .. }
            | Place::Lost
            | Place::Releasing => false,
        };
        is_open || self.shared_turns.is_empty()
    }

    /// The first in the line that may have a turn. Silent guests leave it, and those that need a
    /// longer sublease than there is go elsewhere.
    fn next_user(&mut self, now: Now) -> Option<LineUser> {
        if self.is_closing {
            return None;
        }
        while let Some(LineUser::Guest(guest)) = self.line.first() {
            let waiting = *self.line.guest(guest).expect("a guest in the line waits");
            if now.boot >= waiting.heard + SILENCE_MAX {
                self.line.remove_guest(guest);
            } else if self.can_give(waiting.least) {
                break;
            } else {
                self.send_elsewhere(guest);
            }
        }
        self.line.first()
    }

    fn release(&mut self) {
        self.place = Place::Releasing;
        self.outputs.push_back(KeeperOutput::Release);
    }

    // Turns.

    /// Gives a turn to a caller.
    fn give(&mut self, caller: u64, turn: TurnId, min_hold: Option<MinHold>) {
        self.line.remove_caller(caller);
        self.turn = Some(Turn { id: turn, guest_turn: None, min_hold, token: None });
        self.outputs.push_back(KeeperOutput::Grant { caller, turn });
    }

    /// Gives a turn to a caller that shares the place.
    fn share(&mut self, caller: u64, turn: TurnId) {
        self.line.remove_caller(caller);
        self.shared_turns.insert(turn);
        self.outputs.push_back(KeeperOutput::Grant { caller, turn });
    }

    /// Whether a caller's turn, which has the place alone, can be shared. A place that stays taken
    /// for a minimum time is not.
    pub(crate) fn can_share(&self, turn: TurnId) -> bool {
        let is_held = matches!(&self.place, Place::Held(held) if held.mode == Mode::Exclusive);
        let present = self.turn.as_ref().filter(|present| present.id == turn);
        is_held && present.is_some_and(|turn| turn.guest_turn.is_none() && turn.min_hold.is_none())
    }

    /// A caller's turn is shared from now on. Guests have their turns alone, so they go elsewhere.
    fn shares(&mut self, turn: TurnId) {
        if self.can_share(turn)
            && !SeededBug::DowngradeForgotten.is_planted()
            && let Place::Held(held) = &mut self.place
        {
            held.mode = Mode::Shared;
            self.turn = None;
            self.shared_turns.insert(turn);
            self.send_guests_elsewhere();
        }
    }

    /// Grants a turn to a guest, until the deadline of the place at most. The echo was read before
    /// `now` (rule R1).
    fn grant(&mut self, now: Now, guest: GuestId, turn: TurnId, deadline: Duration) {
        let waiting = self.line.remove_guest(guest).expect("a guest has its turn after waiting");
        // Its lease counts from its request, which may be old.
        let age = now.boot.saturating_sub(waiting.heard);
        let needed = match needed_length(waiting.least) {
            Duration::ZERO => Duration::ZERO,
            needed => needed + age,
        };
        let wanted = waiting.ttl.min(FIRST_LENGTH_MAX).max(needed);
        let Sublease { length, ends } = Sublease::until(deadline, wanted, now);
        let granted = Granted { request: waiting.request, turn, echo: waiting.sent, length };
        let repeat = Some(now.boot + REPEAT_AFTER);
        let limit = self.guest_hold_max.and_then(|limit| now.boot.checked_add(limit));
        let guest_turn = GuestTurn {
            guest,
            ttl: waiting.ttl,
            granted,
            extended: None,
            owed: None,
            ends,
            repeat,
            limit,
            leaves: false,
            checks: 0,
            tried: None,
        };
        self.turn =
            Some(Turn { id: turn, guest_turn: Some(guest_turn), min_hold: None, token: None });
        self.delayed.granted(guest);
        self.send(guest, Response::Granted(granted));
    }

    fn repeat_grant(&mut self, now: Now) {
        let Some(guest_turn) = self.guest_turn_mut() else {
            return;
        };
        if guest_turn.repeat.is_some_and(|due| due <= now.boot) {
            guest_turn.repeat = Some(now.boot + REPEAT_AFTER);
            let (guest, granted) = (guest_turn.guest, guest_turn.granted);
            self.send(guest, Response::Granted(granted));
        }
    }

    /// Asks a guest to leave that has had its turn for as long as it may.
    fn limit_turn(&mut self, now: Now) {
        let limit = self.guest_turn().and_then(|guest_turn| guest_turn.limit);
        if limit.is_some_and(|limit| limit <= now.boot) {
            self.ask_guest_to_leave();
        }
    }

    /// Asks the guest that has the turn to leave, which is extended no more.
    fn ask_guest_to_leave(&mut self) {
        if let Some(Turn { id, guest_turn: Some(guest_turn), .. }) = &mut self.turn {
            (guest_turn.limit, guest_turn.repeat, guest_turn.leaves) = (None, None, true);
            let (guest, response) = (guest_turn.guest, Response::Leave { turn: *id });
            self.send(guest, response);
        }
    }

    fn end_turn_in_time(&mut self, now: Now) {
        if let Some(guest_turn) = self.guest_turn()
            && is_over(guest_turn.ends, now)
        {
            self.finish_turn(now);
        }
    }

    /// Ends this turn, if it is the present one and has this guest (`None`: a caller). Returns
    /// whether it is.
    fn end_turn(&mut self, now: Now, turn: TurnId, guest: Option<GuestId>) -> bool {
        if guest.is_none() && self.shared_turns.remove(&turn) {
            return true;
        }
        let is_present = self.turn.as_ref().is_some_and(|present| {
            let is_named = present.id == turn || SeededBug::AnyReturnCounts.is_planted();
            is_named && present.guest() == guest
        });
        if is_present {
            self.finish_turn(now);
        }
        is_present
    }

    fn finish_turn(&mut self, now: Now) {
        if self.may_keep() {
            self.usage.turn_ended(now.boot, self.keep_idle);
        }
        if let Some(Turn { guest_turn: Some(guest_turn), .. }) = self.turn.take() {
            self.finish_request(guest_turn.guest, guest_turn.granted.request);
        }
    }

    fn finish_request(&mut self, guest: GuestId, request: u64) {
        if self.finished.len() >= FINISHED_MAX && !self.finished.contains_key(&guest) {
            // Any one: a late request of that guest costs a turn that is returned at once.
            self.finished.pop_first();
        }
        let last = self.finished.entry(guest).or_default();
        last.request = request.max(last.request);
    }

    fn guest_turn(&self) -> Option<&GuestTurn> {
        self.turn.as_ref()?.guest_turn.as_ref()
    }

    fn guest_turn_mut(&mut self) -> Option<&mut GuestTurn> {
        self.turn.as_mut()?.guest_turn.as_mut()
    }

    fn send_guests_elsewhere(&mut self) {
        for guest in self.line.guests() {
            self.send_elsewhere(guest);
        }
    }

    fn send_elsewhere(&mut self, guest: GuestId) {
        if let Some(Waiter { request, .. }) = self.line.remove_guest(guest) {
            self.finish_request(guest, request);
            self.send(guest, Response::Elsewhere { request });
        }
    }

    fn send(&mut self, guest: GuestId, response: Response) {
        self.outputs.push_back(KeeperOutput::Send { guest, response });
    }

    /// Breaks rule R5 while a turn is out, if a seeded bug says so; otherwise does nothing.
    fn spoil_rows(&mut self, now: Now) {
        let Place::Held(held) = &mut self.place else {
            return;
        };
        if SeededBug::RowsDeletedInTurn.is_planted() && is_left_to_outsiders(held, now) {
            return self.release();
        }
        if let Some(LineUser::Caller(_, Demand { terms, .. })) = self.line.first()
            && SeededBug::RowsShortenedInTurn.is_planted()
            && terms != held.terms
            && held.renewing.is_none()
        {
            held.renewing = Some(terms);
            self.outputs.push_back(KeeperOutput::Renew { terms });
        }
    }
}

/// How a user wants the place.
fn mode(user: LineUser) -> Mode {
    user.demand().map_or(Mode::Exclusive, |demand| demand.mode)
}

/// Whether a place that is acquired for one user is fit for another one: a contender that only
/// tries gives up sooner, and the next caller wants to wait.
fn is_fit(acquired: Option<Demand>, next: Option<Demand>) -> bool {
    let kind = |demand: Option<Demand>| {
        demand.map_or((Mode::Exclusive, Patience::Wait), |demand| (demand.mode, demand.patience))
    };
    kind(acquired) == kind(next)
}

/// Whether the time for turns is over while contenders wait in the table.
fn is_left_to_outsiders(held: &Held, now: Now) -> bool {
    held.outsiders_since.is_some_and(|since| now.boot >= since + TURNS_BESIDE_OUTSIDERS)
}
