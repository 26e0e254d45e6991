//! The best parameters of the lock on lightweight transactions, found by trying.

use std::time::Duration;

use crate::sides::lwt::{Coordinator, Look, Opening, Parameters};

const fn looking(look: Look, coordinator: Coordinator, pause: u64, pause_max: u64) -> Parameters {
    Parameters {
        opening: Opening::Look,
        look,
        coordinator,
        pause: Duration::from_millis(pause),
        pause_max: Duration::from_millis(pause_max),
    }
}

/// What is tried where several want one name.
pub(crate) const CANDIDATES: &[Parameters] = &[
    looking(Look::Quorum, Coordinator::Any, 5, 100),
    looking(Look::Serial, Coordinator::Fixed, 5, 100),
    looking(Look::Quorum, Coordinator::Fixed, 5, 100),
    looking(Look::Quorum, Coordinator::Fixed, 20, 500),
    looking(Look::One, Coordinator::Any, 5, 100),
    looking(Look::One, Coordinator::Fixed, 5, 100),
    looking(Look::One, Coordinator::Fixed, 20, 500),
    looking(Look::One, Coordinator::Fixed, 100, 1000),
];
