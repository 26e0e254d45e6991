//! The parties: the keeper's process, its callers, guests, and the next holder.

use std::sync::Arc;

use super::clocks::{Ticks, guest_now};
use super::network::Frame;
use super::{Moment, Turns};
use crate::core::turns::{
    Granted, Guest, GuestEvent, GuestInput, GuestOutput, Keeper, KeeperInput, KeeperOutput, Now,
    Response, TurnId,
};
use crate::sightings::Sight;

/// The process of the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeeperProcess {
    machine: Option<Arc<Keeper>>,
    /// Which process at this address it is.
    pub(super) incarnation: u8,
    /// How far its library's clock is ahead of the machine's.
    pub(super) ahead: Ticks,
}

/// A caller of the keeper's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    Outside,
    Waiting,
    Inside(TurnId),
    Gone,
}

/// The process of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GuestProcess {
    pub(super) machine: Arc<Guest>,
    pub(super) uuid: u128,
    /// Which guest it is; it decides on its clock.
    index: usize,
    /// How far its library's clock is ahead of the machine's.
    pub(super) ahead: Ticks,
    pub(super) requests_left: u8,
    /// The last grant to it: the round, the request and the number of the turn.
    granted: Option<((u8, i64), u64, u64)>,
}

/// A contender that waits in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NextHolder {
    Waiting,
    Inside,
    Gone,
}

impl KeeperProcess {
    pub(super) fn new() -> Self {
        KeeperProcess { machine: Some(Arc::new(Keeper::new(true))), incarnation: 1, ahead: 0 }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) fn is_due(&self, now: Now) -> bool {
        let due = self.machine.as_ref().and_then(|machine| machine.deadline());
        due.is_some_and(|due| due <= now.boot)
    }

    /// Whether guests wait in its line.
    pub(super) fn has_guests(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.has_guests())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.is_idle())
    }

    pub(super) fn restart(&mut self) {
        self.machine = Some(Arc::new(Keeper::new(true)));
        self.incarnation += 1;
    }
}

impl GuestProcess {
    pub(super) fn new(i: usize, requests_left: u8) -> Self {
        let uuid = i as u128 + 1;
        let machine = Arc::new(Guest::new(0));
        GuestProcess { machine, uuid, index: i, ahead: 0, requests_left, granted: None }
    }

    pub(super) fn now(&self, now: Ticks) -> Now {
        guest_now(now, self.index, self.ahead)
    }

    /// Whether it has the turn, by its own clock.
    pub(super) fn is_inside(&self, now: Ticks) -> bool {
        self.machine.is_inside(self.now(now))
    }
}

impl Turns {
    /// Feeds the keeper, if it lives, and does what it asks for.
    pub(super) fn keeper(&self, moment: &mut Moment, input: KeeperInput) {
        let now = moment.keeper_now();
        let Some(machine) = &mut moment.keeper.machine else {
            return;
        };
        let machine = Arc::make_mut(machine);
        machine.handle(now, input);
        let outputs: Vec<_> = std::iter::from_fn(|| machine.poll()).collect();
        for output in outputs {
            self.keeper_asks(moment, output);
        }
    }

    fn keeper_asks(&self, moment: &mut Moment, output: KeeperOutput) {
        let table = &mut moment.table;
        match output {
            KeeperOutput::Acquire { caller } => {
                let terms = caller.map(|caller| Self::terms(self.caller_plan(caller).ttl));
                table.wanted = Some(terms.unwrap_or(table.terms));
            }
            KeeperOutput::Taken { .. } => unreachable!("all callers wait"),
            KeeperOutput::Grant { caller, turn } => {
                self.note(moment, Sight::CallersTurn);
                if moment.callers.iter().any(|caller| matches!(caller, Caller::Inside(_))) {
                    self.note(moment, Sight::CallersShare);
                }
                moment.note_entry();
                let i = usize::try_from(caller).expect("callers are few");
                moment.callers[i] = Caller::Inside(turn);
                let min_hold = self.plan.callers[i].min_hold;
                if min_hold > 0 {
                    moment.taken_until = moment.now + min_hold;
                }
            }
            KeeperOutput::Send { guest, response } => {
                if let Response::Granted(granted) = &response {
                    moment.note_grant(granted, guest);
                }
                moment.network.send(Frame::ToGuest { guest, response });
            }
            KeeperOutput::Renew { terms } => table.renew(terms),
            // The model's contender renews whenever it likes.
            KeeperOutput::Returned => {}
            KeeperOutput::Look => table.is_looking = true,
            KeeperOutput::IssueBlock { round } => table.drawing = Some(round),
            KeeperOutput::Token { turn, value, .. } => moment.note_token(turn.number, value),
            KeeperOutput::Keep | KeeperOutput::KeptEnds(_) => {
                unreachable!("whole objects keep places")
            }
            KeeperOutput::Release => {
                // The deletion may take effect at once, though it is acknowledged later.
                table.wanted = None;
                table.is_held = false;
                table.renewing = None;
                table.rows_until = None;
                table.is_releasing = true;
            }
        }
    }

    pub(super) fn caller_leaves(&self, moment: &mut Moment, i: usize) {
        match std::mem::replace(&mut moment.callers[i], Caller::Gone) {
            Caller::Waiting => {
                moment.left.giving_up = moment.left.giving_up.saturating_sub(1);
                self.keeper(moment, KeeperInput::Leave { caller: i as u64 });
            }
            Caller::Inside(turn) => {
                if moment.now < moment.taken_until {
                    self.note(moment, Sight::ReturnedEarly);
                }
                self.keeper(moment, KeeperInput::Returned { turn });
            }
            Caller::Outside | Caller::Gone => unreachable!("a caller leaves after it came"),
        }
    }

    /// Feeds a guest, and does what it asks for.
    pub(super) fn guest(&self, moment: &mut Moment, i: usize, input: GuestInput) {
        let process = &mut moment.guests[i];
        let now = process.now(moment.now);
        let guest = process.uuid;
        let machine = Arc::make_mut(&mut process.machine);
        let was_inside = machine.is_inside(now);
        machine.handle(now, input);
        let enters = !was_inside && machine.is_inside(now);
        let turn = machine.turn_number();
        let outputs: Vec<_> = std::iter::from_fn(|| machine.poll()).collect();
        if enters {
            moment.note_entry();
            self.note(moment, Sight::GuestsTurn);
        }
        for output in outputs {
            match output {
                GuestOutput::Send(request) => {
                    moment.network.send(Frame::ToKeeper { guest, request });
                }
                GuestOutput::Event(GuestEvent::Token(value)) => {
                    self.note(moment, Sight::TokenOfGuest);
                    moment.note_token(turn.expect("a guest inside has the token"), value);
                }
                GuestOutput::Event(_) => {}
            }
        }
    }
}

impl Moment {
    pub(super) fn keeper_dies(&mut self) {
        self.keeper.machine = None;
        self.table.begin_anew();
        for caller in &mut self.callers {
            if matches!(caller, Caller::Waiting | Caller::Inside(_)) {
                *caller = Caller::Gone;
            }
        }
    }

    pub(super) fn guest_dies(&mut self, i: usize) {
        let process = &mut self.guests[i];
        process.machine = Arc::new(Guest::new(0));
        process.granted = None;
        process.uuid += 100;
    }

    /// A request has one turn in a round; a later round may know nothing of it.
    fn note_grant(&mut self, granted: &Granted, guest: u128) {
        let round = (self.keeper.incarnation, self.table.round);
        let now = (round, granted.request, granted.turn.number);
        let Some(process) = self.guests.iter_mut().find(|process| process.uuid == guest) else {
            return;
        };
        let before = process.granted.replace(now);
        self.granted_twice |= before.is_some_and(|before| {
            let (before_round, request, number) = before;
            before_round == round && request >= granted.request && number != granted.turn.number
        });
    }
}
