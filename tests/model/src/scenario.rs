//! The contenders, what may go wrong, and the bug that is planted in the protocol.

use crate::core::bakery::{Mode, Patience, SeededBug};
use crate::sightings::Sight;

/// What a search goes through.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// What the contenders want.
    pub(crate) requests: Vec<LockRequest>,
    /// How often each wants it.
    pub(crate) rounds: u8,
    /// Whether the store writes and reads in one round trip.
    pub(crate) exchanges: bool,
    /// How many of those ahead a waiter asks for at once, at most.
    pub(crate) front_max: usize,
    pub(crate) troubles: Troubles,
    /// Whether replicas that are behind catch up where no contender can tell, to save states.
    pub(crate) reduced: bool,
    /// The flaw in the protocol or in what it runs on.
    pub(crate) flaw: Option<Flaw>,
    /// What a search must come across.
    pub(crate) must_see: &'static [Sight],
}

/// What a contender wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest {
    pub(crate) mode: Mode,
    pub(crate) patience: Patience,
}

/// What may happen besides the ordinary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Troubles {
    /// Whether requests fail and are made again.
    pub(crate) failures: bool,
    /// Whether contenders give up, at any point.
    pub(crate) giving_up: bool,
    /// How many contenders may die.
    pub(crate) deaths: usize,
    /// Whether a contender begins its next round before its release is acknowledged, as a state
    /// machine that knows nothing of the one before.
    pub(crate) haste: bool,
    /// Whether a contender is asked to leave, and how.
    pub(crate) revocation: Revoking,
    /// Whether a client sweeps the object.
    pub(crate) sweep: bool,
}

/// How a contender is asked to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revoking {
    Never,
    Asking,
    Force,
}

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The protocol itself.
    Protocol(SeededBug),
    /// A write counts as acknowledged when it is sent, so the read after it begins before that.
    ReadBeforeAcknowledgement,
    /// One replica is a quorum.
    QuorumOfOne,
    /// A sweep reads the rows before its mark is acknowledged.
    SweepReadsEarly,
}

pub(crate) const CALM: Troubles = Troubles {
    failures: false,
    giving_up: false,
    deaths: 0,
    haste: false,
    revocation: Revoking::Never,
    sweep: false,
};

pub(crate) const EXCLUSIVE: LockRequest =
    LockRequest { mode: Mode::Exclusive, patience: Patience::Wait };

impl Scenario {
    /// Contenders that all want the lock once, in calm weather.
    pub(crate) fn of(requests: &[LockRequest]) -> Self {
        let requests = requests.to_vec();
        Scenario {
            requests,
            rounds: 1,
            exchanges: false,
            // With three contenders, the second asks like a waiter near the front, the third like
            // one further back.
            front_max: 1,
            troubles: CALM,
            reduced: true,
            flaw: None,
            must_see: &[],
        }
    }

    pub(crate) fn exchanging(self) -> Self {
        Scenario { exchanges: true, ..self }
    }

    /// Waiters ask for no more than this many of those ahead at once.
    pub(crate) fn with_front_max(self, front_max: usize) -> Self {
        Scenario { front_max, ..self }
    }

    /// Waiters ask for one contender at a time, and read whole before they are let in.
    pub(crate) fn asking_one_by_one(self) -> Self {
        self.with_front_max(0)
    }

    pub(crate) fn rounds(self, rounds: u8) -> Self {
        Scenario { rounds, ..self }
    }

    pub(crate) fn troubles(self, troubles: Troubles) -> Self {
        Scenario { troubles, ..self }
    }

    pub(crate) fn flaw(self, flaw: Flaw) -> Self {
        Scenario { flaw: Some(flaw), ..self }
    }

    pub(crate) fn must_see(self, must_see: &'static [Sight]) -> Self {
        Scenario { must_see, ..self }
    }

    /// How many replicas are a quorum of three.
    pub(crate) fn quorum(&self) -> usize {
        if self.flaw == Some(Flaw::QuorumOfOne) { 1 } else { 2 }
    }

    /// For how many the store has rows: the contenders, and the object's mark behind them.
    pub(crate) fn places(&self) -> usize {
        self.requests.len() + usize::from(self.troubles.sweep)
    }

    /// How often each may renew what it holds: once where a contender is asked to leave, because
    /// that is found at a renewal.
    pub(crate) fn renewals(&self) -> u8 {
        u8::from(self.troubles.revocation != Revoking::Never)
    }

    /// The bug that is planted in the protocol itself.
    pub(crate) fn mutation(&self) -> Option<SeededBug> {
        match self.flaw {
            Some(Flaw::Protocol(mutation)) => Some(mutation),
            Some(Flaw::ReadBeforeAcknowledgement | Flaw::QuorumOfOne | Flaw::SweepReadsEarly)
            | None => None,
        }
    }
}
