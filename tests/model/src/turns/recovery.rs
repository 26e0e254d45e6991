//! The recovery of each moment: without further faults all are served, and no row is left.

use super::table::TableEvent;
use super::{Action, Moment, NextHolder, Turns};
use crate::turns::clocks::Ticks;
use crate::turns::parties::Caller;

/// The longest recovery: old leases end, then each user has its turn.
const TICKS_MAX: Ticks = 40;

impl Turns {
    /// Whether the moment ends well, with the messages under way delivered, and with them lost.
    pub(super) fn recovers(&self, moment: &Moment) -> bool {
        let mut lossy = moment.clone();
        lossy.network.lose_all();
        let good = [moment.clone(), lossy].into_iter().all(|moment| self.ends_well(moment));
        self.violations.allow(good)
    }

    fn ends_well(&self, mut moment: Moment) -> bool {
        moment.is_recovering = true;
        let last = moment.now + TICKS_MAX;
        while moment.now < last {
            while let Some(action) = self.next_good(&moment) {
                self.step(&mut moment, &action);
            }
            if moment.is_over() {
                return true;
            }
            self.step(&mut moment, &Action::Pass);
        }
        false
    }

    /// The next event of a history without faults.
    fn next_good(&self, moment: &Moment) -> Option<Action> {
        if let Some(frame) = moment.network.first().filter(|_| moment.keeper.is_alive()) {
            return Some(Action::Deliver(frame));
        }
        let mut actions = Vec::new();
        self.clock_actions(moment, &mut actions);
        self.table_actions(moment, &mut actions);
        Self::user_actions(moment, &mut actions);
        actions.into_iter().find(|action| match action {
            Action::KeeperWakes
            | Action::KeeperRestarts
            | Action::Table(TableEvent::Acquired)
            | Action::Table(TableEvent::Renewed { acknowledged: true })
            | Action::Table(TableEvent::Expired)
            | Action::Table(TableEvent::Released)
            | Action::Table(TableEvent::Looked { .. } | TableEvent::Drawn { acknowledged: true })
            | Action::GuestWakes(_)
            | Action::NextHolderEnters => true,
            Action::NextHolderLeaves => moment.next_holder == NextHolder::Inside,
            Action::CallerLeaves(i) => matches!(moment.callers[*i], Caller::Inside(_)),
            Action::GuestLeaves(i) => moment.guests[*i].is_inside(moment.now),
            Action::Pass
            | Action::KeeperJumps
            | Action::GuestJumps(_)
            | Action::KeeperDies
            | Action::Table(TableEvent::Renewed { acknowledged: false })
            | Action::Table(TableEvent::RenewedByItself)
            | Action::Table(TableEvent::Revoked)
            | Action::Table(TableEvent::RemovedByForce)
            | Action::Table(TableEvent::OtherKeeperSeen)
            | Action::CallerJoins(_)
            | Action::Table(TableEvent::Drawn { acknowledged: false })
            | Action::TokenRequests(_)
            | Action::GuestAsks(_)
            | Action::GuestReconnects(_)
            | Action::GuestDisconnects(_)
            | Action::GuestDies(_)
            | Action::Deliver(_)
            | Action::Repeat(_) => false,
        })
    }
}

impl Moment {
    /// Whether all users are gone and the keeper keeps nothing.
    fn is_over(&self) -> bool {
        let waits = |caller: &Caller| matches!(caller, Caller::Waiting | Caller::Inside(_));
        !self.callers.iter().any(waits)
            && self.guests.iter().all(|guest| guest.machine.is_done())
            && self.next_holder == NextHolder::Gone
            && self.keeper.is_idle()
            && self.table.may_be_free(self.time())
    }
}
