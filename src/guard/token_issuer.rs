//! Issuing fencing tokens: a read, a write, a read of the own rows, and a last look at the guard.
//!
//! A guard issues one token at a time. A keeper with guests issues blocks , from which it hands out
//! a token at each request (rule R7 of design section 7).

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tracing::{Instrument, debug};

use crate::context::ClientContext;
use crate::context::retry::until_answered;
use crate::core::bakery::{Claim, Loss, Poisoned, Read, Right, Snapshot};
use crate::core::turns::TokenBlock;
use crate::error::LostReason;
use crate::fencing::{FencingError, FencingToken};
use crate::guard::grant::{End, Grant, GuardRequest, Phase, Requests};
use crate::store::{DatabaseError, StoreFuture};

/// The fence of an object, as the holder of one grant sees it.
#[derive(Debug)]
pub(crate) struct TokenIssuer {
    grant: Arc<Grant>,
    requests: Requests,
    fence: ObjectFence,
    /// The client's runtime: requests continue there if a caller stops waiting.
    runtime: Handle,
    /// Held while a token is issued: two that read the same value would write the same one.
    turn: Mutex<()>,
}

impl TokenIssuer {
    /// The fence for the grant of a claim. Called on the client's runtime.
    pub(crate) fn new(
        shared: Arc<ClientContext>,
        grant: Arc<Grant>,
        claim: Claim,
        requests: Requests,
    ) -> Arc<Self> {
        let name = Arc::clone(grant.name());
        let max_clock_skew = shared.longest_terms.max_clock_skew();
        let fence = ObjectFence { shared, name, claim, max_clock_skew };
        Arc::new(TokenIssuer {
            grant,
            requests,
            fence,
            runtime: Handle::current(),
            turn: Mutex::default(),
        })
    }

    /// Issues a token; see [`LockHandle::fencing_token`](crate::LockHandle::fencing_token).
    pub(crate) async fn issue(self: &Arc<Self>) -> Result<FencingToken, FencingError> {
        let right = Right::of(self.fence.claim.mode).ok_or_else(|| self.fence.limited())?;
        self.grant.check_held()?;
        let fence = Arc::clone(self);
        let issuing = async move { fence.issue_while_held(right).await };
        let issuing = self.runtime.spawn(issuing.in_current_span());
        // The task does not panic, so a missing answer means that its runtime has ended.
        issuing.await.unwrap_or(Err(FencingError::Closed))
    }

    /// Issues until the acquire timeout, or the end of the grant.
    async fn issue_while_held(&self, right: Right) -> Result<FencingToken, FencingError> {
        let limit = self.fence.shared.acquire_timeout;
        let mut last_error = None;
        let issuing = tokio::time::timeout(limit, self.issue_in_turn(right, &mut last_error));
        let issued = tokio::select! {
            biased;
            // The outcome of the read and the write no longer matters then.
            _ = self.grant.phase_after(Phase::Expiring) => None,
            issued = issuing => Some(issued),
        };
        // Last, and by the clock: no other client was admitted before the value was acknowledged,
        // so each one admitted later reads it.
        self.grant.check_held()?;
        match issued {
            Some(Ok(issued)) => issued,
            Some(Err(_)) => {
                let name = self.grant.name().to_string();
                Err(FencingError::TimedOut { name, waited: limit, cause: last_error })
            }
            None => Err(FencingError::Closed),
        }
    }

    async fn issue_in_turn(
        &self,
        right: Right,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<FencingToken, FencingError> {
        let _turn = self.turn.lock().await;
        let value = self.fence.next(right, last_error).await?;
        self.fence.raise(value, last_error).await?;
        self.fence.rows_stand(last_error).await?.map_err(|loss| {
            let reason = LostReason::from(loss.clone());
            self.requests.send(GuardRequest::RowsLost(Box::new(loss)));
            let lost = End::Lost(reason);
            let end = self.grant.end(lost.clone()).err().unwrap_or(lost);
            end.into_fencing_error(self.grant.name())
        })?;
        Ok(FencingToken::from_value(value))
    }
}

/// The fence of an object, as a contender with this claim sees it.
#[derive(Debug)]
pub(crate) struct ObjectFence {
    pub(crate) shared: Arc<ClientContext>,
    /// The object.
    pub(crate) name: Arc<str>,
    /// What the contender's rows say.
    pub(crate) claim: Claim,
    pub(crate) max_clock_skew: Duration,
}

impl ObjectFence {
    /// Issues a block of tokens for a keeper, until the acquire timeout.
    pub(crate) async fn issue_block(self) -> Result<TokenBlock, FencingError> {
        let limit = self.shared.acquire_timeout;
        let mut last_error = None;
        let issued = tokio::time::timeout(limit, self.next_block(&mut last_error)).await;
        let timed_out = |_| FencingError::TimedOut {
            name: self.name.to_string(),
            waited: limit,
            cause: last_error,
        };
        issued.map_err(timed_out)?
    }

    async fn next_block(
        &self,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<TokenBlock, FencingError> {
        let right = Right::of(self.claim.mode).ok_or_else(|| self.limited())?;
        let block = loop {
            let first = self.next(right, last_error).await?;
            let now = self.shared.clock.unix_micros();
            match TokenBlock::from(first, now, self.max_clock_skew) {
                Ok(block) => break block,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        };
        self.raise(block.last(), last_error).await?;
        let stand = self.rows_stand(last_error).await?;
        stand.map_err(|loss| FencingError::lost(&self.name, loss.into()))?;
        Ok(block)
    }

    fn limited(&self) -> FencingError {
        FencingError::Limited { name: self.name.to_string() }
    }

    /// The value above the present one.
    async fn next(
        &self,
        right: Right,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<i64, FencingError> {
        let ClientContext { store, clock, wall_clock_bound, .. } = &*self.shared;
        let seen = self.ask(|| store.rows.read_fence(&self.name), last_error).await?;
        let now = clock.now();
        let at_most = wall_clock_bound.at_most(now.since_boot, self.max_clock_skew);
        let value = right.next(seen, now.unix_micros, at_most, self.max_clock_skew);
        value.map_err(|Poisoned { ahead }| {
            debug!(seen, ?ahead, "the fence is poisoned");
            FencingError::Poisoned { name: self.name.to_string(), ahead }
        })
    }

    async fn raise(
        &self,
        value: i64,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<(), FencingError> {
        let rows = &self.shared.store.rows;
        // The same value at each try: whichever tries are applied, and when, it is one write.
        self.ask(|| rows.write_fence(&self.name, value), last_error).await?;
        debug!(value, "fence raised");
        Ok(())
    }

    /// Whether the own rows are still there, by a read that begins after the value was
    /// acknowledged. A holder revoked by force does not know yet, and a token of its own above its
    /// successor's would protect nothing: the revocation was acknowledged before the rows were
    /// deleted, so this read shows it (design section 6).
    async fn rows_stand(
        &self,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<Result<(), Loss>, FencingError> {
        let rows = &self.shared.store.rows;
        let own_rows = || rows.read(&self.name, Read::Contender(self.claim.contender));
        let seen = self.ask(own_rows, last_error).await?;
        let seen = Snapshot::of(&seen.rows);
        // One that is asked to leave still holds.
        Ok(seen.shows_holder(&self.claim).map(drop).map_err(Loss::from))
    }

    /// Asks the database until it answers.
    async fn ask<'a, T>(
        &self,
        request: impl Fn() -> StoreFuture<'a, T>,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<T, FencingError> {
        let answer = until_answered(request, last_error).await;
        answer.map_err(|cause| FencingError::Refused { name: self.name.to_string(), cause })
    }
}
