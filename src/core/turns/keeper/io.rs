//! The inputs and outputs of a keeper.

use std::time::Duration;

use crate::core::bakery::{ContenderId, LeaseTerms, Mode, Patience};
use crate::core::turns::messages::{GuestId, Response, TimedRequest, TurnId};
use crate::core::turns::tokens::TokenBlock;

/// How a caller wants the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    /// How to hold it.
    pub(crate) mode: Mode,
    /// How long rows live without renewal.
    pub(crate) terms: LeaseTerms,
    /// Whether to wait.
    pub(crate) patience: Patience,
    /// How long the place stays taken at least, from the grant on. The terms last longer.
    pub(crate) min_hold: Duration,
    /// How much of the lease is left at least as the place is granted, unless others share it by
    /// then. The terms last longer.
    pub(crate) at_least: Duration,
}

/// What happens to a keeper.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeeperInput {
    /// The contender holds the object.
    Held {
        /// The contender.
        place: ContenderId,
        /// Its round.
        round: i64,
        /// The terms of its rows.
        terms: LeaseTerms,
        /// Until when the rows count, by the library's clock.
        deadline: Duration,
    },
    /// Whether another keeper is asked for a turn for the first in the line. Only while
    /// [`may_ask`](super::Keeper::may_ask) says so.
    Asking(bool),
    /// That keeper has given a turn. It serves one caller; [`KeeperOutput::Release`] returns it.
    GuestTurn {
        /// The turn.
        turn: TurnId,
    },
    /// The contender gave up acquiring, and its rows are being deleted. The first in the line has
    /// its answer.
    Failed,
    /// The rows were renewed on these terms, until this deadline.
    Renewed {
        /// The terms.
        terms: LeaseTerms,
        /// Until when the rows count now.
        deadline: Duration,
    },
    /// The place is revoked: it is not renewed any more, and is to be released once the turns that
    /// are out have ended.
    Expiring,
    /// The place is lost. The rows stay until [`KeeperOutput::Release`].
    Lost,
    /// The rows are deleted.
    Released,
    /// A caller of this process joins the line.
    Join {
        /// The caller.
        caller: u64,
        /// What it wants.
        demand: Demand,
    },
    /// A caller leaves the line.
    Leave {
        /// The caller.
        caller: u64,
    },
    /// A caller's turn is over, unless its place [stays taken](Demand::min_hold).
    Returned {
        /// The turn.
        turn: TurnId,
    },
    /// A caller shares the place from now on, which its turn had alone. Only while
    /// [`can_share`](super::Keeper::can_share) says so.
    Shares {
        /// The turn.
        turn: TurnId,
    },
    /// A caller issues a token in its turn.
    IssueToken {
        /// The turn.
        turn: TurnId,
        /// The number of the token within the turn.
        number: u64,
    },
    /// The answer to [`KeeperOutput::IssueBlock`]: the tokens of a round, once the fence is
    /// acknowledged and the own rows were read. `None`: one of the two failed.
    Block {
        /// The round.
        round: i64,
        /// The tokens.
        block: Option<TokenBlock>,
    },
    /// A request of a guest.
    Request {
        /// The guest.
        guest: GuestId,
        /// What it asks.
        request: TimedRequest,
    },
    /// The connection of a guest has ended. It leaves the line; a turn that it has continues.
    GuestLeft {
        /// The guest.
        guest: GuestId,
    },
    /// The answer to [`KeeperOutput::Look`]: whether contenders outside the line wait in the table.
    Looked {
        /// Whether there is one.
        outsiders: bool,
    },
    /// The guests in the line are to ask another keeper, unless there is a place by now.
    Disband,
    /// Whether clocks or table are in doubt. Meanwhile no idle place is kept.
    InDoubt(bool),
    /// Give up the place if it is kept idle.
    GiveUpKept(KeptEnd),
    /// Grant nothing from now on.
    Shutdown,
    /// Time has passed.
    Tick,
}

/// What a keeper asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeeperOutput {
    /// Acquire the object through the table.
    Acquire {
        /// The first in the line; `None` if it is a guest.
        caller: Option<u64>,
    },
    /// The object is taken, and this caller does not want to wait.
    Taken {
        /// The caller.
        caller: u64,
    },
    /// The caller has its turn.
    Grant {
        /// The caller.
        caller: u64,
        /// The turn.
        turn: TurnId,
    },
    /// The caller has its token.
    Token {
        /// The turn.
        turn: TurnId,
        /// The number of the token within the turn.
        number: u64,
        /// The token.
        value: i64,
    },
    /// Issue a block of tokens: see [`TokenBlock`].
    IssueBlock {
        /// The round.
        round: i64,
    },
    /// Send a message to a guest.
    Send {
        /// The guest.
        guest: GuestId,
        /// The message.
        response: Response,
    },
    /// Renew the rows on these terms, now.
    Renew {
        /// The terms.
        terms: LeaseTerms,
    },
    /// A turn that was returned early needs no more writes: the rows last as long as the place
    /// stays taken, or that time is over.
    Returned,
    /// Look for contenders in the table, independently of all else; answer with
    /// [`KeeperInput::Looked`]. It is a hint: one replica is enough.
    Look,
    /// No turn is out, and the place is kept for the next one: renew it no more until a turn
    /// follows.
    Keep,
    /// The place is no longer kept: a turn, its release or its loss follows.
    KeptEnds(KeptEnd),
    /// Delete the rows.
    Release,
}

/// Why an idle place is kept no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeptEnd {
    /// The next turn begins.
    Used,
    /// Nobody wanted it for long enough.
    Unused,
    /// A contender waits in the table.
    Outsiders,
    /// A caller of this client wants the object in another way.
    OtherMode,
    /// The client keeps too many places.
    TooMany,
    /// The client is shut down, or its clocks or the table are in doubt.
    Client,
    /// It is revoked.
    Revoked,
    /// It is lost.
    Lost,
}
