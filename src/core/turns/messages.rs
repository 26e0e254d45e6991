//! What keeper and guest say to each other about one object.

use std::time::Duration;

use crate::core::bakery::ContenderId;

/// The uuid of a client that stands in the line of another one, as a number.
pub(crate) type GuestId = u128;

/// The uuid of a client that keeps a place, as a number.
pub(crate) type KeeperId = u128;

/// How many of those ahead of a guest a keeper counts. A larger number from another client counts
/// as this one.
pub(super) const AHEAD_MAX: u32 = 100;

/// The moment at which an input is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time elapsed by the library's clock, which may jump ahead. Leases end by it: a party that
    /// must stop may stop early.
    pub(crate) elapsed: Duration,
    /// Time elapsed since the machine started, which never jumps. A keeper waits by it until a
    /// turn is over (rule R2).
    pub(crate) boot: Duration,
}

/// One use of a place. All of it together identifies a turn (rule R3): a keeper that was restarted
/// is another contender, and numbers its rounds and turns from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TurnId {
    /// The contender that holds the place.
    pub(crate) place: ContenderId,
    /// Its round.
    pub(crate) round: i64,
    /// The number of the turn within the round.
    pub(crate) number: u64,
}

/// A message to a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimedRequest {
    /// When it was sent, by the guest's clock. The keeper returns it as an echo.
    pub(crate) sent: Duration,
    /// The request.
    pub(crate) request: Request,
}

/// What a guest asks of a keeper. Requests are numbered by the guest, and the numbers grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    /// Give me a turn. Repeated while the guest waits: it is the heartbeat.
    Ask {
        /// The number of the request.
        request: u64,
        /// The longest sublease that the guest wants.
        ttl: Duration,
        /// Only an idle place: the guest does not wait in the line.
        is_try: bool,
        /// How long the first sublease lasts at least; zero: as usual.
        least: Duration,
    },
    /// I want no turn any more. It ends the turn if that was granted.
    Withdraw {
        /// The number of the request.
        request: u64,
    },
    /// Extend my turn.
    Renew {
        /// The turn.
        turn: TurnId,
        /// For at least so long, if [`SUBLEASE_MAX`](super::sublease::SUBLEASE_MAX) is too short;
        /// otherwise zero.
        least: Duration,
    },
    /// Give me a fencing token. Repeated until it is answered.
    IssueToken {
        /// The turn.
        turn: TurnId,
        /// The number of the token within the turn.
        number: u64,
    },
    /// My turn is over, or I never took it. Repeated until it is answered.
    Return {
        /// The turn.
        turn: TurnId,
    },
    /// I have the turn, as [`Response::Check`] asks.
    Confirm {
        /// The turn.
        turn: TurnId,
        /// The number of the question.
        number: u64,
    },
}

/// What a keeper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Response {
    /// The guest is in the line.
    Queued {
        /// The number of the request.
        request: u64,
        /// How many are ahead of it in the line, [`AHEAD_MAX`] at most.
        ahead: u32,
    },
    /// The guest has the turn.
    Granted(Granted),
    /// The turn lasts longer.
    Extended(Extended),
    /// The turn is over.
    Returned {
        /// The turn.
        turn: TurnId,
    },
    /// A fencing token, decided once.
    Token {
        /// The turn.
        turn: TurnId,
        /// The number of the token within the turn.
        number: u64,
        /// The token.
        value: i64,
    },
    /// Leave: the turn is not extended any more.
    Leave {
        /// The turn.
        turn: TurnId,
    },
    /// The turn is lost, or there is no such turn.
    Lost {
        /// The turn.
        turn: TurnId,
    },
    /// There is no turn here: continue in the table.
    Elsewhere {
        /// The number of the request.
        request: u64,
    },
    /// Do you have this turn still?
    Check {
        /// The turn.
        turn: TurnId,
        /// The number of the question within the turn.
        number: u64,
    },
}

/// A turn, decided once: a repeated one says the same to the letter (rule R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Granted {
    /// The number of the request.
    pub(crate) request: u64,
    /// The turn.
    pub(crate) turn: TurnId,
    /// The newest `sent` that the keeper had from the guest before it read its clock.
    pub(crate) echo: Duration,
    /// How long the turn lasts, from the echo on, by the guest's clock.
    pub(crate) length: Duration,
}

/// A longer turn, decided once like [`Granted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extended {
    /// The turn.
    pub(crate) turn: TurnId,
    /// The `sent` of the renewal.
    pub(crate) echo: Duration,
    /// How long the turn lasts, from the echo on, by the guest's clock.
    pub(crate) length: Duration,
}
