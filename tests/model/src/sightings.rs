//! What has to happen now and then in a search, lest it show nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that a search has to come across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Somebody is let in by the short way.
    ShortWay,
    /// Somebody is let in with a ticket.
    ThroughTheQueue,
    /// Somebody draws the ticket of another one.
    Tie,
    /// Somebody gives up before it has a ticket.
    GivenUpInTheDoorway,
    /// Somebody gives up with a ticket.
    GivenUpInTheQueue,
    /// Somebody dies who holds the lock.
    HolderDied,
    /// Somebody dies on the way.
    ContenderDied,
    /// A read shows a ticket whose round is over.
    StaleRow,
    /// A try sees that the lock is taken.
    Taken,
    /// A holder loses the lock because it is asked to leave.
    HolderRevoked,
    /// Somebody who waits leaves because it is asked to.
    WaiterRevoked,
    /// Somebody finds its rows missing.
    RowMissing,
    /// Somebody announces itself while the release before is under way.
    NextRoundInHaste,
    /// A holder renews its lease in time.
    Renewed,
    /// A holder loses the lock because its lease is over.
    Expired,
}

const SIGHTS: [Sight; 15] = [
    Sight::ShortWay,
    Sight::ThroughTheQueue,
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
    Sight::NextRoundInHaste,
    Sight::Renewed,
    Sight::Expired,
];

/// How often which was come across.
#[derive(Debug, Default)]
pub(crate) struct Sightings([AtomicU64; SIGHTS.len()]);

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
