//! Ways to spoil the protocol. The model in `tests/model`, and the simulation in `tests/spoilt`,
//! plant one after the other and must find what it breaks; what finds nothing shows nothing.
//!
//! Each is asked for at the lines that it spoils. Outside of these none is ever planted, and the
//! compiler removes the question.

#[cfg(model)]
use std::cell::Cell;

/// A way to spoil the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Who has no ticket yet does not keep others from the short way.
    ShortWayIgnoresChoosing,
    /// Who has no ticket yet blocks nobody who waits.
    NoChoosingPhase,
    /// Of two equal tickets neither is before the other.
    NoTieBreak,
    /// Who has a ticket needs no `entering::` row, and so drops it.
    TicketStandsAlone,
    /// When one in the queue is gone, all before it count as gone.
    MiddleStandsForAll,
    /// An exclusive holder is one of those that a limited one may have beside it.
    LimitedCountsExclusive,
    /// The lease begins when a write is acknowledged instead of when it is tried.
    LeaseFromAcknowledgement,
    /// A renewal counts even if it is acknowledged when the lease is over.
    LateRenewalCounts,
    /// A look at the last blocker lets in, without a read that shows the own rows.
    NoConfirmingRead,
    /// A renewal writes the rows whatever the read before it shows, and finds out afterwards only.
    RenewalUnread,
    /// Of two holders neither gives way to the other.
    HoldersDoNotCompare,
    /// Of two holders that were let in at the same moment neither gives way to the other.
    NoTieBreakOfHolders,
}

impl Mutation {
    /// Whether the protocol is spoilt in this way.
    #[cfg(not(model))]
    pub(super) const fn is_planted(self) -> bool {
        false
    }

    /// All ways.
    #[cfg(model)]
    pub(crate) const ALL: [Mutation; 12] = [
        Mutation::ShortWayIgnoresChoosing,
        Mutation::NoChoosingPhase,
        Mutation::NoTieBreak,
        Mutation::TicketStandsAlone,
        Mutation::MiddleStandsForAll,
        Mutation::LimitedCountsExclusive,
        Mutation::LeaseFromAcknowledgement,
        Mutation::LateRenewalCounts,
        Mutation::NoConfirmingRead,
        Mutation::RenewalUnread,
        Mutation::HoldersDoNotCompare,
        Mutation::NoTieBreakOfHolders,
    ];

    /// Whether the protocol is spoilt in this way, on this thread.
    #[cfg(model)]
    pub(super) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Spoils the protocol on this thread from now on, or mends it.
    #[cfg(model)]
    pub(crate) fn plant(mutation: Option<Self>) {
        PLANTED.set(mutation);
    }
}

#[cfg(model)]
thread_local! {
    static PLANTED: Cell<Option<Mutation>> = const { Cell::new(None) };
}
