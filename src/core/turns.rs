//! Turns for other processes: who uses a held place next, and for how long (design section 7).
//!
//! A *keeper* is the client whose contender holds the object. Its place is used in turn by the
//! callers in its *line*: callers of its own process, and *guests*, which are clients that ask by
//! message. A guest has its turn for the time of a *sublease*.
//!
//! # The contract
//!
//! `Keeper` and `Guest` are driven like the contender of [`bakery`](crate::core::bakery): after
//! each `handle`, take every output from `poll` until it is empty, then sleep until `deadline` or
//! the next input. Read `Now` after the input has arrived, not before. Messages may be lost,
//! repeated and reordered.
//!
//! # Where to look
//!
//! [`messages`] defines what keeper and guest say to each other, and what identifies a turn.
//! [`keeper`] is the keeper of one object, with its line. `guest` is one client's request to a
//! keeper. [`sublease`] is the arithmetic of both clocks, [`tokens`] that of fencing tokens.
//! [`competing_keepers`] are other clients with a line.
//!
//! # What is absent
//!
//! Async, clocks, randomness, sockets and the database. `tests/model` checks all of it.

mod competing_keepers;
mod guest;
mod keeper;
mod messages;
mod sublease;
mod tokens;

use std::time::Duration;

#[cfg(any(instrumented, feature = "peers"))]
pub(crate) use self::messages::{Extended, Granted};
pub(crate) use self::{
    competing_keepers::CompetingKeepers,
    guest::{Guest, GuestEvent, GuestInput, GuestLoss, GuestOutput},
    keeper::{
        Keeper, LineUser, TurnOf, Usage,
        io::{Demand, KeeperInput, KeeperOutput, KeptEnd},
    },
    messages::{GuestId, KeeperId, Now, Request, Response, TimedRequest, TurnId},
    sublease::SUBLEASE_MAX,
    tokens::TokenBlock,
};

/// How long a lock may be held, as its caller asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldTerms {
    /// After this time the holder must finish.
    pub(crate) max_hold: Duration,
    /// How long that may take.
    pub(crate) grace: Duration,
}

impl HoldTerms {
    /// The limit of a turn that was given at `granted`.
    pub(crate) fn limit(self, granted: Duration) -> HoldLimit {
        let expiring_from = granted.saturating_add(self.max_hold);
        HoldLimit { expiring_from, ends: expiring_from.saturating_add(self.grace) }
    }
}

/// How long one turn may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldLimit {
    /// From this time on the holder must finish.
    pub(crate) expiring_from: Duration,
    /// When the lock is taken from it.
    pub(crate) ends: Duration,
}
