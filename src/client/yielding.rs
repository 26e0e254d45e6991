//! A request that lets those go first that share the lock (design section 7, patient writers).

use std::time::Duration;

use super::request::LockRequest;
use crate::contender::Contender;
use crate::core::bakery::{Mode, Patience, Read, Snapshot};
use crate::engine::retry::until_answered;
use crate::engine::runtime::with_timers;
use crate::error::LockError;
use crate::store::DatabaseError;

/// The longer it has waited, the longer a request pauses before it looks again: that lengthens the
/// wait by at most one part in this many.
const PAUSE_PER_WAIT: u32 = 16;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl LockRequest {
    /// Waits until none shares the lock, or for `limit`, without rows of its own. Returns whether
    /// to go on: a try gives up as soon as it sees one.
    pub(super) async fn yield_while_shared(
        &self,
        limit: Duration,
        patience: Patience,
    ) -> Result<bool, LockError> {
        let (mut sharers, mut setback) = (Vec::new(), None);
        let looking = self.look_until_unshared(patience, &mut sharers, &mut setback);
        let longest = limit.min(self.longest_wait());
        let unless_ended = async {
            tokio::select! {
                biased;
                // The connections may have ended with the client's runtime.
                () = self.client().ended.cancelled() => Err(LockError::Closed),
                looked = tokio::time::timeout(longest, looking) => Ok(looked),
            }
        };
        let looked = with_timers(&self.client().runtime, unless_ended).await?;
        let name = self.name().to_owned();
        match looked {
            Ok(looked) => looked.map_err(|cause| LockError::Refused { name, cause }),
            Err(_) if limit < self.longest_wait() => Ok(true),
            Err(_) => {
                let (waited, user) = (self.longest_wait(), None);
                Err(LockError::TimedOut { name, waited, user, ahead: sharers, cause: setback })
            }
        }
    }

    async fn look_until_unshared(
        &self,
        patience: Patience,
        sharers: &mut Vec<Contender>,
        setback: &mut Option<DatabaseError>,
    ) -> Result<bool, DatabaseError> {
        let shared = &self.client().shared;
        let began = shared.clock.elapsed();
        loop {
            let read = || shared.store.read(self.name(), Read::Object);
            let seen = until_answered(read, setback).await?;
            let contenders = Snapshot::of(&seen.rows).contenders().into_iter();
            let shares = contenders.filter(|seen| seen.mode == Some(Mode::Shared));
            *sharers = shares.map(Contender::from).collect();
            if sharers.is_empty() || patience == Patience::Try {
                return Ok(sharers.is_empty());
            }
            let waited = shared.clock.elapsed().saturating_sub(began);
            let pause = (waited / PAUSE_PER_WAIT).clamp(PAUSE_MIN, PAUSE_MAX);
            tokio::time::sleep(pause.mul_f64(0.75 + shared.entropy.jitter() / 2.0)).await;
        }
    }
}
