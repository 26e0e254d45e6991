//! The surroundings of a client's runners.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Stamps, WallClockBound};
use crate::engine::process::Process;
use crate::entropy::Entropy;
use crate::protocol::{ContenderId, Now};
use crate::store::Store;

/// What all runners of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Where the rows live.
    pub(crate) store: Arc<dyn Store>,
    /// The client's clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// The client's randomness.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The client's stamps.
    pub(crate) stamps: Stamps,
    /// What the client's wall clock can say at most.
    pub(crate) wall_clock_bound: WallClockBound,
    /// The client as a contender.
    pub(crate) id: ContenderId,
    /// How long acquisitions wait unless they say otherwise; acknowledgements are waited for as
    /// long on behalf of guards.
    pub(crate) acquire_timeout: Duration,
    /// Where the client was built.
    pub(crate) process: Process,
}

impl Shared {
    /// What a contender is told of the moment.
    pub(crate) fn now(&self) -> Now {
        let stamp = self.stamps.draw(&*self.clock);
        Now { elapsed: self.clock.elapsed(), stamp, jitter: self.entropy.jitter() }
    }
}
