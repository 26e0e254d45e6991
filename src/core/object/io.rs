//! The inputs and outputs of an object, and the data that they carry.

use std::sync::Arc;
use std::time::Duration;

use crate::core::bakery::{
    self, Acquire, Claim, Failure, Lease, OpId, Read, ReadFailure, Revocation, Seen, SeenContender,
    StoredRow, Write, WriteOutcome,
};
use crate::core::turns::{
    self, GuestId, GuestLoss, HoldLimit, HoldTerms, KeeperId, KeptEnd, Response, TimedRequest,
    TokenBlock, TurnId,
};

/// The number of a caller among those of its client.
pub(crate) type CallerId = u64;

/// The number of a holder's request among those of its client.
pub(crate) type RequestId = u64;

/// The moment at which an input is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time elapsed by the library's clock, which may jump ahead. Leases end by it.
    pub(crate) elapsed: Duration,
    /// Time elapsed since the machine started, which never jumps.
    pub(crate) boot: Duration,
    /// The wall clock, in µs since the Unix epoch, as far as the nodes' clocks confirm it.
    pub(crate) wall: i64,
    /// A write timestamp, in µs, above every earlier one of this client.
    pub(crate) stamp: i64,
    /// A random number in 0..1, to spread what many clients do.
    pub(crate) jitter: f64,
    /// Another one, for what happens by chance.
    pub(crate) chance: f64,
}

impl Now {
    /// The moment for a contender.
    pub(super) fn of_contender(self) -> bakery::Now {
        bakery::Now { elapsed: self.elapsed, stamp: self.stamp, jitter: self.jitter }
    }

    /// The moment for a keeper or a guest.
    pub(crate) fn of_turns(self) -> turns::Now {
        turns::Now { elapsed: self.elapsed, boot: self.boot }
    }
}

/// A caller that wants the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its number.
    pub(crate) number: CallerId,
    /// How it wants the object.
    pub(crate) acquire: Acquire,
    /// How long it may hold it.
    pub(crate) hold_terms: Option<HoldTerms>,
    /// How long it lets those go first that share the object, if it does.
    pub(crate) yields: Option<Duration>,
    /// How long the place stays taken from its grant on, even if it is returned before.
    pub(crate) min_hold: Duration,
    /// How much of the lease is left at least as it is granted.
    pub(crate) at_least: Duration,
    /// When it asked.
    pub(crate) asked: Duration,
    /// When its timeout passes.
    pub(crate) deadline: Duration,
}

/// What happens to an object. What is large is in a box: inputs move from hand to hand.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A caller wants the object.
    Acquire(Box<Caller>),
    /// A caller has stopped waiting.
    Leave {
        /// The caller.
        caller: CallerId,
    },
    /// The guard of a turn asks for something, or reports something.
    Holder {
        /// The turn.
        turn: TurnId,
        /// What it asks.
        request: HolderRequest,
    },
    /// The answer to [`Output::Write`], or to [`Output::Exchange`] if its write is not
    /// acknowledged.
    Written {
        /// The slot of the contender.
        slot: i16,
        /// The answered operation.
        op: OpId,
        /// Its outcome.
        outcome: WriteOutcome,
    },
    /// The answer to [`Output::Read`] or [`Output::Exchange`].
    Read {
        /// The slot of the contender.
        slot: i16,
        /// The answered operation.
        op: OpId,
        /// What was read.
        read: Box<Read>,
        /// What was seen.
        seen: Result<Seen, ReadFailure>,
    },
    /// The answer to [`Output::ReadOneReplica`]; no rows if it failed.
    OneReplicaRead {
        /// The slot.
        slot: i16,
        /// The rows of one replica.
        rows: Vec<StoredRow>,
    },
    /// The answer to [`Output::Look`].
    Looked(Result<Seen, ReadFailure>),
    /// The answer to [`Output::SweepRead`]; `None` if it failed.
    SweepRead(Option<Seen>),
    /// The answer to [`Output::SweepWrite`]: whether it is acknowledged.
    SweepWritten(bool),
    /// The answer to [`Output::IssueBlock`]; no block if it failed.
    Block {
        /// The round.
        round: i64,
        /// The tokens.
        block: Option<TokenBlock>,
    },
    /// The answer to [`Output::Connect`]: whether the keeper can be asked.
    Connected {
        /// The keeper.
        keeper: KeeperId,
        /// Whether it can be asked.
        is_reachable: bool,
    },
    /// A request of a guest.
    Request {
        /// The guest.
        guest: GuestId,
        /// Its name for people, if it is known.
        name: Option<Arc<str>>,
        /// What it asks.
        request: TimedRequest,
    },
    /// The connection of a guest has ended.
    GuestLeft {
        /// The guest.
        guest: GuestId,
    },
    /// What a keeper answers.
    Response {
        /// The keeper.
        keeper: KeeperId,
        /// The answer.
        response: Response,
    },
    /// There is a new connection to a keeper: what was sent before may be lost.
    Reconnected {
        /// The keeper.
        keeper: KeeperId,
    },
    /// What the client knows of clocks and table has changed.
    Health(Health),
    /// The client keeps too many idle places: this one is given up, if it is kept.
    TooManyKept,
    /// The client is shut down: all callers are refused, and all turns end.
    Close,
    /// Time has passed.
    Tick,
}

/// What the guard of a turn asks.
#[derive(Clone, Debug)]
pub(crate) enum HolderRequest {
    /// The turn is over.
    Return {
        /// Who waits for the acknowledgement, if anybody does.
        request: Option<RequestId>,
    },
    /// The guard's own look at the clock has shown that the turn is lost: perhaps by a later look
    /// than the one with which an input is handled.
    Lost,
    /// A read of the guard has shown that the rows of the turn's place are gone.
    RowsLost(bakery::Loss),
    /// Its caller has not collected it: the answer to [`HolderEvent::AskWhetherCollected`].
    Uncollected,
    /// Confirm that the turn lasts.
    Confirm {
        /// What to confirm.
        need: Need,
        /// Who waits for the answer.
        request: RequestId,
    },
    /// Write other rows from now on.
    Revise {
        /// How long they live, if that is longer than before.
        terms: Option<bakery::LeaseTerms>,
        /// What they say to people.
        owner: Option<Arc<str>>,
        /// Who waits until they are written.
        request: RequestId,
    },
    /// Share the place from now on, which the turn had alone.
    Share {
        /// Who waits until the rows say so.
        request: RequestId,
    },
    /// Issue a fencing token.
    IssueToken {
        /// Who waits for the answer.
        request: RequestId,
    },
}

/// What a holder needs confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// That the lease lasts this long without renewal.
    Lease(Duration),
    /// That the rows are there.
    Rows,
}

/// What keeps a client from granting locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Health {
    /// Nothing.
    Good,
    /// Clocks differ by more than leases allow for.
    ClocksDiffer,
    /// The lock table was dropped or made again.
    TableGone,
}

/// What an object asks for. What is large is in a box, as in [`Input`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Write rows for the contender of a slot; answer with [`Input::Written`]. What was asked for
    /// this slot before, and is not answered, is of no use any more.
    Write {
        /// The slot.
        slot: i16,
        /// Answer with this id.
        op: OpId,
        /// What to write.
        write: Write,
    },
    /// Read rows for the contender of a slot, likewise; answer with [`Input::Read`].
    Read {
        /// The slot.
        slot: i16,
        /// Answer with this id.
        op: OpId,
        /// What to read.
        read: Box<Read>,
    },
    /// Write rows for the contender of a slot and read others, likewise, each replica both as a
    /// unit; answer with [`Input::Read`] what a quorum shows that did both, or that the write is
    /// applied and the read failed; or with [`Input::Written`] why the write is not acknowledged.
    Exchange {
        /// The slot.
        slot: i16,
        /// Answer with this id.
        op: OpId,
        /// What to write.
        write: Write,
        /// What to read.
        read: Box<Read>,
    },
    /// Read the object from one replica, independently of other requests; answer with
    /// [`Input::OneReplicaRead`].
    ReadOneReplica {
        /// The slot.
        slot: i16,
    },
    /// Read the whole object for callers that yield, independently of other requests; answer with
    /// [`Input::Looked`].
    Look,
    /// Read the whole object for a sweep, independently of other requests.
    SweepRead,
    /// Make a write of a sweep, independently of other requests. One try.
    SweepWrite(Write),
    /// Issue a block of tokens for a round: see [`TokenBlock`].
    IssueBlock {
        /// The claim of the contender in that round.
        claim: Claim,
        /// How far the clocks of two nodes may differ.
        max_clock_skew: Duration,
    },
    /// Connect to a keeper; answer with [`Input::Connected`].
    Connect {
        /// The keeper.
        keeper: KeeperId,
        /// Only if it is connected already: answer at once.
        at_once: bool,
    },
    /// Send a request to a keeper.
    Ask {
        /// The keeper.
        keeper: KeeperId,
        /// The request.
        request: TimedRequest,
    },
    /// Answer a guest.
    Answer {
        /// The guest.
        guest: GuestId,
        /// The answer.
        response: Response,
        /// Who has the turn, for a guest that must wait.
        user: Option<User>,
    },
    /// A caller has its turn.
    Granted(Box<Granted>),
    /// A caller does not get the object.
    Refused {
        /// The caller.
        caller: CallerId,
        /// Why.
        refusal: Refusal,
    },
    /// What becomes of a turn.
    Holder {
        /// The turn.
        turn: TurnId,
        /// What.
        event: HolderEvent,
    },
    /// A holder's request is answered.
    Reply {
        /// The request.
        request: RequestId,
        /// The answer.
        reply: Reply,
    },
    /// A report to people or other parts of the client.
    Report(Report),
}

/// A turn that a caller has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The caller.
    pub(crate) caller: CallerId,
    /// The turn.
    pub(crate) turn: TurnId,
    /// When it was given.
    pub(crate) granted: Duration,
    /// The lease until the first renewal.
    pub(crate) lease: Lease,
    /// When its holder is to finish, and when it is lost, if that is limited.
    pub(crate) limit: Option<HoldLimit>,
    /// Where the turn came from.
    pub(crate) origin: Origin,
    /// The claim of the contender that has the place, if that is of this client.
    pub(crate) claim: Option<Claim>,
    /// How long the caller waited.
    pub(crate) waited: Duration,
    /// How many wait behind it.
    pub(crate) waiting: usize,
}

/// Where a turn came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// It is the first one of a place in the table.
    Table,
    /// It is a further one of such a place.
    Turn,
    /// Another client gave it.
    Keeper,
}

/// Why a caller does not get the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The object is taken, and the caller does not want to wait.
    Taken,
    /// Its timeout has passed.
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// Who has the turn that it waited for, if it waited for one.
        user: Option<User>,
        /// The contenders that hold the object or are ahead, as last seen in the table.
        ahead: Vec<SeenContender>,
    },
    /// The acquisition failed.
    Failed {
        /// Why.
        failure: Failure,
        /// How long it waited.
        waited: Duration,
    },
    /// The client grants no locks at present.
    Unhealthy(Health),
    /// The client is shut down.
    Closed,
}

/// What becomes of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HolderEvent {
    /// It has another lease.
    Renewed(Lease),
    /// The holder is to finish.
    Expiring(Expiring),
    /// It is at risk.
    AtRisk {
        /// How long the lease still lasts.
        remaining: Duration,
    },
    /// It is lost.
    Lost(Loss),
    /// If its caller has not collected the guard yet, answer with [`HolderRequest::Uncollected`].
    AskWhetherCollected,
}

/// Why a holder is to finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expiring {
    /// Another client asked for that.
    Revoked(Revocation),
    /// It has held the object for as long as it may.
    HoldLimit,
    /// The keeper of the place needs it back.
    Keeper,
}

impl Expiring {
    /// Why the turn is lost if its holder does not finish before the lease ends; `None`: the lease
    /// is renewed.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self {
            Expiring::Revoked(revocation) => {
                Some(Loss::Place(bakery::Loss::Revoked(revocation.clone())))
            }
            Expiring::Keeper => Some(Loss::Guest(GuestLoss::PlaceLost)),
            Expiring::HoldLimit => None,
        }
    }
}

/// Why a turn is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The place in the table is lost.
    Place(bakery::Loss),
    /// The turn of another client is lost.
    Guest(GuestLoss),
    /// It was held for longer than its limit.
    HoldLimit,
    /// The lock table was dropped or made again.
    TableGone,
    /// The client is shut down.
    Closed,
}

/// The answer to a request of a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The turn is over, and nothing more is to be waited for.
    Returned,
    /// That the rows are deleted was not acknowledged in time.
    Unacknowledged {
        /// How long that was waited for.
        waited: Duration,
    },
    /// The turn lasts.
    Held {
        /// How long, without renewal.
        remaining: Duration,
    },
    /// Its rows are another client's, or are not written any more.
    Unchangeable,
    /// It can't last as long as needed.
    TooLong {
        /// What was needed.
        min: Duration,
        /// How long it lasts.
        remaining: Duration,
    },
    /// That it lasts was not confirmed in time.
    Unconfirmed {
        /// How long that was waited for.
        waited: Duration,
    },
    /// A fencing token.
    Token(i64),
    /// There is no token: no block could be issued.
    NoToken,
    /// The turn was returned, and lost before its place was to be free.
    Lost(Loss),
    /// There is no answer: the turn has ended, and its guard knows how.
    Over,
}

/// Who uses a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum User {
    /// A caller of this client, by its name.
    Own(Arc<str>),
    /// A guest of this client, and its name, if that is known.
    Guest(GuestId, Option<Arc<str>>),
    /// As this keeper says.
    OfKeeper(KeeperId),
}

/// A report to people or other parts of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Clocks and table should be looked at.
    Check(CheckReason),
    /// A place in the table is held.
    Held,
    /// Contenders wait in the table that are in no line of the place.
    OutsidersWait,
    /// The object's mark is ahead of the clock: the clock of a client was wrong.
    MarkAhead(Duration),
    /// A guest has a turn, and others wait behind it.
    Lent {
        /// How many.
        waiting: usize,
    },
    /// An idle place is kept.
    Kept,
    /// It is kept no longer.
    KeptEnds(KeptEnd),
    /// Dead rows were hidden up to this stamp.
    Swept {
        /// The stamp.
        horizon: i64,
    },
}

/// Why clocks and table should be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckReason {
    /// A caller wants a lock.
    Acquisition,
    /// A lease was renewed.
    Renewal,
    /// The database refuses a statement.
    Refusal,
    /// A row is missing that was acknowledged.
    RowMissing,
}
