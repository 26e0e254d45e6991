//! What must happen now and then in a search, lest it show nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something that a search must come across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A contender is let in on the fast path.
    FastPath,
    /// A contender is let in with a ticket.
    ThroughTheQueue,
    /// A contender is let in by a read of its own rows and of the few ahead.
    FromTheFront,
    /// A contender draws the ticket of another one.
    Tie,
    /// A contender gives up before it has a ticket.
    GivenUpInTheDoorway,
    /// A contender gives up with a ticket.
    GivenUpInTheQueue,
    /// A holder dies.
    HolderDied,
    /// A contender dies on the way.
    ContenderDied,
    /// A read shows a row whose round is over.
    StaleRow,
    /// A try sees that the lock is taken.
    Taken,
    /// A holder loses the lock because it is asked to leave.
    HolderRevoked,
    /// A waiter leaves because it is asked to.
    WaiterRevoked,
    /// A contender finds its rows missing.
    RowMissing,
    /// A contender begins a new round because of the mark of a sweep.
    SentBack,
    /// A sweep begins to hide rows.
    Swept,
    /// A sweep leaves the rows of a contender with an earlier round.
    Spared,
    /// A contender announces itself while the release before is under way.
    NextRoundInHaste,
    /// A holder renews its lease in time.
    Renewed,
    /// A holder loses the lock because its lease is over.
    Expired,
    /// The rows of a contender vanish while it writes them again.
    VanishedBeforeWrite,
    /// Two contenders hold at once, because rows were lost.
    TwoHold,
    /// A holder finds its rows missing before it writes them again.
    MissingBeforeRenewal,
    /// Of two holders, one gives way to the other one, which was let in later.
    EarlierGivesWay,
    /// A waiter finds its rows missing, and begins again.
    BegunAnew,
    /// A holder is given a token while its rows are being removed.
    TokenBesideRemoval,
    /// A holder that was removed is given no token.
    TokenRefused,
    /// Its successor is given a token.
    TokenOfSuccessor,
    /// The fence bears a value that a holder wrote and gave up.
    TokenGivenUp,
    /// A caller of the keeper's process has its turn.
    CallersTurn,
    /// A guest has its turn.
    GuestsTurn,
    /// The next holder in the table enters.
    NextHolderEntered,
    /// The keeper's place is revoked.
    PlaceRevoked,
    /// A guest has a token.
    TokenOfGuest,
    /// The keeper sends its line elsewhere.
    LineDisbanded,
    /// A caller has its turn while another one of its process has one.
    CallersShare,
    /// The next holder in the table stops waiting.
    NextHolderGaveUp,
    /// A caller leaves while its place stays taken.
    ReturnedEarly,
    /// The task of an object fails.
    TaskFailed,
    /// A caller does not get the object.
    CallerRefused,
    /// A caller has its turn of a place that another one of its client had.
    NextTurn,
    /// A caller has a turn of another client.
    GuestTurn,
    /// A holder loses its turn.
    TurnLost,
    /// A holder is asked to finish.
    AskedToFinish,
    /// An idle place is kept.
    PlaceKept,
    /// A kept place is used.
    KeptPlaceUsed,
    /// A holder raises its TTL.
    TtlRaised,
    /// A holder shares what it had alone.
    Downgraded,
    /// Two hold together.
    HeldTogether,
    /// A server that lost its data joins again.
    ServerJoined,
    /// A server that was started again with its data is taken as it is.
    ServerAdopted,
    /// A server that joined again serves a request.
    ServerBack,
    /// A server is refused because another one has its place.
    ServerReplaced,
    /// A request comes to a server that waits after it joined again.
    ServerWaits,
    /// A request comes to a server with another view or epoch.
    ViewRefused,
    /// A read shows the row that another client may rely on.
    RowMet,
    /// A process grants its lock once more before it dies.
    SecondOwner,
    /// The rows of a dead process are deleted.
    DeletedForDead,
    /// They are gone, or of another round.
    NothingToDelete,
    /// A write of a dead process comes after the delete of its rows, and is above it.
    LateRow,
}

const SIGHTS: [Sight; 59] = [
    Sight::FastPath,
    Sight::ThroughTheQueue,
    Sight::FromTheFront,
    Sight::Tie,
    Sight::GivenUpInTheDoorway,
    Sight::GivenUpInTheQueue,
    Sight::HolderDied,
    Sight::ContenderDied,
    Sight::StaleRow,
    Sight::Taken,
    Sight::HolderRevoked,
    Sight::WaiterRevoked,
    Sight::RowMissing,
    Sight::SentBack,
    Sight::Swept,
    Sight::Spared,
    Sight::NextRoundInHaste,
    Sight::Renewed,
    Sight::Expired,
    Sight::VanishedBeforeWrite,
    Sight::TwoHold,
    Sight::MissingBeforeRenewal,
    Sight::EarlierGivesWay,
    Sight::BegunAnew,
    Sight::TokenBesideRemoval,
    Sight::TokenRefused,
    Sight::TokenOfSuccessor,
    Sight::TokenGivenUp,
    Sight::CallersTurn,
    Sight::GuestsTurn,
    Sight::NextHolderEntered,
    Sight::PlaceRevoked,
    Sight::TokenOfGuest,
    Sight::LineDisbanded,
    Sight::CallersShare,
    Sight::NextHolderGaveUp,
    Sight::ReturnedEarly,
    Sight::TaskFailed,
    Sight::CallerRefused,
    Sight::NextTurn,
    Sight::GuestTurn,
    Sight::TurnLost,
    Sight::AskedToFinish,
    Sight::PlaceKept,
    Sight::KeptPlaceUsed,
    Sight::TtlRaised,
    Sight::Downgraded,
    Sight::HeldTogether,
    Sight::ServerJoined,
    Sight::ServerAdopted,
    Sight::ServerBack,
    Sight::ServerReplaced,
    Sight::ServerWaits,
    Sight::ViewRefused,
    Sight::RowMet,
    Sight::SecondOwner,
    Sight::DeletedForDead,
    Sight::NothingToDelete,
    Sight::LateRow,
];

/// How often which was come across.
#[derive(Debug)]
pub(crate) struct Sightings([AtomicU64; SIGHTS.len()]);

impl Default for Sightings {
    fn default() -> Self {
        Sightings([const { AtomicU64::new(0) }; SIGHTS.len()])
    }
}

impl Sightings {
    pub(crate) fn note(&self, sight: Sight) {
        self.0[sight as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, sight: Sight) -> u64 {
        self.0[sight as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Display for Sightings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = SIGHTS.map(|sight| (sight, self.count(sight)));
        let seen = seen.iter().filter(|(_, count)| *count > 0);
        let seen: Vec<_> = seen.map(|(sight, count)| format!("{sight:?} {count}")).collect();
        f.write_str(&seen.join(", "))
    }
}

/// A search continues for a little while after it has found something, and would report the last
/// violation. The first one is nearer.
#[derive(Debug, Default)]
pub(crate) struct FirstViolation(AtomicBool);

impl FirstViolation {
    /// Whether a property counts as kept: it holds, or was broken before.
    pub(crate) fn allow(&self, holds: bool) -> bool {
        holds || self.0.swap(true, Ordering::Relaxed)
    }
}
