//! Seeded bugs. The model in `tests/model` and the simulation in `tests/simulation` plant them one
//! by one and must find what breaks; a search that finds none of them proves nothing.
//!
//! The lines that a bug changes ask whether it is planted. In all other builds no bug is ever
//! planted, and the compiler removes the question.

#[cfg(instrumented)]
use std::cell::Cell;

/// A bug of the protocol that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeededBug {
    /// A contender without a ticket does not keep others from the fast path.
    FastPathIgnoresChoosing,
    /// A contender without a ticket blocks no waiter.
    NoChoosingPhase,
    /// Of two equal tickets neither is before the other.
    NoTieBreak,
    /// When one contender in the queue is gone, all before it count as gone.
    MiddleStandsForAll,
    /// An exclusive holder counts as one of the holders that a limited one tolerates.
    LimitedCountsExclusive,
    /// The lease begins when a write is acknowledged instead of when it is tried.
    LeaseFromAcknowledgement,
    /// A renewal counts even if it is acknowledged after the lease is over.
    LateRenewalCounts,
    /// A look at the last blockers lets a waiter in, whatever is shown of its own rows.
    OwnRowsUnread,
    /// A waiter that exchanges only reads, although its rows may not be where it asks.
    WaiterOnlyReads,
    /// A renewal writes the rows whatever the read before it shows, and only finds out afterwards.
    RenewalUnread,
    /// Of two holders neither gives way to the other.
    HoldersDoNotCompare,
    /// Of two holders that were let in at the same moment neither gives way to the other.
    NoTieBreakOfHolders,
    /// A holder that is asked to leave renews its lease.
    RevokedRenews,
    /// A holder that is asked to leave deletes its rows before it is released.
    RevokedDeletesRows,
    /// A contender enters whatever the mark of the object.
    MarkIgnored,
    /// A sweep hides rows whatever the read before it shows.
    SweepUnchecked,
    /// A sublease may end after the lease of its place.
    SubleaseBeyondPlace,
    /// A keeper counts a sublease as if both clocks ran alike.
    NoDriftAllowance,
    /// A keeper counts a sublease by a clock that may jump ahead.
    SubleaseOnJumpingClock,
    /// A guest counts its sublease from the receipt of the grant.
    LeaseFromReceipt,
    /// A repeated grant carries the newest echo.
    EchoRefreshed,
    /// A guest accepts a grant of a turn that it gave back.
    OldGrantAccepted,
    /// A guest returns its turn when that is granted to it once more.
    RepeatedGrantReturned,
    /// A keeper ends the present turn whichever turn is returned.
    AnyReturnCounts,
    /// A turn is not identified by the round.
    TurnWithoutRound,
    /// A turn is not identified by the keeper's client.
    TurnWithoutClient,
    /// A keeper deletes its rows while a turn is out.
    RowsDeletedInTurn,
    /// A keeper writes rows with a shorter TTL while a turn is out.
    RowsShortenedInTurn,
    /// A keeper shortens its rows when a turn is returned early, and gives the next turn on the
    /// earlier deadline.
    RowsShortenedAfterReturn,
    /// A keeper queues a request again that is over.
    FinishedRequestsCount,
    /// A keeper hands out in a round what is left of the tokens of an earlier one.
    BlockCarriedOver,
    /// A guest takes a place on the terms of one that stayed taken before.
    GuestOnTermsOfRest,
    /// A turn is given although less of the lease is left than its caller needs.
    TooLittleTime,
    /// A place that is to stay taken is free once its turn is returned.
    MinHoldIgnored,
    /// A client that is shut down frees a place that is to stay taken.
    ShutdownFreesPlace,
    /// The lease of a place never ends once that is kept.
    KeptWithoutLease,
    /// A place is renewed while it is kept.
    KeptPlaceRenewed,
    /// An idle place is kept when another client asked its holder to leave.
    KeptThroughRevocation,
    /// An idle place is kept when its client is shut down.
    KeptThroughShutdown,
    /// An idle place is kept while contenders wait in the table.
    KeptBesideOutsiders,
    /// A keeper gives the next turn of a place alone that a holder shares by now.
    DowngradeForgotten,
    /// An object is used again at once after its task has failed.
    FailedTaskForgotten,
    /// A client that a keeper sends away does not come back to the table.
    NoWayBack,
    /// A client that a keeper sends away while it leaves the table does not come back to it.
    NoWayBackWhileLeaving,
    /// A contender that meets a mark begins its next round by its clock alone.
    NextRoundBelowMark,
    /// A waiter pauses for as long as releases suggest.
    PauseUnbounded,
}

impl SeededBug {
    /// Whether this bug is planted.
    #[cfg(not(instrumented))]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }

    /// The bugs of contenders and their rows.
    #[cfg(instrumented)]
    pub(crate) const OF_CONTENDERS: [SeededBug; 16] = [
        SeededBug::FastPathIgnoresChoosing,
        SeededBug::NoChoosingPhase,
        SeededBug::NoTieBreak,
        SeededBug::MiddleStandsForAll,
        SeededBug::LimitedCountsExclusive,
        SeededBug::LeaseFromAcknowledgement,
        SeededBug::LateRenewalCounts,
        SeededBug::OwnRowsUnread,
        SeededBug::WaiterOnlyReads,
        SeededBug::RenewalUnread,
        SeededBug::HoldersDoNotCompare,
        SeededBug::NoTieBreakOfHolders,
        SeededBug::RevokedRenews,
        SeededBug::RevokedDeletesRows,
        SeededBug::MarkIgnored,
        SeededBug::SweepUnchecked,
    ];

    /// The bugs of keepers and guests.
    #[cfg(instrumented)]
    pub(crate) const OF_TURNS: [SeededBug; 15] = [
        SeededBug::SubleaseBeyondPlace,
        SeededBug::NoDriftAllowance,
        SeededBug::SubleaseOnJumpingClock,
        SeededBug::LeaseFromReceipt,
        SeededBug::EchoRefreshed,
        SeededBug::OldGrantAccepted,
        SeededBug::RepeatedGrantReturned,
        SeededBug::AnyReturnCounts,
        SeededBug::TurnWithoutRound,
        SeededBug::TurnWithoutClient,
        SeededBug::RowsDeletedInTurn,
        SeededBug::RowsShortenedInTurn,
        SeededBug::RowsShortenedAfterReturn,
        SeededBug::FinishedRequestsCount,
        SeededBug::BlockCarriedOver,
    ];

    /// The bugs of objects: of what lies between contender, keeper, guests and callers.
    #[cfg(instrumented)]
    pub(crate) const OF_OBJECTS: [SeededBug; 13] = [
        SeededBug::GuestOnTermsOfRest,
        SeededBug::TooLittleTime,
        SeededBug::MinHoldIgnored,
        SeededBug::ShutdownFreesPlace,
        SeededBug::KeptWithoutLease,
        SeededBug::KeptPlaceRenewed,
        SeededBug::KeptThroughRevocation,
        SeededBug::KeptThroughShutdown,
        SeededBug::KeptBesideOutsiders,
        SeededBug::DowngradeForgotten,
        SeededBug::FailedTaskForgotten,
        SeededBug::NoWayBack,
        SeededBug::NoWayBackWhileLeaving,
    ];

    /// The bugs by which callers wait for too long.
    #[cfg(instrumented)]
    pub(crate) const OF_WAITING: [SeededBug; 2] =
        [SeededBug::NextRoundBelowMark, SeededBug::PauseUnbounded];

    /// Whether this bug is planted on this thread.
    #[cfg(instrumented)]
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Plants a bug on this thread from now on, or removes the planted one.
    #[cfg(instrumented)]
    pub(crate) fn plant(mutation: Option<Self>) {
        PLANTED.set(mutation);
    }
}

#[cfg(instrumented)]
thread_local! {
    static PLANTED: Cell<Option<SeededBug>> = const { Cell::new(None) };
}
