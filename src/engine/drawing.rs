//! Drawing a fencing token for a guard: a read, a write, a read of the grant's rows, and a last
//! look at the guard.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tracing::{Instrument, debug};

use crate::engine::grant::{End, Grant};
use crate::engine::retry::until_answered;
use crate::engine::shared::Shared;
use crate::error::LostReason;
use crate::fence::{FencingError, FencingToken};
use crate::protocol::{Claim, Loss, Poisoned, Read, Right, Snapshot};
use crate::store::{Answer, DatabaseError};

/// The fence of an object, as the holder of one grant sees it.
#[derive(Debug)]
pub(crate) struct Fence {
    shared: Arc<Shared>,
    grant: Arc<Grant>,
    /// What the grant's rows say.
    claim: Claim,
    max_clock_skew: Duration,
    /// The client's runtime: requests continue there if a caller stops waiting.
    runtime: Handle,
    /// Held while a token is drawn: two draws that read the same value would write the same one.
    turn: Mutex<()>,
}

impl Fence {
    /// The fence for the grant of a claim. Called on the client's runtime.
    pub(crate) fn new(
        shared: Arc<Shared>,
        grant: Arc<Grant>,
        claim: Claim,
        max_clock_skew: Duration,
    ) -> Arc<Self> {
        Arc::new(Fence {
            shared,
            grant,
            claim,
            max_clock_skew,
            runtime: Handle::current(),
            turn: Mutex::default(),
        })
    }

    /// Draws a token; see [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    pub(crate) async fn draw(self: &Arc<Self>) -> Result<FencingToken, FencingError> {
        let right = Right::of(self.claim.mode).ok_or(FencingError::Limited)?;
        self.check()?;
        let fence = Arc::clone(self);
        let drawing = async move { fence.draw_while_held(right).await };
        let drawing = self.runtime.spawn(drawing.in_current_span());
        // The task does not panic, so a missing answer means that its runtime has ended.
        drawing.await.unwrap_or(Err(FencingError::Closed))
    }

    /// Draws until the acquire timeout, or the end of the grant.
    async fn draw_while_held(&self, right: Right) -> Result<FencingToken, FencingError> {
        let limit = self.shared.acquire_timeout;
        let mut setback = None;
        let drawing = tokio::time::timeout(limit, self.draw_in_turn(right, &mut setback));
        let mut ended = self.grant.subscribe();
        let drawn = tokio::select! {
            biased;
            // The outcome of the read and the write no longer matters then.
            _ = ended.wait_for(Option::is_some) => None,
            drawn = drawing => Some(drawn),
        };
        // Last, and by the clock: no other client was admitted before the value was acknowledged,
        // so each one admitted later reads it.
        self.check()?;
        match drawn {
            Some(Ok(drawn)) => drawn,
            Some(Err(_)) => {
                Err(FencingError::TimedOut { name: self.name(), waited: limit, cause: setback })
            }
            None => Err(FencingError::Closed),
        }
    }

    async fn draw_in_turn(
        &self,
        right: Right,
        setback: &mut Option<DatabaseError>,
    ) -> Result<FencingToken, FencingError> {
        let _turn = self.turn.lock().await;
        let Shared { store, clock, wall_clock_bound, .. } = &*self.shared;
        let seen = self.ask(|| store.read_fence(self.grant.name()), setback).await?;
        let at_most = wall_clock_bound.at_most(&**clock, self.max_clock_skew);
        let value = right.next(seen, clock.unix_micros(), at_most, self.max_clock_skew);
        let value = value.map_err(|Poisoned { ahead }| {
            debug!(seen, ?ahead, "the fence is poisoned");
            FencingError::Poisoned { name: self.name(), ahead }
        })?;
        // The same value at each try: whichever tries are applied, and when, it is one write.
        self.ask(|| store.write_fence(self.grant.name(), value), setback).await?;
        debug!(value, seen, "fence raised");
        self.rows_stand(setback).await?;
        Ok(FencingToken::from_value(value))
    }

    /// Whether the grant's rows are still there, by a read that begins after the value was
    /// acknowledged. A holder revoked by force does not know yet, and a token of its own above its
    /// successor's would protect nothing: the revocation was acknowledged before the rows were
    /// deleted, so this read shows it (design section 6).
    async fn rows_stand(&self, setback: &mut Option<DatabaseError>) -> Result<(), FencingError> {
        let store = &self.shared.store;
        let own_rows = || store.read(self.grant.name(), Read::Contender(self.claim.contender));
        let rows = self.ask(own_rows, setback).await?;
        Snapshot::of(&rows).shows(&self.claim).map_err(|denial| {
            let reason = LostReason::from(Loss::from(denial));
            // The runner notices the end at its next look at the clock, and deletes the rows.
            match self.grant.end(End::Lost(reason.clone())) {
                Ok(()) => FencingError::Lost(reason),
                Err(End::Lost(before)) => FencingError::Lost(before),
                Err(End::Released) => FencingError::Closed,
            }
        })
    }

    /// Asks the database until it answers.
    async fn ask<'a, T>(
        &self,
        request: impl Fn() -> Answer<'a, T>,
        setback: &mut Option<DatabaseError>,
    ) -> Result<T, FencingError> {
        let answer = until_answered(request, setback).await;
        answer.map_err(|cause| FencingError::Refused { name: self.name(), cause })
    }

    /// Whether the lock is held.
    fn check(&self) -> Result<(), FencingError> {
        match self.grant.ended() {
            None => Ok(()),
            Some(End::Lost(reason)) => Err(FencingError::Lost(reason)),
            // Only the guard releases, and all callers that could wait for a token go with it.
            Some(End::Released) => Err(FencingError::Closed),
        }
    }

    fn name(&self) -> String {
        self.grant.name().to_string()
    }
}
