//! The line: callers of this process and guests, first come, first served.

use std::collections::BTreeMap;
use std::time::Duration;

use super::io::Demand;
use crate::core::turns::messages::{AHEAD_MAX, GuestId};

/// Who stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LineUser {
    /// A caller of this process, by its number, and what it wants.
    Caller(u64, Demand),
    /// A guest.
    Guest(GuestId),
}

impl LineUser {
    /// What a caller wants; `None` for a guest, which takes what there is.
    pub(super) fn demand(self) -> Option<Demand> {
        match self {
            LineUser::Caller(_, demand) => Some(demand),
            LineUser::Guest(_) => None,
        }
    }
}

/// A guest in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// The number of its request.
    pub(super) request: u64,
    /// The longest sublease that it wants.
    pub(super) ttl: Duration,
    /// How long the first one lasts at least; zero: as usual.
    pub(super) least: Duration,
    /// The newest `sent` that came from it.
    pub(super) sent: Duration,
    /// When its last message came, by boot time.
    pub(super) heard: Duration,
}

/// Everything takes logarithmic time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Line {
    next_number: u64,
    users: BTreeMap<u64, LineUser>,
    callers: BTreeMap<u64, u64>,
    guests: BTreeMap<GuestId, (u64, Waiter)>,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    pub(super) fn first(&self) -> Option<LineUser> {
        self.first_with_position().map(|(_, user)| user)
    }

    /// The first one, and its position.
    pub(super) fn first_with_position(&self) -> Option<(u64, LineUser)> {
        self.users.first_key_value().map(|(position, user)| (*position, *user))
    }

    pub(super) fn push_caller(&mut self, caller: u64, demand: Demand) {
        let number = self.reserve();
        self.users.insert(number, LineUser::Caller(caller, demand));
        self.callers.insert(caller, number);
    }

    /// Whether it was there.
    pub(super) fn remove_caller(&mut self, caller: u64) -> bool {
        let number = self.callers.remove(&caller);
        number.is_some_and(|number| self.users.remove(&number).is_some())
    }

    /// At a position that was reserved for it, or at the end.
    pub(super) fn push_guest(&mut self, guest: GuestId, waiting: Waiter, position: Option<u64>) {
        let number = position.unwrap_or_else(|| self.reserve());
        self.users.insert(number, LineUser::Guest(guest));
        self.guests.insert(guest, (number, waiting));
    }

    pub(super) fn guest(&mut self, guest: GuestId) -> Option<&mut Waiter> {
        self.guests.get_mut(&guest).map(|(_, waiting)| waiting)
    }

    pub(super) fn remove_guest(&mut self, guest: GuestId) -> Option<Waiter> {
        let (number, waiting) = self.guests.remove(&guest)?;
        self.users.remove(&number);
        Some(waiting)
    }

    /// Whether this guest is in the line.
    pub(super) fn has_guest(&self, guest: GuestId) -> bool {
        self.guests.contains_key(&guest)
    }

    /// Whether there is a guest in the line.
    pub(super) fn has_guests(&self) -> bool {
        !self.guests.is_empty()
    }

    /// The guests in the line.
    pub(super) fn guests(&self) -> Vec<GuestId> {
        self.guests.keys().copied().collect()
    }

    /// All of them, the first one first.
    pub(super) fn users(&self) -> impl ExactSizeIterator<Item = LineUser> {
        self.users.values().copied()
    }

    /// How many are ahead of a guest in the line, [`AHEAD_MAX`] at most.
    pub(super) fn ahead_of(&self, guest: GuestId) -> u32 {
        let number = self.guests.get(&guest).map_or(u64::MAX, |(number, _)| *number);
        let ahead = self.users.range(..number).zip(1..=AHEAD_MAX).last();
        ahead.map_or(0, |(_, count)| count)
    }

    /// A position at the present end of the line, for one that comes later.
    pub(super) fn reserve(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}
