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
//! keeper. [`sublease`] is the arithmetic of both clocks, [`tokens`] that of fencing tokens,
//! [`hold_limit`] that of the longest time that a lock may be held. [`competing_keepers`] are other
//! clients with a line.
//!
//! # What is absent
//!
//! Async, clocks, randomness, sockets and the database. `tests/model` checks all of it.

mod competing_keepers;
mod guest;
mod hold_limit;
mod keeper;
mod messages;
mod sublease;
mod tokens;

#[cfg(any(instrumented, feature = "peers"))]
pub(crate) use self::messages::{Extended, Granted};
pub(crate) use self::{
    competing_keepers::CompetingKeepers,
    guest::{Guest, GuestEvent, GuestInput, GuestLoss, GuestOutput},
    hold_limit::{HoldLimit, HoldTerms},
    keeper::{
        Keeper, LineUser, TurnOf,
        io::{Demand, KeeperInput, KeeperOutput},
    },
    messages::{GuestId, KeeperId, Now, Request, Response, TimedRequest, TurnId},
    tokens::TokenBlock,
};
